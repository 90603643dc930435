//! All functions of a kernel at once.

use libtest_mimic::Trial;

use crate::harness::{Kernel, hits, ksyms_attach, list, number, run, test_if, text, without_multi};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_if("wide::all_functions", without_multi, all),
        test_if("wide::bench_attach", without_multi, bench),
    ]
}

fn all(_: Kernel) {
    let document = run(&mut ksyms_attach([
        "--pattern",
        "*",
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "1000",
    ]))
    .exits(0)
    .json();
    assert!(number(&document, "/targets/attached") > 35_000);
    assert_eq!(
        number(&document, "/targets/attached"),
        list(&document, "/counts").len() as u64
    );
    // Its first name by address order is what a `*` shows.
    let name = list(&document, "/counts")
        .iter()
        .map(|count| text(count, "/name"))
        .find(|name| name.ends_with("sys_getppid"))
        .expect("getppid is attached");
    assert_eq!(hits(&document, name), 1_000);
}

fn bench(_: Kernel) {
    let document = run(&mut ksyms_attach([
        "bench",
        "attach",
        "--counts",
        "50,500",
        "--samples",
        "2",
        "--format",
        "json",
    ]))
    .exits(0)
    .json();
    assert_eq!(text(&document, "/schema"), "ksyms-bench/1");
    assert_eq!(text(&document, "/bench"), "attach");
    let names: Vec<&str> = list(&document, "/rows")
        .iter()
        .map(|row| text(row, "/name"))
        .collect();
    for name in ["multi/50/attach", "multi/500/detach", "floor/500/attach"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for row in list(&document, "/rows") {
        assert_eq!(number(row, "/samples"), 2);
        assert!(number(row, "/median") > 0);
    }
}
