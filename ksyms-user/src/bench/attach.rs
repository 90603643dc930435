//! What attaching costs beside the system call it cannot do without.
//!
//! The floor is a bare `BPF_LINK_CREATE` with the same program at the same
//! addresses, its arrays made beforehand and without the cookies that tell the
//! functions apart; `floor+cookies` hands the kernel those as well.

use std::{sync::atomic::AtomicBool, time::Instant};

use super::{Bench, Ratio, Row, Subject, Summary};
use crate::{
    attach::{self, AttachError, Control, Floor, Mode, Options},
    report::nanoseconds,
    source::Kernel,
};

/// What is measured.
#[derive(Debug, Clone)]
pub struct AttachBench {
    /// The numbers of functions.
    pub counts: Vec<usize>,
    /// Samples of each figure, after one that is thrown away.
    pub samples: usize,
    /// Which way to attach.
    pub mode: Mode,
}

/// The samples of one count, in nanoseconds.
#[derive(Default)]
struct Samples {
    load: Vec<u64>,
    attach: Vec<u64>,
    detach: Vec<u64>,
    floor: Floors,
    floor_with_cookies: Floors,
}

#[derive(Default)]
struct Floors {
    attach: Vec<u64>,
    detach: Vec<u64>,
}

/// Attaches `counts` functions of `targets` at a time, spread evenly, and the
/// floor in turn with it.
///
/// Counts above the number of targets are cut to it, and each is measured once.
/// Rows:
/// `<backend>/<count>/<load|attach|detach>`, `floor/<count>/<attach|detach>` and
/// `floor+cookies/…`; the floors are absent where there is no kprobe.multi.
///
/// # Errors
///
/// When attaching fails, or the kernel refuses one of the functions.
pub fn attach(targets: &[u64], bench: &AttachBench) -> Result<Bench, AttachError> {
    let mut rows = Vec::new();
    let mut counts: Vec<usize> = bench
        .counts
        .iter()
        .map(|&count| count.min(targets.len()))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let targets = spread(targets, count);
        let mut samples = Samples::default();
        let mut backend = bench.mode;
        for sample in 0..=bench.samples {
            let mut one = Samples::default();
            backend = one.take(&targets, bench.mode)?;
            // The first warms up: caches, and what the kernel allocates once.
            if sample > 0 {
                samples.append(one);
            }
        }
        samples.rows(backend, targets.len(), &mut rows);
    }
    Ok(Bench::new(Subject::Attach, Kernel::running(), rows))
}

/// `count` of `targets`, evenly spread; all when there are not more.
fn spread(targets: &[u64], count: usize) -> Vec<u64> {
    let count = count.min(targets.len());
    (0..count)
        .map(|index| targets[index * targets.len() / count])
        .collect()
}

impl Samples {
    /// Attaches and detaches everything once; says which way it went.
    fn take(&mut self, targets: &[u64], mode: Mode) -> Result<Mode, AttachError> {
        let interrupted = AtomicBool::new(false);
        let mut control = Control {
            interrupted: &interrupted,
            progress: &mut |_| {},
            notice: &mut |_| {},
        };
        let options = Options { mode, log: false };
        let attached = attach::attach(targets, options, &mut control)?;
        let backend = attached.backend();
        if let Some(refusal) = attached.refused().first() {
            // The figures would be of fewer functions than they say.
            return Err(refusal.of(backend, attached.refused().len()));
        }
        self.load.push(nanoseconds(attached.cost().load));
        self.attach.push(nanoseconds(attached.cost().attach));
        let detached = attached.detach();
        self.detach.push(nanoseconds(detached.took()));
        detached.clear()?;
        if backend == Mode::Multi {
            let floor = Floor::new(targets)?;
            self.floor.take(&floor, false)?;
            self.floor_with_cookies.take(&floor, true)?;
        }
        Ok(backend)
    }

    fn append(&mut self, mut other: Self) {
        self.load.append(&mut other.load);
        self.attach.append(&mut other.attach);
        self.detach.append(&mut other.detach);
        self.floor.append(other.floor);
        self.floor_with_cookies.append(other.floor_with_cookies);
    }

    fn rows(self, backend: Mode, count: usize, rows: &mut Vec<Row>) {
        let floor_attach = Summary::of_whole(&self.floor.attach);
        let floor_detach = Summary::of_whole(&self.floor.detach);
        let mut row = |who: &str, what: &str, summary: Option<Summary>, floor: Option<Summary>| {
            rows.extend(summary.map(|summary| {
                Row {
                    name: format!("{who}/{count}/{what}"),
                    unit: "ns",
                    summary,
                    ratio: floor
                        .and_then(|floor| summary.ratio_to(&floor))
                        .map(Ratio::ToFloor),
                }
            }));
        };
        let backend = backend.as_str();
        row(backend, "load", Summary::of_whole(&self.load), None);
        row(
            backend,
            "attach",
            Summary::of_whole(&self.attach),
            floor_attach,
        );
        row(
            backend,
            "detach",
            Summary::of_whole(&self.detach),
            floor_detach,
        );
        row("floor", "attach", floor_attach, None);
        row("floor", "detach", floor_detach, None);
        let Floors { attach, detach } = self.floor_with_cookies;
        row(
            "floor+cookies",
            "attach",
            Summary::of_whole(&attach),
            floor_attach,
        );
        row(
            "floor+cookies",
            "detach",
            Summary::of_whole(&detach),
            floor_detach,
        );
    }
}

impl Floors {
    fn take(&mut self, floor: &Floor, cookies: bool) -> Result<(), AttachError> {
        let start = Instant::now();
        let link = floor.link(cookies)?;
        self.attach.push(nanoseconds(start.elapsed()));
        let start = Instant::now();
        drop(link);
        self.detach.push(nanoseconds(start.elapsed()));
        Ok(())
    }

    fn append(&mut self, mut other: Self) {
        self.attach.append(&mut other.attach);
        self.detach.append(&mut other.detach);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_spread_evenly_and_never_repeat() {
        let all: Vec<u64> = (0..10).collect();
        assert_eq!(spread(&all, 5), [0, 2, 4, 6, 8]);
        assert_eq!(spread(&all, 3), [0, 3, 6]);
        assert_eq!(spread(&all, 10), all);
        assert_eq!(spread(&all, 99), all);
        assert!(spread(&[], 4).is_empty());
    }
}
