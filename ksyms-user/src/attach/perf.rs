//! One perf kprobe for each function, by address: for kernels without
//! kprobe.multi where tracefs cannot be used. Each costs a file descriptor and,
//! when closed, waits for all CPUs, so taking hundreds off takes seconds.
//! Several threads wait at the same time.

use std::{
    fs,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};

use ksyms_ebpf::cookie_of_slot;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    Armed, AttachError, Backend, Control, CountBy, Mode, Program, Refusal, Switch, links::WORKERS,
    load,
};
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
            kind: (program.by == CountBy::Cookie).then_some(LinkKind::PerfKprobe),
            ..Armed::default()
        };
        for (slot, result) in arm_all(program, pmu, targets, control)
            .into_iter()
            .enumerate()
        {
            match result {
                None => armed.interrupt(slot..=slot),
                Some(Ok(link)) => armed.links.push(link),
                Some(Err(source)) => match source.errno() {
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
        }
        Ok(armed)
    }
}

/// What became of one function: `None` when it was not tried.
type Tried = Option<Result<OwnedFd, SyscallError>>;

/// Arms each of `targets`, until interrupted or refused all further.
fn arm_all(program: &Program, pmu: u32, targets: &[u64], control: &mut Control<'_>) -> Vec<Tried> {
    let next = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let interrupted = control.interrupted;
    let work = |results: &Sender<(usize, Result<OwnedFd, SyscallError>)>| {
        while !interrupted.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            let slot = next.fetch_add(1, Ordering::Relaxed);
            let Some(&address) = targets.get(slot) else {
                return;
            };
            let result = arm_one(program, pmu, slot, address);
            if result.as_ref().is_err_and(|error| is_fatal(error.errno())) {
                over.store(true, Ordering::Relaxed);
            }
            // The receiver stays until the last sender has gone.
            let _ = results.send((slot, result));
        }
    };
    let mut tried: Vec<Tried> = targets.iter().map(|_| None).collect();
    let (sender, results) = channel();
    thread::scope(|scope| {
        let mut workers = 0;
        for _ in 0..WORKERS.min(targets.len()) {
            let sender = sender.clone();
            let work = &work;
            if thread::Builder::new()
                .spawn_scoped(scope, move || work(&sender))
                .is_err()
            {
                break;
            }
            workers += 1;
        }
        if workers == 0 {
            work(&sender);
        }
        drop(sender);
        for (done, (slot, result)) in (1..).zip(results) {
            tried[slot] = Some(result);
            (control.progress)(done);
        }
    });
    tried
}

/// Whether the kernel would answer the same to any further function.
fn is_fatal(errno: i32) -> bool {
    matches!(
        errno,
        libc::EPERM | libc::EACCES | libc::EMFILE | libc::ENFILE | libc::ENOMEM
    )
}

fn arm_one(
    program: &Program,
    pmu: u32,
    slot: usize,
    address: u64,
) -> Result<OwnedFd, SyscallError> {
    let slot = u32::try_from(slot).expect("fewer slots than counters");
    let event = sys::perf_event_open_kprobe(pmu, address)?;
    run_on(program, event, cookie_of_slot(slot))
}

/// Runs `program` on a perf event of kprobes until what it returns is closed.
pub(super) fn run_on(
    program: &Program,
    event: OwnedFd,
    cookie: u64,
) -> Result<OwnedFd, SyscallError> {
    match sys::link_create_perf(program.fd.as_fd(), event.as_fd(), cookie) {
        // Before 5.15 there are neither such links nor cookies.
        Err(error) if program.by == CountBy::Address && error.errno() == libc::EINVAL => {
            sys::perf_event_set_program(event.as_fd(), program.fd.as_fd())?;
            Ok(event)
        }
        result => result,
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
pub(super) const KPROBES: Switch = Switch {
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
