//! On a kernel booted with `lockdown=confidentiality`.

use std::fs;

use libtest_mimic::Trial;

use crate::harness::{Kernel, Outcome, ksyms_attach, list, run, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("lockdown::attaching_says_lockdown", attaching),
        test("lockdown::listing_still_works", listing),
    ]
}

fn is_locked_down() -> Outcome {
    let state = fs::read_to_string("/sys/kernel/security/lockdown")?;
    assert!(state.contains("[confidentiality]"), "{state}");
    Ok(())
}

fn attaching(_: Kernel) -> Outcome {
    is_locked_down()?;
    run(&mut ksyms_attach([
        "--pattern",
        "tcp_*",
        "--duration",
        "0s",
    ]))
    .exits(3)
    .says(["locked down", "confidentiality"])
    .prints_nothing();
    Ok(())
}

fn listing(_: Kernel) -> Outcome {
    is_locked_down()?;
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
    Ok(())
}
