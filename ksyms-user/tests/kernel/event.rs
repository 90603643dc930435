//! One trace event of many probes: what is counted, and that nothing of ours
//! stays in tracefs, whatever happens.

use std::{fs, process::Command};

use libtest_mimic::Trial;
use rustix::{
    mount::{MountFlags, mount_remount},
    process::Signal,
};
use serde_json::Value;

use crate::harness::{
    Kernel, Outcome, Running, blacklisted_function, definitions, hits, kprobes, ksyms_attach, list,
    number, run, start, test, text, wait_for,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("every_kernel::event_exact_counts", exact_counts),
        test("event::many_functions", many),
        test("event::one_bad_address_among_many", one_bad),
        test("event::only_bad_addresses", only_bad),
        test("event::a_killed_run_is_swept", killed),
        test("event::two_instances_at_once", two_at_once),
        test("event::int_while_defining", int_while_defining),
        test("event::term_while_counting", term_while_counting),
        test("event::clears_after_the_result", result_first),
        test("event::tracefs_is_read_only", read_only),
    ]
}

/// ksyms-attach with one trace event for `patterns`, its result a document.
fn event(patterns: &[&str]) -> Command {
    let mut command = ksyms_attach(["--mode", "event", "--format", "json", "-v"]);
    for pattern in patterns {
        command.args(["--pattern", pattern]);
    }
    command
}

const GETPPID: &str = "__x64_sys_getppid";

fn getppid(calls: &str) -> Command {
    let mut command = Command::new("ksyms-workload");
    command.args(["getppid", "--calls", calls]);
    command
}

#[track_caller]
fn counts_getppid(command: &mut Command, calls: &str) -> Value {
    let finished = run(command.args(["--", "ksyms-workload", "getppid", "--calls", calls]));
    let document = finished.exits(0).json();
    assert_eq!(text(&document, "/backend"), "event");
    assert_eq!(hits(&document, GETPPID).to_string(), calls);
    assert_eq!(definitions(), 0);
    document
}

fn exact_counts(_: Kernel) {
    let document = counts_getppid(&mut event(&["__x64_sys_getp*"]), "1234");
    assert!(number(&document, "/targets/attached") > 3);
    assert_eq!(hits(&document, "__x64_sys_getpriority"), 0);
    assert_eq!(number(&document, "/missed"), 0);
}

fn many(_: Kernel) {
    // More lines than one write takes.
    let document = counts_getppid(&mut event(&["__x64_sys_[g-s]*"]), "100");
    assert!(number(&document, "/targets/attached") > 100);
}

fn one_bad(_: Kernel) {
    let bad = blacklisted_function().expect("a blacklisted function that ftrace knows");
    let document = counts_getppid(&mut event(&["__x64_sys_getp*", &bad]), "50");
    assert!(number(&document, "/targets/attached") > 3);
    let rejected: Vec<_> = list(&document, "/rejected")
        .iter()
        .filter(|rejected| text(rejected, "/name") == bad)
        .collect();
    assert_eq!(rejected.len(), 1, "{document:#}");
    assert_eq!(text(rejected[0], "/reason"), "blacklisted");
}

fn only_bad(_: Kernel) {
    let bad = blacklisted_function().expect("a blacklisted function that ftrace knows");
    run(event(&[&bad]).args(["--duration", "0s"]))
        .exits(3)
        .says([&bad, "kprobes/blacklist"])
        .prints_nothing();
    assert_eq!(definitions(), 0);
}

fn counting(patterns: &[&str]) -> Running {
    let mut running = start(&mut event(patterns));
    running.wait_until_counting();
    running
}

fn killed(_: Kernel) {
    let running = counting(&["__x64_sys_getp*"]);
    running.signal(Signal::KILL);
    running.finish();
    wait_for("taking off", || !fires());
    let left = definitions();
    assert!(left > 3, "{left} definitions");
    let finished = run(event(&[GETPPID]).args(["--duration", "0s"]))
        .exits(0)
        .says([&format!("clearing {left} probes")]);
    assert_eq!(number(&finished.json(), "/targets/attached"), 1);
    assert_eq!(definitions(), 0);
}

/// Whether a probe is armed; those only defined are listed as disabled.
fn fires() -> bool {
    fs::read_to_string("/sys/kernel/debug/kprobes/list")
        .expect("debugfs")
        .lines()
        .any(|line| !line.contains("[DISABLED]"))
}

fn two_at_once(_: Kernel) {
    let long = counting(&["__x64_sys_getp*"]);
    // Starts, counts, clears and sweeps meanwhile.
    let document =
        run(event(&["__x64_sys_getp*"]).args(["--", "ksyms-workload", "getppid", "--calls", "20"]))
            .exits(0)
            .json();
    assert_eq!(hits(&document, GETPPID), 20);
    run(&mut getppid("7")).exits(0);
    long.signal(Signal::INT);
    let document = long.finish().exits(0).json();
    assert_eq!(hits(&document, GETPPID), 27);
    assert_eq!(definitions(), 0);
}

fn int_while_defining(_: Kernel) {
    let running = start(&mut event(&["tcp_*"]));
    wait_for("defining", || kprobes() > 0);
    running.signal(Signal::INT);
    let finished = running.finish().exits(1).says(["interrupted"]);
    let document = finished.json();
    assert_eq!(number(&document, "/targets/attached"), 0);
    assert!(
        list(&document, "/rejected")
            .iter()
            .any(|rejected| text(rejected, "/reason") == "interrupted")
    );
    assert_eq!(definitions(), 0);
}

fn term_while_counting(_: Kernel) {
    let running = counting(&["tcp_v4_*"]);
    running.signal(Signal::TERM);
    running.finish().exits(0).says(["definitions cleared"]);
    assert_eq!(definitions(), 0);
}

fn result_first(_: Kernel) {
    use std::io::Read as _;

    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = event(&["tcp_*"]);
    let mut child = command
        .args(["--duration", "0s"])
        .stdout(writer)
        .spawn()
        .expect("the program can be started");
    drop(command);
    let mut first = [0];
    reader.read_exact(&mut first).expect("a result");
    // The whole kernel waits several times while so many are cleared.
    assert!(definitions() > 0, "cleared before the result was out");
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).expect("a result");
    assert!(child.wait().expect("a child of ours").success());
    assert_eq!(definitions(), 0);
}

fn read_only(kernel: Kernel) -> Outcome {
    let tracing = "/sys/kernel/tracing";
    mount_remount(tracing, MountFlags::BIND | MountFlags::RDONLY, "")?;
    let forced = run(event(&[GETPPID]).args(["--duration", "0s"]));
    let picked = run(&mut ksyms_attach([
        "--pattern",
        GETPPID,
        "--format",
        "json",
        "--duration",
        "0s",
    ]));
    mount_remount(tracing, MountFlags::BIND, "")?;
    forced
        .exits(3)
        .says(["kprobe_events", "read-only", "remount,rw"])
        .prints_nothing();
    let document = picked.exits(0).json();
    let backend = if kernel.has_multi() { "multi" } else { "perf" };
    assert_eq!(text(&document, "/backend"), backend);
    Ok(())
}
