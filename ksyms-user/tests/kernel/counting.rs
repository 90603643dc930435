//! The main job: attach, count, report.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::harness::{
    Kernel, Outcome, enabled_functions, hits, ksyms_attach, list, number, run, start, test,
    test_if, text, without_multi,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("every_kernel::main_job", main_job),
        test("every_kernel::exact_counts", exact_counts),
        test("counting::exact_counts_of_several_functions", several),
        test("counting::a_table_shows_hits_and_costs", table),
        test("counting::csv_has_a_line_for_each_function", csv),
        test("counting::top_cuts_the_counts_not_the_total", top),
        test("counting::a_command_may_fail", failing_command),
        test("counting::a_command_keeps_off_stdout", talking_command),
        test("counting::duration_ends_counting_and_the_command", duration),
        test("counting::an_alias_is_attached_by_its_address", alias),
        test(
            "counting::instances_of_one_name_are_counted_apart",
            duplicates,
        ),
        test("perf::exact_counts", perf_exact_counts),
        test_if("multi::is_one_link", without_multi, one_link),
        test("start::reads_symbols_once_and_no_btf", start_is_lean),
    ]
}

const TCP: [&str; 5] = ["--pattern", "tcp_*", "--format", "json", "--"];

fn main_job(kernel: Kernel) {
    let finished = run(ksyms_attach(TCP).args(["ksyms-workload", "tcp"])).exits(0);
    let document = finished.json();
    assert_eq!(text(&document, "/schema"), "ksyms-attach/1");
    assert_eq!(text(&document, "/backend"), kernel.backend());

    let attached = number(&document, "/targets/attached");
    // 388 of 6.12, 368 of 6.1 and 348 of 5.10 when this was written.
    let least = match kernel {
        _ if kernel.has_multi() => 370,
        _ if kernel >= Kernel::new(6, 1) => 350,
        _ => 340,
    };
    assert!(attached >= least, "{attached} attached in {document:#}");
    let rejected = number(&document, "/targets/rejected");
    assert_eq!(number(&document, "/targets/matched"), attached + rejected);
    assert_eq!(list(&document, "/rejected").len() as u64, rejected);
    for rejected in list(&document, "/rejected") {
        assert!(!text(rejected, "/reason").is_empty());
    }

    let total = number(&document, "/total_hits");
    assert!(total > 1_000, "{total} hits");
    let counts = list(&document, "/counts");
    assert_eq!(counts.len() as u64, attached);
    let sum: u64 = counts.iter().map(|count| number(count, "/hits")).sum();
    assert_eq!(sum, total);
    assert!(hits(&document, "tcp_v4_rcv") > 0);
    for count in counts {
        assert!(text(count, "/address").starts_with("0xffffffff"));
        assert_eq!(text(count, "/module"), "vmlinux");
    }

    for phase in ["symbols", "select", "load", "attach", "detach", "total"] {
        assert!(
            number(&document, &format!("/cost/{phase}_ns")) > 0,
            "{phase}"
        );
    }
    // Without kprobe.multi it is one trace event, which always tells.
    assert!(document.get("missed").is_some());
    assert!(!text(&document, "/kernel/release").is_empty());
    assert!(number(&document, "/kernel/cpus") > 0);

    if kernel.has_multi() {
        assert_eq!(finished.stderr, "");
    } else {
        finished.says(["kprobe.multi", "falling back to event"]);
    }
}

/// Counts of `pattern` over `calls` calls of getppid(2).
fn count_getppid(pattern: &str, mode: &str, calls: &str) -> Value {
    run(&mut ksyms_attach([
        "--pattern",
        pattern,
        "--mode",
        mode,
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        calls,
    ]))
    .exits(0)
    .json()
}

fn exact_counts(_: Kernel) {
    let document = count_getppid("__x64_sys_getppid", "auto", "1000");
    assert_eq!(number(&document, "/targets/attached"), 1);
    assert_eq!(hits(&document, "__x64_sys_getppid"), 1_000);
    assert_eq!(number(&document, "/total_hits"), 1_000);
}

fn perf_exact_counts(_: Kernel) {
    let document = count_getppid("__x64_sys_getppid", "perf", "1234");
    assert_eq!(text(&document, "/backend"), "perf");
    assert_eq!(hits(&document, "__x64_sys_getppid"), 1_234);
}

fn several(_: Kernel) {
    let document = count_getppid("__x64_sys_getp*", "auto", "500");
    assert!(number(&document, "/targets/attached") > 3);
    assert_eq!(hits(&document, "__x64_sys_getppid"), 500);
    assert_eq!(hits(&document, "__x64_sys_getpriority"), 0);
}

fn table(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "1500",
    ]))
    .exits(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let words = |line: &str| -> Vec<String> { line.split_whitespace().map(Into::into).collect() };
    assert_eq!(words(lines[0]), ["FUNCTION", "MODULE", "HITS", "SHARE"]);
    assert_eq!(
        words(lines[1]),
        ["__x64_sys_getppid", "vmlinux", "1,500", "100.0", "%"]
    );
    let cost = lines.last().expect("a cost line");
    for phase in ["cost: symbols ", "select ", "load ", "attach ", "detach "] {
        assert!(cost.contains(phase), "{cost}");
    }
    assert_eq!(cost.matches(" a function)").count(), 2, "{cost}");
}

fn csv(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getp*",
        "--format",
        "csv",
        "--duration",
        "0s",
    ]))
    .exits(0);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    assert_eq!(lines[0], "name,module,address,aliases,hits");
    assert!(lines.len() > 4, "{lines:?}");
    assert!(lines[1..].iter().all(|line| line.split(',').count() == 5));
}

fn top(_: Kernel) {
    let document = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getp*",
        "--format",
        "json",
        "--top",
        "1",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "77",
    ]))
    .exits(0)
    .json();
    let counts = list(&document, "/counts");
    assert_eq!(counts.len(), 1);
    assert_eq!(text(&counts[0], "/name"), "__x64_sys_getppid");
    assert!(number(&document, "/total_hits") >= 77);
}

fn failing_command(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "no-such-workload",
    ]))
    .exits(0)
    .says(["ksyms-workload: exit status: 2"]);
    assert_eq!(hits(&finished.json(), "__x64_sys_getppid"), 0);
}

fn talking_command(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "--help",
    ]))
    .exits(0)
    .says(["Usage"]);
    finished.json();
}

fn duration(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "--duration",
        "100ms",
        "--",
        "ksyms-workload",
        "sleep",
        "600",
    ]))
    .exits(0)
    .says(["ksyms-workload: signal: 15"]);
    finished.json();
}

fn alias(_: Kernel) {
    let document = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--pattern",
        "__do_sys_getppid",
        "--pattern",
        "__ia32_sys_getppid",
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "10",
    ]))
    .exits(0)
    .json();
    // One function under three names: attached once, counted once.
    assert_eq!(number(&document, "/targets/attached"), 1);
    assert_eq!(number(&document, "/total_hits"), 10);
    let aliases = list(&document, "/counts/0/aliases");
    assert!(!aliases.is_empty(), "{document:#}");
}

fn duplicates(_: Kernel) {
    // Every kernel has several static functions of this name.
    let document = run(&mut ksyms_attach([
        "--pattern",
        "s_next",
        "--format",
        "json",
        "--duration",
        "0s",
    ]))
    .exits(0)
    .json();
    let mut addresses: Vec<&str> = list(&document, "/counts")
        .iter()
        .map(|count| text(count, "/address"))
        .collect();
    let attached = addresses.len();
    assert!(attached >= 2, "{document:#}");
    addresses.dedup();
    assert_eq!(addresses.len(), attached);
}

fn one_link(_: Kernel) {
    let links = || aya::programs::loaded_links().filter_map(Result::ok).count();
    let before = links();
    let mut running = start(&mut ksyms_attach(["--pattern", "tcp_*", "-v"]));
    running.wait_until_counting();
    assert!(enabled_functions() > 300);
    assert_eq!(links(), before + 1);
    running.signal(rustix::process::Signal::INT);
    running.finish().exits(0);
}

fn start_is_lean(kernel: Kernel) -> Outcome {
    assert_eq!(opened("proc")?, (1, 0));
    // The layouts of the kernel's structures are looked up in its type
    // information; not for 5.10, which does not tell where its symbols are.
    let lean = if kernel.tells_symbols() {
        (0, 1)
    } else {
        (1, 0)
    };
    assert_eq!(opened("auto")?, lean);
    Ok(())
}

/// How often attaching opens /proc/kallsyms, and the kernel's BTF.
fn opened(symbols: &str) -> Result<(usize, usize), Failed> {
    use rustix::fs::inotify;

    let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    let kallsyms = inotify::add_watch(&watch, "/proc/kallsyms", inotify::WatchFlags::OPEN)?;
    let btf = inotify::add_watch(&watch, "/sys/kernel/btf/vmlinux", inotify::WatchFlags::OPEN)?;
    run(&mut ksyms_attach([
        "--pattern",
        "tcp_*",
        "--duration",
        "0s",
        "--symbols",
        symbols,
    ]))
    .exits(0);

    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let (mut kallsyms_opened, mut btf_opened) = (0, 0);
    loop {
        match events.next() {
            Ok(event) if event.wd() == kallsyms => kallsyms_opened += 1,
            Ok(event) if event.wd() == btf => btf_opened += 1,
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok((kallsyms_opened, btf_opened)),
            Err(error) => return Err(error.into()),
        }
    }
}
