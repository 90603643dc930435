//! On a kernel booted with `lockdown=confidentiality`.

use libtest_mimic::Trial;

use crate::harness::{Kernel, is_locked_down, ksyms_attach, list, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("lockdown::attaching_says_lockdown", attaching),
        test("lockdown::listing_still_works", listing),
    ]
}

fn attaching(_: Kernel) {
    assert!(is_locked_down());
    run(&mut ksyms_attach([
        "--pattern",
        "tcp_*",
        "--duration",
        "0s",
    ]))
    .exits(3)
    .says(["locked down", "confidentiality"])
    .prints_nothing();
}

fn listing(_: Kernel) {
    assert!(is_locked_down());
    let finished = run(&mut ksyms_attach([
        "--list",
        "--pattern",
        "tcp_*",
        "--format",
        "json",
    ]))
    .exits(0)
    .says(["not known", "locked down"]);
    let document = finished.json();
    let functions = list(&document, "/functions");
    assert!(functions.len() > 300);
    assert!(
        functions
            .iter()
            .any(|function| function.get("attachable").is_none())
    );
}
