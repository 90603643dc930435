//! On more than one CPU at a time.

use std::process::Command;

use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::harness::{Kernel, counting_getppid, hits, number, start, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![test("smp::exact_counts_on_two_cpus", two_cpus)]
}

fn two_cpus(_: Kernel) {
    let mut running = start(&mut counting_getppid());
    running.wait_until_counting();
    let workload = |cpu| {
        let mut command = Command::new("ksyms-workload");
        command.args(["getppid", "--calls", "20000", "--cpu", cpu]);
        start(&mut command)
    };
    let both = [workload("0"), workload("1")];
    for workload in both {
        workload.finish().exits(0);
    }
    running.signal(Signal::INT);
    let document = running.finish().exits(0).json();
    assert_eq!(number(&document, "/kernel/cpus"), 2);
    assert_eq!(hits(&document, "__x64_sys_getppid"), 40_000);
}
