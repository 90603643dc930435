//! Arm the counting program at thousands of functions, and take it off again.
//!
//! A backend is one way to do it; each has a file. [`attach`] picks one,
//! loads what it needs, arms it and measures both; what comes back counts until
//! it is detached or dropped. Callers know functions only by their address and
//! their slot: the place in the list they handed in.
//!
//! | backend | kernel | what it makes |
//! |---|---|---|
//! | [`Mode::Multi`] | 5.18 with `CONFIG_FPROBE` | one kprobe.multi link for all |
//! | [`Mode::Event`] | 5.5 with `CONFIG_KPROBE_EVENTS`, tracefs | one trace event of many probes |
//! | [`Mode::Perf`] | 5.5 with `CONFIG_KPROBE_EVENTS` | one perf kprobe a function |
//!
//! No probe outlives the process: links and perf events are file descriptors.
//! Only the definitions of a trace event do when it is killed, disarmed; the
//! next one to be made clears them.

mod event;
mod links;
mod multi;
mod perf;

use std::{
    fmt, fs, io,
    os::fd::{AsFd as _, OwnedFd},
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::bpf::{
    counters::Counters,
    object::{Object, Sizes},
    sys::{self, LinkKind, ProgramInfo},
};

#[cfg(feature = "report")]
pub(crate) use self::multi::Floor;
use self::{event::TraceEvent, links::Links};
pub use crate::bpf::{
    counters::Counts,
    log::{EbpfLog, LogError},
    object::LoadError,
    sys::SyscallError,
};

/// Which way to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// The best that the kernel turns out to have.
    #[default]
    Auto,
    /// One kprobe.multi link for all functions.
    Multi,
    /// One trace event made of a probe for each function.
    Event,
    /// One perf kprobe for each function.
    Perf,
}

impl Mode {
    /// All modes by the names users type.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Multi, Self::Event, Self::Perf];

    /// The name users type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Multi => "multi",
            Self::Event => "event",
            Self::Perf => "perf",
        }
    }

    /// The ways to try, best first.
    fn backends(self) -> Vec<Box<dyn Backend>> {
        match self {
            Self::Auto => vec![
                Box::new(multi::Multi),
                Box::new(event::Event),
                Box::new(perf::Perf),
            ],
            Self::Multi => vec![Box::new(multi::Multi)],
            Self::Event => vec![Box::new(event::Event)],
            Self::Perf => vec![Box::new(perf::Perf)],
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join(", ");
                format!("no such mode; there are {known}")
            })
    }
}

/// Why nothing could be attached.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// This kernel, as built, booted or locked down, lacks what the backend
    /// needs.
    #[error("{backend} cannot be used here: {reason}")]
    Unsupported {
        /// The backend's name.
        backend: &'static str,
        /// What is missing, and what can be done about it.
        reason: String,
    },
    /// The administrator has switched probes off; they would be attached and
    /// never hit.
    #[error("probes are switched off: {knob} is 0; run `{remedy}` as root")]
    SwitchedOff {
        /// What was found to be 0.
        knob: &'static str,
        /// The command that switches them on.
        remedy: &'static str,
    },
    /// This user, or its limits, do not allow it.
    #[error("{backend} is not allowed here: {reason}")]
    NotPermitted {
        /// The backend's name.
        backend: &'static str,
        /// What is missing, and what can be done about it.
        reason: String,
    },
    /// The programs could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refused, for a reason that lies in the request.
    #[error("attaching {functions} functions with {backend}: {source}; {advice}")]
    Refused {
        /// The backend's name.
        backend: &'static str,
        /// How many functions were asked for.
        functions: usize,
        /// The failing call.
        source: SyscallError,
        /// What can be done about it.
        advice: &'static str,
    },
    /// All was armed, but counting could not be started.
    #[error("starting to count: {0}; this is a bug in ksyms, please report it")]
    Start(#[source] SyscallError),
    /// A file that tells how to attach could not be read.
    #[error("reading {path} failed: {source}; is sysfs mounted?")]
    Read {
        /// The file.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The definitions of a trace event could not be cleared; they are disarmed.
    #[error(
        "clearing the trace event {event} failed: {source}; when no other tool uses it, \
         `echo '-:{event}' >> /sys/kernel/tracing/kprobe_events` does"
    )]
    Clear {
        /// Its group and name.
        event: String,
        /// Why.
        source: io::Error,
    },
    /// There was nothing to attach to.
    #[error("no function to attach to; select at least one")]
    Nothing,
}

impl AttachError {
    /// Whether the machine or the user is what stands in the way, so that the
    /// same request may work elsewhere.
    #[must_use]
    pub fn is_environment(&self) -> bool {
        match self {
            Self::Unsupported { .. }
            | Self::SwitchedOff { .. }
            | Self::NotPermitted { .. }
            | Self::Read { .. }
            | Self::Load(LoadError::Cpus { .. }) => true,
            Self::Load(error) => matches!(
                error.errno(),
                libc::EPERM
                    | libc::EACCES
                    | libc::ENOSYS
                    | libc::EINVAL
                    | libc::EMFILE
                    | libc::ENFILE
            ),
            Self::Refused { .. } | Self::Start(_) | Self::Clear { .. } | Self::Nothing => false,
        }
    }
}

/// A function that the kernel would not let us attach to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Its place in the list that was handed in.
    pub slot: usize,
    /// What the kernel answered; 0 when it was never asked because attaching
    /// was interrupted.
    pub errno: i32,
}

impl Refusal {
    /// The error for a caller that wants all or nothing.
    #[cfg(feature = "report")]
    pub(crate) fn of(self, backend: Mode, functions: usize) -> AttachError {
        AttachError::Refused {
            backend: backend.as_str(),
            functions,
            source: SyscallError {
                call: "arming one by one",
                error: io::Error::from_raw_os_error(self.errno),
            },
            advice: "the kernel refused these; `ksyms-attach --mode perf` with the same pattern names them",
        }
    }
}

/// How the caller follows and stops a long attach.
pub struct Control<'a> {
    /// Set it to stop attaching: what is armed by then stays armed.
    pub interrupted: &'a AtomicBool,
    /// Called with the number of functions done so far. Not called by backends
    /// that arm all at once.
    pub progress: &'a mut dyn FnMut(usize),
    /// Called with what a user should know, for example that a slower way is
    /// taken and why.
    pub notice: &'a mut dyn FnMut(&str),
}

impl Control<'_> {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// How a program tells which function was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountBy {
    /// By the attach cookie. Kernel 5.15.
    Cookie,
    /// By the address in the registers.
    Address,
}

/// A loaded program and how it counts.
struct Program {
    fd: OwnedFd,
    by: CountBy,
    counters: Counters,
}

/// What a backend has armed.
#[derive(Default)]
struct Armed {
    links: Links,
    kind: Option<LinkKind>,
    /// What the links are on, when that is a trace event of ours; it cannot be
    /// cleared before they are gone.
    event: Option<TraceEvent>,
    refused: Vec<Refusal>,
}

impl Armed {
    /// Lists the slots that were never armed.
    fn interrupt(&mut self, slots: impl IntoIterator<Item = usize>) {
        let interrupted = |slot| Refusal { slot, errno: 0 };
        self.refused.extend(slots.into_iter().map(interrupted));
    }
}

/// One way to attach.
trait Backend {
    /// Its name, as in `--mode` and in the report.
    fn mode(&self) -> Mode;

    /// Loads the counting program in the form this backend attaches.
    fn load(&self, targets: &[u64], log_level: u8) -> Result<Program, AttachError>;

    /// Arms the program at `targets`. Functions that the kernel refuses one by
    /// one are listed, not an error.
    fn arm(
        &self,
        program: &Program,
        targets: &[u64],
        control: &mut Control<'_>,
    ) -> Result<Armed, AttachError>;
}

/// What this kernel lacks for any way of attaching, where that can be told
/// without trying: `None` does not promise that one works.
#[must_use]
pub fn lacks_kprobes() -> Option<&'static str> {
    perf::no_kprobes()
}

/// Raises the limit of open files so far that `probes` perf kprobes, and what
/// a program needs besides, fit in.
///
/// # Errors
///
/// When the limit cannot be raised; see [`AttachError::NotPermitted`].
pub fn reserve_files(probes: usize) -> Result<(), AttachError> {
    perf::allow_open_files(probes)
}

/// What attaching is to do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Which way; default [`Mode::Auto`].
    pub mode: Mode,
    /// Whether the eBPF side's diagnostics are wanted (see
    /// [`Attached::log`]); default no, which removes their code at load.
    pub log: bool,
}

/// What the phases took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Making the maps and loading the program, the verifier included.
    pub load: Duration,
    /// Arming all functions.
    pub attach: Duration,
}

/// Attached functions, counting. Dropping it detaches.
pub struct Attached {
    backend: Mode,
    program: Program,
    armed: Armed,
    /// What was missed while arming.
    missed_before: Option<u64>,
    cost: Cost,
}

/// Attaches the counting program to `targets`: addresses of functions as
/// kallsyms gives them, each once, at most 2^20. Counting begins for all of them
/// at once, when the last one is armed.
///
/// # Errors
///
/// When nothing at all could be attached; see [`AttachError`].
pub fn attach(
    targets: &[u64],
    options: Options,
    control: &mut Control<'_>,
) -> Result<Attached, AttachError> {
    if targets.is_empty() {
        return Err(AttachError::Nothing);
    }
    FTRACE.is_on()?;
    let log_level = if options.log { 5 } else { 0 };
    let backends = options.mode.backends();
    let mut cost = Cost::default();
    let mut rest = backends.iter().peekable();
    while let Some(backend) = rest.next() {
        match attach_with(backend.as_ref(), targets, log_level, control, &mut cost) {
            Ok((program, armed)) => {
                return Ok(Attached {
                    backend: backend.mode(),
                    missed_before: missed(&program, &armed).unwrap_or(None),
                    program,
                    armed,
                    cost,
                });
            }
            Err(error) => match (error, rest.peek()) {
                (AttachError::Unsupported { reason, .. }, Some(next)) => {
                    let next = next.mode();
                    (control.notice)(&format!("{reason}; falling back to {next}"));
                }
                (error, _) => return Err(error),
            },
        }
    }
    Err(AttachError::Nothing)
}

/// Whether ftrace may be used. While `kernel.ftrace_enabled` is 0 no probe at a
/// function's entry is hit, and a kprobe.multi link that is closed then breaks
/// ftrace until reboot (seen on 6.12: the warning in `ftrace_shutdown`).
const FTRACE: Switch = Switch {
    knob: "/proc/sys/kernel/ftrace_enabled",
    remedy: "sysctl kernel.ftrace_enabled=1",
};

/// A file of the kernel's that may hold 0.
struct Switch {
    knob: &'static str,
    remedy: &'static str,
}

impl Switch {
    /// Checks that it is not known to be off: without the file, there is
    /// nothing to switch.
    fn is_on(&self) -> Result<(), AttachError> {
        match fs::read_to_string(self.knob) {
            Ok(value) if value.trim() == "0" => Err(AttachError::SwitchedOff {
                knob: self.knob,
                remedy: self.remedy,
            }),
            _ => Ok(()),
        }
    }
}

/// Loads and arms one way; adds to `cost` what that takes, also in vain.
fn attach_with(
    backend: &dyn Backend,
    targets: &[u64],
    log_level: u8,
    control: &mut Control<'_>,
    cost: &mut Cost,
) -> Result<(Program, Armed), AttachError> {
    let start = Instant::now();
    let program = backend.load(targets, log_level);
    cost.load += start.elapsed();
    let program = program?;
    let start = Instant::now();
    let armed = backend.arm(&program, targets, control).and_then(|armed| {
        program
            .counters
            .set_counting(true)
            .map_err(AttachError::Start)?;
        Ok(armed)
    });
    cost.attach += start.elapsed();
    Ok((program, armed?))
}

impl Attached {
    /// The way that was taken: never [`Mode::Auto`].
    #[must_use]
    pub fn backend(&self) -> Mode {
        self.backend
    }

    /// What it took.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The functions that the kernel refused.
    #[must_use]
    pub fn refused(&self) -> &[Refusal] {
        &self.armed.refused
    }

    /// The hits so far. No system call.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.program.counters.read()
    }

    /// Stops counting, for all functions at once, and returns the hits up to
    /// then. The functions stay attached: detaching runs through kernel
    /// functions too, which should not count.
    ///
    /// # Errors
    ///
    /// When the kernel does not take the word.
    pub fn stop(&self) -> Result<Counts, SyscallError> {
        self.program.counters.set_counting(false)?;
        Ok(self.counts())
    }

    /// Hits since counting began that the kernel saw but did not count, because
    /// a tracing program was already running on that CPU or the probe was
    /// re-entered; `None` where the kernel does not say (before 6.7, but for
    /// [`Mode::Event`]: there the former are missing before 6.7).
    ///
    /// # Errors
    ///
    /// When the kernel will not tell about its own link or program.
    pub fn missed(&self) -> Result<Option<u64>, SyscallError> {
        let now = missed(&self.program, &self.armed)?;
        Ok(now
            .zip(self.missed_before)
            .map(|(now, before)| now - before))
    }

    /// The eBPF side's diagnostics, when [`Options::log`] asked for them.
    ///
    /// # Errors
    ///
    /// When the kernel does not hand out the log's ring buffer.
    pub fn log<T: log::Log>(&self, logger: T) -> Result<EbpfLog<T>, LogError> {
        let id = sys::program_info(self.program.fd.as_fd()).map_or(0, |info| info.id);
        EbpfLog::of_program(id, logger)
    }

    /// Takes all probes off again. Hits on the way are not counted.
    pub fn detach(self) -> Detached {
        let start = Instant::now();
        // Detaching needs no leave to stop; it is only cheaper afterwards.
        let _ = self.stop();
        drop(self.armed.links);
        Detached {
            took: start.elapsed(),
            event: self.armed.event,
        }
    }
}

/// What detaching leaves: nothing is armed any more, but the definitions of a
/// trace event take as long again to clear, which can wait until the result is
/// out. Dropping it clears them.
#[must_use]
#[derive(Debug)]
pub struct Detached {
    took: Duration,
    event: Option<TraceEvent>,
}

impl Detached {
    /// How long taking the probes off took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Clears what there is to clear and tells how long that took; `None` when
    /// there was nothing.
    ///
    /// # Errors
    ///
    /// [`AttachError::Clear`].
    pub fn clear(self) -> Result<Option<Duration>, AttachError> {
        self.event.map(TraceEvent::clear).transpose()
    }
}

/// Hits lost since the program was loaded, where the kernel says so. Arming
/// itself runs through armed functions and loses many.
fn missed(program: &Program, armed: &Armed) -> Result<Option<u64>, SyscallError> {
    let ProgramInfo {
        recursion_misses, ..
    } = sys::program_info(program.fd.as_fd())?;
    if let Some(event) = &armed.event {
        return Ok(Some(recursion_misses + event.missed()?));
    }
    let Some(kind) = armed.kind else {
        return Ok(None);
    };
    let mut sum = recursion_misses;
    for link in armed.links.iter() {
        match sys::link_missed(link, kind)? {
            Some(missed) => sum += missed,
            None => return Ok(None),
        }
    }
    Ok(Some(sum))
}

/// Makes the maps, loads a program over them and maps the counters.
fn load(
    targets: &[u64],
    by: CountBy,
    kind: sys::ProgramKind,
    log_level: u8,
) -> Result<Program, LoadError> {
    let slots = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let mut object = Object::open(Sizes {
        slots,
        by_address: by == CountBy::Address,
        log_level,
    })?;
    let name = match by {
        CountBy::Cookie => ksyms_ebpf::programs::COUNT_BY_COOKIE,
        CountBy::Address => {
            object.register(targets)?;
            ksyms_ebpf::programs::COUNT_BY_ADDRESS
        }
    };
    Ok(Program {
        fd: object.load(name, kind)?,
        by,
        counters: object.into_counters()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_as_users_type_them() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("Multi".parse::<Mode>().unwrap_err().contains("perf"));
    }

    #[test]
    fn nothing_to_attach_is_an_error_before_the_kernel_is_asked() {
        let interrupted = AtomicBool::new(false);
        let mut control = Control {
            interrupted: &interrupted,
            progress: &mut |_| {},
            notice: &mut |_| {},
        };
        let result = attach(&[], Options::default(), &mut control);
        assert!(matches!(result, Err(AttachError::Nothing)));
    }
}
