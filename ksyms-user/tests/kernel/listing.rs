//! `--list`: what would be attached, and what not and why.

use libtest_mimic::Trial;

use crate::harness::{Kernel, ksyms_attach, list, listed, number, run, test, text};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("listing::an_alias_is_attachable", alias),
        test("listing::everything_has_a_verdict", everything),
        test("listing::what_is_left_out_is_explained", explained),
    ]
}

fn alias(_: Kernel) {
    // tracefs lists only __do_sys_getpid, on IBT kernels at its address + 4.
    let document = listed("__x64_sys_getpid");
    assert_eq!(text(&document, "/schema"), "ksyms-list/1");
    let function = &list(&document, "/functions")[0];
    assert_eq!(text(function, "/name"), "__x64_sys_getpid");
    assert_eq!(function["attachable"], true);
    let aliases = list(function, "/aliases");
    assert!(aliases.iter().any(|alias| alias == "__do_sys_getpid"));
}

fn everything(_: Kernel) {
    let document = listed("*");
    let functions = list(&document, "/functions");
    assert_eq!(
        functions.len() as u64,
        number(&document, "/targets/matched")
    );
    let attachable = functions
        .iter()
        .filter(|function| function["attachable"] == true)
        .count() as u64;
    assert_eq!(attachable, number(&document, "/targets/attachable"));
    assert!(attachable > 30_000, "{attachable} attachable");
    for function in functions {
        let verdict = function["attachable"].as_bool().expect("a verdict");
        assert_eq!(function.get("reason").is_none(), verdict, "{function:#}");
        assert_ne!(text(function, "/address"), "0x0000000000000000");
    }
}

fn explained(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--list",
        "--pattern",
        "jiffies",
        "--pattern",
        "tcp_v4_rcv",
    ]))
    .exits(0);
    assert!(finished.stdout.contains("no: data, not a function"));
    assert!(finished.stdout.contains("yes"));
    assert!(finished.stdout.contains("1 functions can be attached"));
}
