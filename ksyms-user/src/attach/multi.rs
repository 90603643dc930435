//! One kprobe.multi link for all functions: the kernel arms them in one go and
//! takes them off in one go.
//!
//! The link is made by the functions' own addresses, not by the ftrace
//! locations that tracefs lists: behind an ENDBR the two differ by 4, and with
//! the latter the kernel finds no cookie for a hit (it looks up the entry
//! address, `bpf_kprobe_multi_cookie` in `kernel/trace/bpf_trace.c`).

use std::os::fd::{AsFd as _, OwnedFd};

use ksyms_ebpf::cookie_of_slot;

use super::{Armed, AttachError, Backend, Control, CountBy, Mode, Program, load};
use crate::bpf::sys::{self, LinkKind, ProgramKind, SyscallError};

pub(super) struct Multi;

const NAME: &str = Mode::Multi.as_str();

impl Backend for Multi {
    fn mode(&self) -> Mode {
        Mode::Multi
    }

    fn load(&self, targets: &[u64], log_level: u8) -> Result<Program, AttachError> {
        load(
            targets,
            CountBy::Cookie,
            ProgramKind::KprobeMulti,
            log_level,
        )
        .map_err(|error| {
            if error.is_missing_helper() {
                unsupported()
            } else {
                error.into()
            }
        })
    }

    fn arm(
        &self,
        program: &Program,
        targets: &[u64],
        control: &mut Control<'_>,
    ) -> Result<Armed, AttachError> {
        let mut armed = Armed {
            kind: Some(LinkKind::KprobeMulti),
            ..Armed::default()
        };
        if control.is_interrupted() {
            armed.interrupt(0..targets.len());
            return Ok(armed);
        }
        let cookies = cookies(targets.len());
        let link = sys::link_create_kprobe_multi(program.fd.as_fd(), targets, Some(&cookies))
            .map_err(|source| refused(program, targets.len(), source))?;
        armed.links.push(link);
        Ok(armed)
    }
}

fn cookies(slots: usize) -> Vec<u64> {
    (0..).map(cookie_of_slot).take(slots).collect()
}

/// A bare kprobe.multi link and nothing around it: what benchmarks measure
/// attaching against.
pub(crate) struct Floor {
    program: Program,
    targets: Vec<u64>,
    cookies: Vec<u64>,
}

impl Floor {
    /// Prepares everything but the link.
    pub(crate) fn new(targets: &[u64]) -> Result<Self, AttachError> {
        Ok(Self {
            program: Multi.load(targets, 0)?,
            targets: targets.to_vec(),
            cookies: cookies(targets.len()),
        })
    }

    /// Makes the link, with or without cookies.
    pub(crate) fn link(&self, cookies: bool) -> Result<OwnedFd, AttachError> {
        sys::link_create_kprobe_multi(
            self.program.fd.as_fd(),
            &self.targets,
            cookies.then_some(&self.cookies),
        )
        .map_err(|source| refused(&self.program, self.targets.len(), source))
    }
}

fn unsupported() -> AttachError {
    AttachError::Unsupported {
        backend: NAME,
        reason: "this kernel has no kprobe.multi (it needs 5.18 with CONFIG_FPROBE)".to_owned(),
    }
}

fn refused(program: &Program, functions: usize, source: SyscallError) -> AttachError {
    match source.errno() {
        libc::EOPNOTSUPP => unsupported(),
        // Kernels before 5.18 answer EINVAL to any such link.
        libc::EINVAL if !sys::knows_kprobe_multi(program.fd.as_fd()) => unsupported(),
        libc::EPERM | libc::EACCES => AttachError::NotPermitted {
            backend: NAME,
            reason: format!(
                "{source}; run as root (sudo), or with CAP_BPF and CAP_PERFMON; lockdown=confidentiality forbids kprobes to everyone"
            ),
        },
        _ => AttachError::Refused {
            backend: NAME,
            functions,
            source,
            advice: "one address that ftrace does not know sinks the whole link: narrow the pattern, or use --mode perf, which leaves only that one out",
        },
    }
}
