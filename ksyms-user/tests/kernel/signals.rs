//! Signals at any moment: the result is printed where there is one, and no probe
//! stays.

use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::harness::{
    Kernel, enabled_functions, kprobes, ksyms_attach, list, number, start, test, test_if, text,
    wait_for, without_multi,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("signals::int_ends_counting", int),
        test("signals::term_ends_counting", term),
        test("signals::int_while_attaching", int_while_attaching),
        test("signals::kill_while_attaching", kill_while_attaching),
        test("signals::kill_while_counting", kill_while_counting),
        test_if(
            "signals::int_while_arming_one_wide_link",
            without_multi,
            int_wide,
        ),
        test_if(
            "signals::kill_while_arming_one_wide_link",
            without_multi,
            kill_wide,
        ),
    ]
}

fn ends_counting(signal: Signal) {
    let mut running = start(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "-v",
    ]));
    running.wait_until_counting();
    running.signal(signal);
    let document = running.finish().exits(0).json();
    assert_eq!(number(&document, "/targets/attached"), 1);
}

fn int(_: Kernel) {
    ends_counting(Signal::INT);
}

fn term(_: Kernel) {
    ends_counting(Signal::TERM);
}

const PERF: [&str; 6] = ["--pattern", "tcp_*", "--mode", "perf", "--format", "json"];

fn int_while_attaching(_: Kernel) {
    let running = start(&mut ksyms_attach(PERF));
    wait_for("attaching", || kprobes() > 10);
    running.signal(Signal::INT);
    let finished = running.finish().exits(1).says(["interrupted"]);
    let document = finished.json();
    let attached = number(&document, "/targets/attached");
    let rejected = number(&document, "/targets/rejected");
    assert!(attached >= 10, "{attached} attached");
    assert!(attached < 300, "{attached} attached in spite of the signal");
    assert_eq!(number(&document, "/targets/matched"), attached + rejected);
    assert!(
        list(&document, "/rejected")
            .iter()
            .any(|rejected| text(rejected, "/reason") == "interrupted")
    );
}

fn kill_while_attaching(_: Kernel) {
    let running = start(&mut ksyms_attach(PERF));
    wait_for("attaching", || kprobes() > 5);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None);
}

fn kill_while_counting(kernel: Kernel) {
    let running = start(&mut ksyms_attach(["--pattern", "tcp_v4_*"]));
    let armed = || {
        if kernel.has_multi() {
            enabled_functions()
        } else {
            kprobes()
        }
    };
    wait_for("attaching", || armed() > 10);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None);
}

const WIDE: [&str; 4] = ["--pattern", "[a-m]*", "--format", "json"];

fn int_wide(_: Kernel) {
    let running = start(&mut ksyms_attach(WIDE));
    wait_for("arming", || enabled_functions() > 0);
    running.signal(Signal::INT);
    // The kernel arms them in one go, so all of them were attached, and whether
    // counting had begun by the time of the signal is chance.
    let finished = running.finish();
    assert!(matches!(finished.code, Some(0 | 1)), "{finished:?}");
    assert!(number(&finished.json(), "/targets/matched") > 10_000);
}

fn kill_wide(_: Kernel) {
    let running = start(&mut ksyms_attach(WIDE));
    wait_for("arming", || enabled_functions() > 0);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None);
}
