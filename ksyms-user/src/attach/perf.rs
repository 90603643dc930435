//! One perf kprobe for each function, by address: for kernels without
//! kprobe.multi. Each costs a file descriptor and, when closed, a wait for all
//! CPUs, so taking hundreds off takes seconds.

use std::{fs, os::fd::AsFd as _};

use ksyms_ebpf::cookie_of_slot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Armed, AttachError, Backend, Control, CountBy, Mode, Program, Refusal, Switch, load};
use crate::bpf::sys::{self, LinkKind, ProgramKind, SyscallError};

pub(super) struct Perf;

const NAME: &str = Mode::Perf.as_str();

/// Holds the number of the kprobe PMU; absent without `CONFIG_KPROBE_EVENTS`.
const PMU: &str = "/sys/bus/event_source/devices/kprobe/type";

impl Backend for Perf {
    fn mode(&self) -> Mode {
        Mode::Perf
    }

    fn load(&self, targets: &[u64], log_level: u8) -> Result<Program, AttachError> {
        let load = |by| load(targets, by, ProgramKind::Kprobe, log_level);
        match load(CountBy::Cookie) {
            Err(error) if error.is_missing_helper() => Ok(load(CountBy::Address)?),
            result => Ok(result?),
        }
    }

    fn arm(
        &self,
        program: &Program,
        targets: &[u64],
        control: &mut Control<'_>,
    ) -> Result<Armed, AttachError> {
        let pmu = pmu()?;
        KPROBES.is_on()?;
        allow_open_files(targets.len())?;
        let mut armed = Armed {
            links: Vec::with_capacity(targets.len()),
            kind: (program.by == CountBy::Cookie).then_some(LinkKind::PerfKprobe),
            refused: Vec::new(),
        };
        for (slot, &address) in targets.iter().enumerate() {
            if control.is_interrupted() {
                armed.interrupt(slot..targets.len());
                break;
            }
            match arm_one(program, pmu, slot, address) {
                Ok(link) => armed.links.push(link),
                Err(source) => match source.errno() {
                    libc::EPERM | libc::EACCES => {
                        return Err(AttachError::NotPermitted {
                            backend: NAME,
                            reason: format!(
                                "{source}; run as root (sudo), or with CAP_BPF and CAP_PERFMON and kernel.perf_event_paranoid at most 2; lockdown=confidentiality forbids kprobes to everyone"
                            ),
                        });
                    }
                    libc::EMFILE | libc::ENFILE | libc::ENOMEM => {
                        return Err(AttachError::Refused {
                            backend: NAME,
                            functions: targets.len(),
                            source,
                            advice: "select fewer functions, or raise the limit it names",
                        });
                    }
                    errno => armed.refused.push(Refusal { slot, errno }),
                },
            }
            (control.progress)(slot + 1);
        }
        Ok(armed)
    }
}

fn arm_one(
    program: &Program,
    pmu: u32,
    slot: usize,
    address: u64,
) -> Result<std::os::fd::OwnedFd, SyscallError> {
    let event = sys::perf_event_open_kprobe(pmu, address)?;
    match program.by {
        CountBy::Cookie => {
            let slot = u32::try_from(slot).expect("fewer slots than counters");
            sys::link_create_perf(program.fd.as_fd(), event.as_fd(), cookie_of_slot(slot))
        }
        CountBy::Address => {
            sys::perf_event_set_program(event.as_fd(), program.fd.as_fd())?;
            Ok(event)
        }
    }
}

const NO_KPROBES: &str = "this kernel has no kprobes (it needs CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, and sysfs mounted at /sys)";

fn pmu() -> Result<u32, AttachError> {
    let unsupported = |reason| AttachError::Unsupported {
        backend: NAME,
        reason,
    };
    match fs::read_to_string(PMU) {
        Ok(number) => number
            .trim()
            .parse()
            .map_err(|_| unsupported(format!("{PMU} holds {number:?}, not a number"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(unsupported(NO_KPROBES.to_owned()))
        }
        Err(source) => Err(AttachError::Read { path: PMU, source }),
    }
}

/// Whether kprobes may be used at all. Where debugfs is not mounted that is not
/// known, and so unless someone has mounted it to change it.
const KPROBES: Switch = Switch {
    knob: "/sys/kernel/debug/kprobes/enabled",
    remedy: "echo 1 > /sys/kernel/debug/kprobes/enabled",
};

/// Whether the kernel is built without kprobes; if so, what to say of it.
pub(super) fn no_kprobes() -> Option<&'static str> {
    matches!(fs::exists(PMU), Ok(false)).then_some(NO_KPROBES)
}

/// Files the process may need besides the probes.
const SPARE_FILES: u64 = 64;

/// Raises the limit of open files so far that `probes` more fit in.
pub(super) fn allow_open_files(probes: usize) -> Result<(), AttachError> {
    let needed = probes as u64 + SPARE_FILES;
    let limit = getrlimit(Resource::Nofile);
    // None stands for unlimited.
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum.map(|maximum| maximum.max(needed)),
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| AttachError::NotPermitted {
        backend: NAME,
        reason: format!(
            "{needed} open files are needed for {probes} perf kprobes, but the limit is {} and cannot be raised: setrlimit(RLIMIT_NOFILE) failed: {error}; run `ulimit -n {needed}` as root first (at most fs.nr_open), or select fewer functions",
            limit.maximum.or(limit.current).unwrap_or(0)
        ),
    })
}
