//! One trace event made of a probe for each function: for kernels without
//! kprobe.multi. Lines of one group and event in `kprobe_events` add up to one
//! event (kernel 5.4, commit ca89bc071d5e); one perf event on it arms them all,
//! and closing that disarms them all.
//!
//! Unlike all else here, what is written there outlives the process. So the
//! group names its owner, and what owners left behind when they were killed is
//! cleared before anything is defined.

use std::{
    collections::BTreeSet,
    error::Error,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use super::{
    Armed, AttachError, Backend, Control, CountBy, Mode, Program, Refusal, load,
    perf::{KPROBES, run_on},
};
use crate::{
    bpf::sys::{self, ProgramKind, SyscallError},
    source::{SourceError, Tracefs},
};

pub(super) struct Event;

const NAME: &str = Mode::Event.as_str();

/// Where probes are defined and cleared.
const DEFINITIONS: &str = "kprobe_events";
/// What each was hit and missed.
const PROFILE: &str = "kprobe_profile";

/// The kernel parses what is written to it in pieces of that size, the
/// terminating NUL included (`WRITE_BUFSIZE`, kernel/trace/trace.c).
const BATCH_BYTES: usize = 4095;

impl Backend for Event {
    fn mode(&self) -> Mode {
        Mode::Event
    }

    fn load(&self, targets: &[u64], log_level: u8) -> Result<Program, AttachError> {
        // One link has one cookie.
        Ok(load(
            targets,
            CountBy::Address,
            ProgramKind::Kprobe,
            log_level,
        )?)
    }

    fn arm(
        &self,
        program: &Program,
        targets: &[u64],
        control: &mut Control<'_>,
    ) -> Result<Armed, AttachError> {
        KPROBES.is_on()?;
        let mut event = TraceEvent::new()?;
        event.sweep(control)?;
        let mut armed = Armed::default();
        let tried = event.define(targets, &mut armed.refused, control)?;
        if tried < targets.len() {
            // Nothing counts before all are armed, and none is yet.
            let refused: BTreeSet<_> = armed.refused.iter().map(|refusal| refusal.slot).collect();
            armed.interrupt((0..targets.len()).filter(|slot| !refused.contains(slot)));
        } else if armed.refused.len() < targets.len() {
            armed.links.push(event.arm(program, targets.len())?);
        }
        armed.event = Some(event);
        Ok(armed)
    }
}

fn unsupported(reason: impl fmt::Display) -> AttachError {
    AttachError::Unsupported {
        backend: NAME,
        reason: format!("trace events: {reason}"),
    }
}

/// The error for a tracefs that cannot be used: perf kprobes do without it.
fn no_tracefs(error: &SourceError) -> AttachError {
    let cause = error
        .source()
        .map_or_else(String::new, |cause| format!(" ({cause})"));
    let errno = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>())
        .and_then(io::Error::raw_os_error);
    let advice = match errno {
        Some(libc::EROFS) => {
            "; tracefs is mounted read-only: run `mount -o remount,rw /sys/kernel/tracing` as root"
        }
        Some(libc::ENOENT) => "; this kernel is built without CONFIG_KPROBE_EVENTS",
        _ => "",
    };
    unsupported(format!("{error}{cause}{advice}"))
}

/// The process that an event belongs to, as the name of its group says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    /// The inode of its pid namespace: elsewhere the pid means nothing.
    namespace: u64,
    pid: u32,
    /// In clock ticks since boot: pids are used again.
    start: u64,
}

impl Owner {
    fn this() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let namespace = fs::metadata("/proc/self/ns/pid")?.ino();
        let pid = stat.split(' ').next().and_then(|pid| pid.parse().ok());
        pid.zip(start_of_living(&stat))
            .map(|(pid, start)| Self {
                namespace,
                pid,
                start,
            })
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn of_group(group: &str) -> Option<Self> {
        let mut parts = group.strip_prefix("ksyms_")?.split('_');
        let owner = Self {
            namespace: u64::from_str_radix(parts.next()?, 16).ok()?,
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(owner)
    }

    fn group(self) -> String {
        let Self {
            namespace,
            pid,
            start,
        } = self;
        format!("ksyms_{namespace:x}_{pid}_{start}")
    }

    /// Whether it has ended. That of another namespace is not known to have.
    fn is_dead(self, this: Self) -> bool {
        self.namespace == this.namespace
            && match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
                Ok(stat) => start_of_living(&stat) != Some(self.start),
                Err(error) => matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)),
            }
    }
}

/// The start time in a `/proc/PID/stat`, unless the process is a zombie.
fn start_of_living(stat: &str) -> Option<u64> {
    // The name before it may hold anything (proc(5)).
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    // Field 22; the state is field 3.
    let ticks = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| ticks.parse().ok())?
}

/// A trace event of ours, its probes defined in tracefs for as long as it
/// lives.
#[derive(Debug)]
pub(super) struct TraceEvent {
    tracefs: Tracefs,
    /// [`DEFINITIONS`], to be written to.
    file: File,
    owner: Owner,
    group: String,
    /// Unlike the group's, no other event has its name: [`PROFILE`] does not
    /// tell the group.
    event: String,
    /// Whether something is to be cleared.
    defined: bool,
}

impl TraceEvent {
    fn new() -> Result<Self, AttachError> {
        static EVENTS: AtomicU32 = AtomicU32::new(0);
        let tracefs = Tracefs::open().map_err(|error| no_tracefs(&error))?;
        let file = tracefs
            .open_file(DEFINITIONS, OFlags::WRONLY | OFlags::APPEND)
            .map_err(|error| no_tracefs(&error))?;
        let owner = Owner::this().map_err(|error| {
            unsupported(format!(
                "reading /proc/self failed: {error}; is procfs mounted?"
            ))
        })?;
        let event = EVENTS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            tracefs,
            file,
            owner,
            group: owner.group(),
            event: format!("hit_{}_{}_{event}", owner.pid, owner.start),
            defined: false,
        })
    }

    /// One system call, unlike `write_all`: the kernel answers for all lines.
    fn write(&self, lines: &str) -> io::Result<()> {
        (&self.file).write(lines.as_bytes()).map(drop)
    }

    fn read(&self, name: &str) -> Result<String, AttachError> {
        let text = self
            .tracefs
            .read(name)
            .map_err(|error| no_tracefs(&error))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Clears what dead processes have left.
    fn sweep(&self, control: &mut Control<'_>) -> Result<(), AttachError> {
        let definitions = self.read(DEFINITIONS)?;
        let stale: Vec<&str> = definitions
            .lines()
            .filter_map(event_of_line)
            .filter(|event| {
                event
                    .split_once('/')
                    .and_then(|(group, _)| Owner::of_group(group))
                    .is_some_and(|owner| owner.is_dead(self.owner))
            })
            .collect();
        if stale.is_empty() {
            return Ok(());
        }
        (control.notice)(&format!(
            "clearing {} probes that a killed run has left in tracefs",
            stale.len()
        ));
        for event in stale.into_iter().collect::<BTreeSet<_>>() {
            // Who else sweeps may have been faster; who still uses it, another
            // tool, keeps it.
            let _ = self.write(&format!("-:{event}\n"));
        }
        Ok(())
    }

    /// Defines a probe for each of `targets`, none of them armed; returns at how
    /// many it was interrupted.
    fn define(
        &mut self,
        targets: &[u64],
        refused: &mut Vec<Refusal>,
        control: &mut Control<'_>,
    ) -> Result<usize, AttachError> {
        let lines: Vec<String> = targets
            .iter()
            .enumerate()
            .map(|(slot, address)| self.line(slot, *address))
            .collect();
        let mut done = 0;
        while done < lines.len() && !control.is_interrupted() {
            let batch = batch(&lines[done..]);
            self.defined = true;
            if self.write(&batch.concat()).is_err() {
                // It does not tell which line it did not like. Those before are
                // there, and known already when they are written again.
                for (slot, line) in (done..).zip(batch) {
                    match self.write(line) {
                        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                            refused.push(refusal(slot, error, targets.len())?);
                        }
                        _ => {}
                    }
                }
            }
            done += batch.len();
            (control.progress)(done);
        }
        Ok(done)
    }

    /// The argument is there to tell probes apart: two of one event at addresses
    /// are the same to the kernel if their arguments are
    /// (`trace_kprobe_has_same_kprobe`, kernel/trace). It is
    /// never fetched, as the program lets nobody else have the hit.
    fn line(&self, slot: usize, address: u64) -> String {
        let Self { group, event, .. } = self;
        format!("p:{group}/{event} {address:#x} slot=\\{slot}\n")
    }

    /// Arms all that is defined.
    fn arm(&self, program: &Program, functions: usize) -> Result<OwnedFd, AttachError> {
        let path = format!("events/{}/{}/id", self.group, self.event);
        let id = self.read(&path)?;
        let id = id
            .trim()
            .parse()
            .map_err(|_| unsupported(format!("{path} holds {id:?}, not a number")))?;
        sys::perf_event_open_tracepoint(id)
            .and_then(|event| run_on(program, event, 0))
            .map_err(|source| match source.errno() {
                libc::EPERM | libc::EACCES => not_permitted(&source),
                libc::EMFILE | libc::ENFILE | libc::ENOMEM => AttachError::Refused {
                    backend: NAME,
                    functions,
                    source,
                    advice: "select fewer functions, or raise the limit it names",
                },
                _ => unsupported(format!(
                    "arming all probes at once: {source}; --mode perf leaves only those out that cannot be armed"
                )),
            })
    }

    /// Hits that its probes have lost since they were defined.
    pub(super) fn missed(&self) -> Result<u64, SyscallError> {
        let profile = self.tracefs.read(PROFILE).map_err(|error| SyscallError {
            call: "read(kprobe_profile)",
            error: io::Error::other(error),
        })?;
        Ok(missed_of(&self.event, &String::from_utf8_lossy(&profile)))
    }

    /// Clears the definitions and tells how long that took.
    pub(super) fn clear(mut self) -> Result<Duration, AttachError> {
        let start = Instant::now();
        self.undefine()?;
        Ok(start.elapsed())
    }

    fn undefine(&mut self) -> Result<(), AttachError> {
        if !self.defined {
            return Ok(());
        }
        self.defined = false;
        let event = format!("{}/{}", self.group, self.event);
        match self.write(&format!("-:{event}\n")) {
            // All of its lines were refused.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(|source| AttachError::Clear { event, source }),
        }
    }
}

impl Drop for TraceEvent {
    fn drop(&mut self) {
        // What stays is disarmed, and the next run's to sweep.
        let _ = self.undefine();
    }
}

/// What to make of a line that the kernel refuses.
fn refusal(slot: usize, error: io::Error, functions: usize) -> Result<Refusal, AttachError> {
    let errno = error.raw_os_error().unwrap_or(0);
    let source = SyscallError {
        call: "write(kprobe_events)",
        error,
    };
    match errno {
        libc::EPERM | libc::EACCES => Err(not_permitted(&source)),
        libc::ENOMEM | libc::ENOSPC => Err(AttachError::Refused {
            backend: NAME,
            functions,
            source,
            advice: "select fewer functions",
        }),
        errno => Ok(Refusal { slot, errno }),
    }
}

fn not_permitted(source: &SyscallError) -> AttachError {
    AttachError::NotPermitted {
        backend: NAME,
        reason: format!(
            "{source}; run as root (sudo), or with CAP_BPF and CAP_PERFMON; lockdown=confidentiality forbids kprobes to everyone"
        ),
    }
}

/// As many of `lines` as fit in one write, at least one.
fn batch(lines: &[String]) -> &[String] {
    let mut bytes = 0;
    let fit = lines.iter().take_while(|line| {
        bytes += line.len();
        bytes <= BATCH_BYTES
    });
    &lines[..fit.count().max(1)]
}

/// `GROUP/EVENT` of a line like `p:GROUP/EVENT SYMBOL ARGUMENT…`.
fn event_of_line(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    rest.split(' ').next()
}

/// The sum of the last column of an event's lines, one a probe.
fn missed_of(event: &str, profile: &str) -> u64 {
    profile
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next()? == event).then_some(words)
        })
        .filter_map(|words| words.last()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_names_its_owner() {
        let owner = Owner::this().unwrap();
        assert_eq!(owner.pid, std::process::id());
        assert_eq!(Owner::of_group(&owner.group()), Some(owner));
        assert!(owner.group().len() < 64, "MAX_EVENT_NAME_LEN");
        for group in [
            "kprobes",
            "ksyms_",
            "ksyms_1_2",
            "ksyms_1_2_3_4",
            "ksyms_1_x_3",
        ] {
            assert_eq!(Owner::of_group(group), None, "{group}");
        }
    }

    #[test]
    fn only_the_dead_of_this_namespace_are_dead() {
        let this = Owner::this().unwrap();
        assert!(!this.is_dead(this));
        let reused = Owner {
            start: this.start + 1,
            ..this
        };
        assert!(reused.is_dead(this));
        let gone = Owner {
            pid: u32::MAX,
            ..this
        };
        assert!(gone.is_dead(this));
        let elsewhere = Owner {
            namespace: this.namespace + 1,
            ..gone
        };
        assert!(!elsewhere.is_dead(this));
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 777 0";
        assert_eq!(start_of_living(&format!("1 (a) b) S {rest}")), Some(777));
        assert_eq!(start_of_living(&format!("1 (a) Z {rest}")), None);
        assert_eq!(start_of_living("1 (a) S 1 2"), None);
        assert_eq!(start_of_living(""), None);
    }

    #[test]
    fn batches_fit_in_one_write() {
        let lines = vec!["x".repeat(1000); 9];
        assert_eq!(batch(&lines).len(), 4);
        assert_eq!(batch(&lines[8..]).len(), 1);
        assert_eq!(batch(&["x".repeat(5000)]).len(), 1);
    }

    #[test]
    fn lines_of_tracefs_are_understood() {
        let line = "p:ksyms_1_2_3/hit_2_3_0 0xffffffff81000000 slot=\\0";
        assert_eq!(event_of_line(line), Some("ksyms_1_2_3/hit_2_3_0"));
        assert_eq!(event_of_line("nonsense"), None);
        let profile = "  hit_2_3_0    10   1\n  hit_2_3_01   5  5\n  hit_2_3_0   7   2\n\n";
        assert_eq!(missed_of("hit_2_3_0", profile), 3);
    }
}
