//! Signals at any moment: the result is printed where there is one, and no probe
//! stays.

use libtest_mimic::Trial;
use rustix::process::Signal;

use crate::harness::{
    Kernel, Outcome, counting_getppid, enabled_functions, hits, kprobes, ksyms_attach, list,
    number, run, start, start_with_stdout, test, test_if, text, wait_for, without_multi,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("signals::int_ends_counting", int),
        test("signals::term_ends_counting", term),
        test("signals::an_ignored_signal_stays_ignored", ignored),
        test("signals::a_reader_that_stalls_is_left", stalled_reader),
        test(
            "signals::a_second_one_leaves_detaching",
            second_while_detaching,
        ),
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
    let mut running = start(&mut counting_getppid());
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

fn ignored(_: Kernel) {
    let mut command = counting_getppid();
    // What this process ignores, the programs it starts ignore, as under nohup.
    set_disposition(libc::SIG_IGN);
    let mut running = start(&mut command);
    set_disposition(libc::SIG_DFL);
    running.wait_until_counting();
    running.signal(Signal::HUP);
    run(std::process::Command::new("ksyms-workload").args(["getppid", "--calls", "25"])).exits(0);
    running.signal(Signal::INT);
    let document = running.finish().exits(0).json();
    assert_eq!(hits(&document, "__x64_sys_getppid"), 25);
}

#[expect(unsafe_code, reason = "there is no safe way to ignore a signal")]
fn set_disposition(disposition: libc::sighandler_t) {
    // SAFETY: neither disposition runs code of ours.
    unsafe { libc::signal(libc::SIGHUP, disposition) };
}

fn stalled_reader(_: Kernel) -> Outcome {
    let (_reader, writer) = std::io::pipe()?;
    // Less than the result.
    rustix::pipe::fcntl_setpipe_size(&writer, 4096)?;
    let mut command = ksyms_attach([
        "--pattern",
        "__x64_sys_s*",
        "--format",
        "json",
        "--duration",
        "0s",
        "-v",
    ]);
    command.stdout(writer);
    let mut running = start_with_stdout(&mut command);
    drop(command);
    running.wait_until_it_says("detaching");
    std::thread::sleep(std::time::Duration::from_secs(30));
    assert!(running.is_running());
    running.signal(Signal::TERM);
    running.finish().exits(1).says(["interrupted again"]);
    Ok(())
}

fn second_while_detaching(_: Kernel) {
    let mut running = start(ksyms_attach(PERF).arg("-v"));
    running.wait_until_counting();
    running.signal(Signal::INT);
    running.wait_until_it_says("detaching");
    running.signal(Signal::INT);
    running
        .finish()
        .exits(1)
        .says(["interrupted again"])
        .prints_nothing();
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
