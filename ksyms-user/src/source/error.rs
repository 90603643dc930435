//! Why something could not be read, and what to do about it.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rustix::{io::Errno, process::geteuid, thread::CapabilitySet};

use super::{
    KcoreError,
    files::Failure,
    lockdown::{Lockdown, lockdown},
    vmlinux::ElfError,
};
use crate::kallsyms::ParseError;

/// Why the kernel, or a file, did not say what was asked.
///
/// What it displays ends in what to do about it; the errno or the faulty line
/// is the [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// This user may not do that.
    #[error("{call} {} is not permitted: {}", path.display(), permission_advice(*.root))]
    NotPermitted {
        /// The system call that failed.
        call: &'static str,
        /// The file, or the name of the file system.
        path: PathBuf,
        /// Whether the effective user is root all the same.
        root: bool,
        /// The errno.
        source: io::Error,
    },
    /// The kernel is locked down, so that not even root may read this
    /// (`LOCKDOWN_TRACEFS` and `LOCKDOWN_KCORE`, include/linux/security.h, since
    /// 5.4).
    #[error(
        "{call} {}: the kernel is {}, which keeps this from root too; boot without lockdown= \
         on its command line and with Secure Boot off, or a kernel not built to lock itself down",
        path.display(), lockdown_state(*level)
    )]
    LockedDown {
        /// The system call that failed.
        call: &'static str,
        /// The file, or the name of the file system.
        path: PathBuf,
        /// What /sys/kernel/security/lockdown says; `None` when it cannot be
        /// read, and lockdown is only the likely reason.
        level: Option<Lockdown>,
        /// The errno, where there was one.
        source: Option<io::Error>,
    },
    /// This kernel does not have it.
    #[error("{call} {}: this kernel does not have it; {advice}", path.display())]
    Unavailable {
        /// The system call that failed.
        call: &'static str,
        /// The file, or the name of the file system.
        path: PathBuf,
        /// What to do.
        advice: &'static str,
        /// The errno, where there was one.
        source: Option<io::Error>,
    },
    /// /proc/kallsyms shows zeros for addresses.
    #[error("/proc/kallsyms hides the addresses of symbols: {0}")]
    AddressesHidden(KptrRestrict),
    /// A saved copy has zeros for addresses.
    #[error(
        "{}: all addresses are 0, so this copy was made by a user who may not see them; \
         save /proc/kallsyms again as root", path.display()
    )]
    NoAddresses {
        /// The file.
        path: PathBuf,
    },
    /// A saved copy is of another kernel, or was made before the last boot, when
    /// the kernel was loaded elsewhere, or before a module was loaded again.
    #[error(
        "{} is not of the running kernel as it is loaded: {name}, there at {address:#x}, is not \
         here, but {}; save /proc/kallsyms again as root", path.display(),
        running.as_deref().unwrap_or("no symbol")
    )]
    OtherKernel {
        /// The file.
        path: PathBuf,
        /// A function.
        name: String,
        /// Its address in the file.
        address: u64,
        /// What is there in the running kernel.
        running: Option<String>,
    },
    /// A line of a file is not of the form it should have.
    #[error("{}:{} cannot be read as what it should be; read it again, or name another file",
        path.display(), source.line)]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line and what is wrong with it.
        source: ParseError,
    },
    /// An ELF file is no kernel, or has no symbols.
    #[error("{}: no kernel's symbols can be read from this file; name the vmlinux of the \
         kernel's debug package, or its System.map", path.display())]
    Elf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        source: ElfError,
    },
    /// A file is larger than what it should hold can be.
    #[error("{}: more than {limit} bytes; name a System.map or a copy of /proc/kallsyms",
        path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The kernel's memory does not hold what it should; its text files may.
    #[error("{} does not hold what it should; try again, or use /proc/kallsyms and tracefs",
        path.display())]
    Kcore {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: KcoreError,
    },
    /// A system call failed in another way.
    #[error("{call} {} failed; check that it exists and can be read", path.display())]
    Io {
        /// The system call that failed.
        call: &'static str,
        /// The file, or the name of the file system.
        path: PathBuf,
        /// The errno.
        source: io::Error,
    },
}

impl SourceError {
    /// Whether this machine or this user cannot do it, whatever is asked;
    /// else something is wrong with a file.
    #[must_use]
    pub const fn is_environment(&self) -> bool {
        match self {
            Self::NotPermitted { .. }
            | Self::LockedDown { .. }
            | Self::Unavailable { .. }
            | Self::AddressesHidden(_) => true,
            Self::NoAddresses { .. }
            | Self::OtherKernel { .. }
            | Self::Malformed { .. }
            | Self::Elf { .. }
            | Self::TooLarge { .. }
            | Self::Kcore { .. }
            | Self::Io { .. } => false,
        }
    }

    /// What to make of a failed `call` on the file at `path`.
    pub(super) fn io(call: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            call,
            path: path.into(),
            source,
        }
    }

    /// The error for what this kernel was built without.
    pub(super) fn unavailable(failure: Failure, advice: &'static str) -> Self {
        Self::Unavailable {
            call: failure.call,
            path: failure.path,
            advice,
            source: Some(failure.source),
        }
    }

    /// The error for a file that is missing because the kernel was built without
    /// it, or was locked down when it would have made it.
    pub(super) fn missing(failure: Failure, advice: &'static str) -> Self {
        match lockdown() {
            Some(level @ Lockdown::Confidentiality) => Self::LockedDown {
                call: failure.call,
                path: failure.path,
                level: Some(level),
                source: Some(failure.source),
            },
            _ => Self::unavailable(failure, advice),
        }
    }

    /// The error for a failed `call` on a kernel's file, which tells lockdown
    /// and missing permission from the rest.
    pub(super) fn kernel(failure: Failure) -> Self {
        Self::kernel_for(failure, CapabilitySet::SYS_ADMIN)
    }

    /// The same, for a call that needs another capability.
    pub(super) fn kernel_for(failure: Failure, capability: CapabilitySet) -> Self {
        if failure.source.kind() != io::ErrorKind::PermissionDenied {
            let Failure { call, path, source } = failure;
            return Self::Io { call, path, source };
        }
        let root = geteuid().is_root();
        let admin = root && has_capability(capability);
        Self::denied(failure, root, admin, root.then(lockdown).flatten())
    }

    /// The error for what was denied to a process that is `root`, or not, has
    /// the capabilities of an `admin`, or not, on a kernel locked down so far.
    pub(super) fn denied(
        failure: Failure,
        root: bool,
        admin: bool,
        level: Option<Lockdown>,
    ) -> Self {
        let locked_down = match level {
            Some(level) => level != Lockdown::None,
            // Where it cannot be told, it is the likely reason why a root with
            // its capabilities meets EPERM. Security modules say EACCES.
            None => admin && failure.errno() == Some(Errno::PERM),
        };
        let Failure { call, path, source } = failure;
        if root && locked_down {
            Self::LockedDown {
                call,
                path,
                level,
                source: Some(source),
            }
        } else {
            Self::NotPermitted {
                call,
                path,
                root,
                source,
            }
        }
    }
}

fn permission_advice(root: bool) -> &'static str {
    if root {
        "this root is confined by a container or a security module; run on the host, \
         or in a container with --privileged"
    } else {
        "run as root, for example with sudo"
    }
}

fn lockdown_state(level: Option<Lockdown>) -> String {
    level.map_or_else(
        || "probably locked down".into(),
        |level| format!("locked down ({level})"),
    )
}

/// Whether the capability is effective in this process.
fn has_capability(capability: CapabilitySet) -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

/// Why /proc/kallsyms hides addresses (`kernel/ksyms_common.c`,
/// `kallsyms_show_value()`); what it displays says how to see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KptrRestrict {
    /// The value of `kernel.kptr_restrict`: 0 shows addresses to `CAP_SYSLOG`
    /// and, where `kernel.perf_event_paranoid` allows, to everyone; 1 to
    /// `CAP_SYSLOG`; 2 to nobody. `None` when it cannot be read.
    pub level: Option<u8>,
    /// Whether this process has `CAP_SYSLOG`.
    pub syslog: bool,
}

impl KptrRestrict {
    pub(super) fn read() -> Self {
        Self {
            level: fs::read_to_string("/proc/sys/kernel/kptr_restrict")
                .ok()
                .and_then(|level| level.trim().parse().ok()),
            syslog: has_capability(CapabilitySet::SYSLOG),
        }
    }
}

impl fmt::Display for KptrRestrict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.level, self.syslog) {
            (Some(2..), syslog) => {
                f.write_str("kernel.kptr_restrict is 2, for nobody; ")?;
                f.write_str(if syslog {
                    "run `sysctl kernel.kptr_restrict=1`"
                } else {
                    "run `sudo sysctl kernel.kptr_restrict=1`, and then as root"
                })
            }
            (_, false) => {
                f.write_str("they are for CAP_SYSLOG only; run as root, for example with sudo")
            }
            (_, true) => f.write_str(
                "CAP_SYSLOG is held in a container's user namespace only; run as root of the host",
            ),
        }
    }
}
