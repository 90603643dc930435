//! The main job: select, attach, count until something ends it, detach, report.

use std::{
    collections::HashSet,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ksyms::{
    attach::{
        AttachError, Attached, Control, Counts, Detached, EbpfLog, Mode, Options, Refusal, attach,
        reserve_files,
    },
    report::{Cost, Count, Report},
    select::{Reason, Rejected, Selection, Target},
    source::{Blacklist, Kernel},
};
use tokio::{
    task::spawn_blocking,
    time::{interval, sleep},
};

use crate::{
    Machine,
    args::Args,
    command::{self, Running},
    failure::Failure,
    output,
    signals::Stop,
    terminal::{Talk, say},
};

/// How often the eBPF side's log is looked at; it holds 128 KiB.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

/// From how many perf kprobes on detaching takes so long that it is announced.
const MANY_PROBES: usize = 100;

pub(crate) fn count(args: &Args, talk: Talk) -> Result<(), Failure> {
    let patterns = args.patterns()?;
    command::check(&args.command)?;

    let start = Instant::now();
    let machine = Machine::read(&args.symbols, &patterns, talk)?;
    let read = Instant::now();
    let selection = machine.select(&patterns)?;
    let cost = Cost {
        symbols: read - start,
        select: read.elapsed(),
        ..Cost::default()
    };
    talk.explain(&format!(
        "{} functions to attach, {} left out",
        selection.targets.len(),
        selection.rejected.len()
    ));
    // More would come as a panic of the runtime.
    reserve_files(0)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Running(format!("starting the runtime failed: {error}")))?;
    let result = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let counted = attach_and_count(args, talk, addresses(&selection)?, &mut stop).await?;
        let result = report(args, &selection, &counted, cost)?;
        // A reader that does not read must not keep us from ending.
        let limit = stop.count() + 1;
        stop.unless(limit, move || output(|out| out.write_all(&result)))
            .await??;
        clear(counted.detached, talk, &mut stop).await?;
        if counted.interrupted {
            return Err(Failure::Running(
                "interrupted while attaching, before counting began".to_owned(),
            ));
        }
        Ok(())
    });
    // A thread may still be busy for an impatient user.
    runtime.shutdown_background();
    result
}

/// Clears what detaching has left, now that the result is out.
async fn clear(detached: Detached, talk: Talk, stop: &mut Stop) -> Result<(), Failure> {
    let limit = stop.count().max(1) + 1;
    match stop.unless(limit, move || detached.clear()).await? {
        Ok(Some(took)) => talk.explain(&format!(
            "definitions cleared in {:.3} ms",
            took.as_secs_f64() * 1e3
        )),
        Ok(None) => {}
        // The result is right all the same.
        Err(error) => say(&error.to_string()),
    }
    Ok(())
}

/// The addresses to attach to; that there are none is a failure.
pub(crate) fn addresses(selection: &Selection<'_>) -> Result<Vec<u64>, Failure> {
    if selection.targets.is_empty() {
        return Err(Failure::NoMatch(format!(
            "none of the {} matching functions can be attached: {}",
            selection.rejected.len(),
            summary(&selection.rejected)
        )));
    }
    Ok(selection
        .targets
        .iter()
        .map(|target| target.address)
        .collect())
}

/// Puts the counts to their functions, and writes that down.
fn report(
    args: &Args,
    selection: &Selection<'_>,
    counted: &Counted,
    mut cost: Cost,
) -> Result<Vec<u8>, Failure> {
    cost.load = counted.cost.load;
    cost.attach = counted.cost.attach;
    cost.detach = counted.detached.took();
    if counted.stray > 0 {
        say(&format!(
            "{} hits belong to no attached function; run with -v to see where, and please report it",
            counted.stray
        ));
    }
    let Selection {
        targets, rejected, ..
    } = selection;
    let mut rejected = rejected.clone();
    let refused = reject(targets, &counted.refused, &mut rejected);
    let counts: Vec<Count<'_>> = targets
        .iter()
        .zip(&counted.hits)
        .enumerate()
        .filter(|(slot, _)| !refused.contains(slot))
        .map(|(_, (target, &hits))| Count {
            name: target.name,
            module: target.module,
            address: target.address,
            aliases: &target.aliases,
            hits,
        })
        .collect();
    if counts.is_empty() && !counted.interrupted {
        return Err(Failure::Environment(format!(
            "the kernel refused every function: {}",
            summary(&rejected)
        )));
    }
    let report = Report {
        kernel: &Kernel::running(),
        backend: counted.backend,
        rejected: &rejected,
        cost,
        counts,
        missed: counted.missed,
    };
    let mut out = Vec::new();
    report
        .write(args.format.into(), args.top(), &mut out)
        .map_err(Failure::Output)?;
    Ok(out)
}

/// Adds what the kernel refused to `rejected`, and returns those slots.
fn reject<'a>(
    targets: &[Target<'a>],
    refused: &[Refusal],
    rejected: &mut Vec<Rejected<'a>>,
) -> HashSet<usize> {
    // Only needed to tell one reason from another.
    let blacklist = if refused.iter().any(|refusal| refusal.errno != 0) {
        Blacklist::read().ok().flatten()
    } else {
        None
    };
    rejected.extend(refused.iter().map(|refusal| {
        let target = &targets[refusal.slot];
        Rejected {
            address: target.address,
            name: target.name,
            module: target.module,
            reason: match refusal.errno {
                0 => Reason::Interrupted,
                _ if blacklist
                    .as_ref()
                    .is_some_and(|list| list.contains(target.address)) =>
                {
                    Reason::Blacklisted
                }
                errno => Reason::KernelRefused { errno },
            },
        }
    }));
    refused.iter().map(|refusal| refusal.slot).collect()
}

/// The first few and why.
fn summary(rejected: &[Rejected<'_>]) -> String {
    const SHOWN: usize = 5;
    let mut parts: Vec<String> = rejected
        .iter()
        .take(SHOWN)
        .map(|rejected| format!("{} ({})", rejected.name, rejected.reason))
        .collect();
    if rejected.len() > SHOWN {
        parts.push(format!("and {} more; see --list", rejected.len() - SHOWN));
    }
    parts.join(", ")
}

/// What one run of attaching, counting and detaching gave.
struct Counted {
    backend: &'static str,
    refused: Vec<Refusal>,
    hits: Vec<u64>,
    stray: u64,
    missed: Option<u64>,
    cost: ksyms::attach::Cost,
    detached: Detached,
    interrupted: bool,
}

async fn attach_and_count(
    args: &Args,
    talk: Talk,
    addresses: Vec<u64>,
    stop: &mut Stop,
) -> Result<Counted, Failure> {
    let options = Options {
        mode: args.mode,
        log: talk.is_verbose(),
    };
    let (attached, interrupted) = attach_interruptibly(addresses, options, stop, talk).await?;
    talk.explain(&format!("attached with {}", attached.backend()));

    let mut log = open_log(&attached, talk);
    if !interrupted {
        let mut running = Running::start(&args.command)?;
        tokio::select! {
            () = stop.wait() => {}
            () = timer(args.duration) => {}
            () = ended(&mut running) => {}
            () = flush(&mut log) => {}
        }
        // What COMMAND did is counted up to here.
        let counts = stop_counting(&attached)?;
        if let Some(running) = running {
            running.finish(talk).await;
        }
        return detach(attached, counts, false, talk, log, stop).await;
    }
    let counts = stop_counting(&attached)?;
    detach(attached, counts, true, talk, log, stop).await
}

fn stop_counting(attached: &Attached) -> Result<Counts, Failure> {
    attached
        .stop()
        .map_err(|error| Failure::Running(format!("stopping to count: {error}")))
}

async fn detach(
    attached: Attached,
    counts: Counts,
    interrupted: bool,
    talk: Talk,
    log: Option<EbpfLog<Talk>>,
    stop: &mut Stop,
) -> Result<Counted, Failure> {
    let missed = attached.missed().unwrap_or_else(|error| {
        talk.explain(&format!("missed hits are not known: {error}"));
        None
    });
    if let Some(mut log) = log {
        log.flush();
    }
    let (backend, cost, refused) = (
        attached.backend(),
        attached.cost(),
        attached.refused().to_vec(),
    );
    let probes = counts.hits.len() - refused.len();
    if backend == Mode::Perf && probes > MANY_PROBES {
        say(&format!(
            "detaching {probes} perf kprobes takes seconds; a further Ctrl-C leaves that to the kernel, without a result"
        ));
    } else {
        talk.explain("detaching");
    }
    // The first signal only ends counting, even when that has ended by itself.
    let limit = stop.count().max(1) + 1;
    let detached = stop.unless(limit, move || attached.detach()).await?;
    Ok(Counted {
        backend: backend.as_str(),
        refused,
        hits: counts.hits,
        stray: counts.stray,
        missed,
        cost,
        detached,
        interrupted,
    })
}

/// Attaches on another thread, so that a signal can stop it half-way.
async fn attach_interruptibly(
    addresses: Vec<u64>,
    options: Options,
    stop: &mut Stop,
    talk: Talk,
) -> Result<(Attached, bool), Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut attaching = {
        let interrupted = Arc::clone(&interrupted);
        spawn_blocking(move || -> Result<Attached, AttachError> {
            let all = addresses.len();
            let mut control = Control {
                interrupted: &interrupted,
                progress: &mut |done| talk.progress("attaching", done, all),
                notice: &mut |text| say(text),
            };
            attach(&addresses, options, &mut control)
        })
    };
    let attached = tokio::select! {
        attached = &mut attaching => attached,
        () = stop.wait() => {
            interrupted.store(true, Ordering::Relaxed);
            attaching.await
        }
    };
    let attached = attached
        .map_err(|error| Failure::Running(format!("the attaching thread failed: {error}")))??;
    Ok((attached, interrupted.load(Ordering::Relaxed)))
}

async fn timer(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => pending().await,
    }
}

async fn ended(running: &mut Option<Running>) {
    match running {
        // How it ended is told later, and whatever it is, it has ended.
        Some(running) => drop(running.wait().await),
        None => pending().await,
    }
}

fn open_log(attached: &Attached, talk: Talk) -> Option<EbpfLog<Talk>> {
    if !talk.is_verbose() {
        return None;
    }
    let log = attached.log(talk);
    log.map_err(|error| talk.explain(&error.to_string())).ok()
}

/// Passes on what the eBPF side says, forever.
async fn flush(log: &mut Option<EbpfLog<Talk>>) {
    let Some(log) = log else {
        return pending().await;
    };
    let mut ticks = interval(LOG_INTERVAL);
    loop {
        ticks.tick().await;
        log.flush();
    }
}
