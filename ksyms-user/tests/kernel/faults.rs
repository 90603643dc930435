//! What goes wrong: the message, the exit code, and nothing left behind.

use std::{
    fs::{self, File},
    process::Stdio,
};

use libtest_mimic::Trial;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::harness::{
    Kernel, Outcome, blacklisted_function, hits, ksyms_attach, number, program, run, start, test,
    test_if,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("faults::nothing_matches", nothing_matches),
        test("faults::one_pattern_of_two_matches", one_of_two),
        test("faults::nothing_can_be_attached", nothing_attachable),
        test("faults::bad_patterns", bad_patterns),
        test("faults::not_root", not_root),
        test("faults::root_without_capabilities", no_capabilities),
        test("faults::hidden_addresses", hidden_addresses),
        test("faults::tracefs_not_mounted", no_tracefs),
        test("faults::ftrace_switched_off", ftrace_off),
        test("faults::kprobes_switched_off", kprobes_off),
        test("faults::bench_of_what_is_refused", bench_refused),
        test("faults::hardly_any_open_files", hardly_any_files),
        test("faults::too_few_open_files", few_files),
        test("faults::open_files_are_raised", files_raised),
        test("faults::command_not_found", no_command),
        test("faults::command_not_executable", bad_command),
        test("faults::closed_stdout", closed_stdout),
        test("faults::full_stdout", full_stdout),
        test("faults::a_blacklisted_function", blacklisted),
        test("faults::a_hit_of_no_function_is_told", stray_hit),
        test_if("faults::multi_where_there_is_none", with_multi, no_multi),
    ]
}

fn with_multi(kernel: Kernel) -> Option<&'static str> {
    kernel.has_multi().then_some("this kernel has kprobe.multi")
}

fn nothing_matches(_: Kernel) {
    run(&mut ksyms_attach(["--pattern", "tcp_v4_rvc"]))
        .exits(2)
        .says(["tcp_v4_rvc", "did you mean", "tcp_v4_rcv"])
        .prints_nothing();
    run(&mut ksyms_attach(["--pattern", "no_such_module:*"]))
        .exits(2)
        .says(["not loaded: module no_such_module"])
        .prints_nothing();
    run(&mut ksyms_attach(["--pattern", "tcp_*", "--pattern", "!*"]))
        .exits(2)
        .says(["take away"])
        .prints_nothing();
}

fn one_of_two(_: Kernel) {
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "no_such_function",
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "--duration",
        "0s",
    ]))
    .exits(0)
    .says(["no function matches no_such_function"]);
    assert_eq!(number(&finished.json(), "/targets/attached"), 1);
}

fn nothing_attachable(_: Kernel) {
    run(&mut ksyms_attach(["--pattern", "jiffies"]))
        .exits(2)
        .says(["jiffies", "not a function"])
        .prints_nothing();
}

fn bad_patterns(_: Kernel) {
    for pattern in ["", "tcp_[", "/(/", "!tcp_*", "@/no/such/file"] {
        run(&mut ksyms_attach(["--pattern", pattern]))
            .exits(2)
            .prints_nothing();
    }
    run(&mut ksyms_attach([])).exits(2).says(["--pattern"]);
}

fn limited(limits: &[&str], arguments: &[&str]) -> std::process::Command {
    let inner = program();
    let mut command = std::process::Command::new("ksyms-workload");
    command
        .arg("limit")
        .args(limits)
        .arg("--")
        .arg(inner.get_program())
        .args(arguments);
    command
}

fn not_root(_: Kernel) {
    run(&mut limited(&["--uid", "1000"], &["--pattern", "tcp_*"]))
        .exits(3)
        .says(["root"])
        .prints_nothing();
}

fn no_capabilities(_: Kernel) {
    // Symbols can be read; bpf(2) is refused.
    let limits = ["--drop-cap", "sys_admin,bpf,perfmon"];
    run(&mut limited(&limits, &["--pattern", "tcp_*"]))
        .exits(3)
        .says(["CAP_"])
        .prints_nothing();
}

fn hidden_addresses(kernel: Kernel) -> Outcome {
    let knob = "/proc/sys/kernel/kptr_restrict";
    let before = fs::read_to_string(knob)?;
    fs::write(knob, "2")?;
    let [text, memory] = ["proc", "auto"].map(|symbols| {
        run(&mut ksyms_attach([
            "--pattern",
            "tcp_*",
            "--duration",
            "0s",
            "--symbols",
            symbols,
        ]))
    });
    fs::write(knob, before)?;
    text.exits(3)
        .says(["kptr_restrict", "sysctl"])
        .prints_nothing();
    if kernel.tells_symbols() {
        memory.exits(0);
    } else {
        memory.exits(3).says(["kptr_restrict"]);
    }
    Ok(())
}

fn no_tracefs(_: Kernel) -> Outcome {
    let mounts = || fs::read_to_string("/proc/self/mounts");
    // debugfs shows tracefs as well, mounted when it is looked at.
    while unmount("/sys/kernel/debug/tracing", UnmountFlags::DETACH).is_ok() {}
    unmount("/sys/kernel/debug", UnmountFlags::DETACH)?;
    unmount("/sys/kernel/tracing", UnmountFlags::DETACH)?;
    let before = mounts()?;
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "10",
    ]));
    let after = mounts()?;
    mount(
        "debugfs",
        "/sys/kernel/debug",
        "debugfs",
        MountFlags::empty(),
        None,
    )?;
    mount(
        "tracefs",
        "/sys/kernel/tracing",
        "tracefs",
        MountFlags::empty(),
        None,
    )?;
    assert_eq!(hits(&finished.exits(0).json(), "__x64_sys_getppid"), 10);
    assert_eq!(before, after);
    Ok(())
}

/// Runs with a switch of the kernel set to 0.
fn with_0(
    knob: &str,
    command: &mut std::process::Command,
) -> Result<crate::harness::Finished, std::io::Error> {
    fs::write(knob, "0")?;
    let finished = run(command);
    fs::write(knob, "1")?;
    Ok(finished)
}

fn ftrace_off(_: Kernel) -> Outcome {
    let knob = "/proc/sys/kernel/ftrace_enabled";
    with_0(knob, &mut ksyms_attach(["--pattern", "tcp_*"]))?
        .exits(3)
        .says(["ftrace_enabled is 0", "sysctl kernel.ftrace_enabled=1"])
        .prints_nothing();
    Ok(())
}

fn kprobes_off(_: Kernel) -> Outcome {
    let knob = "/sys/kernel/debug/kprobes/enabled";
    let arguments = ["--pattern", "tcp_*", "--mode", "perf"];
    with_0(knob, &mut ksyms_attach(arguments))?
        .exits(3)
        .says(["kprobes/enabled is 0", "echo 1"])
        .prints_nothing();
    Ok(())
}

fn bench_refused(_: Kernel) {
    let bench = |rest: &[&str]| run(ksyms_attach(["bench", "attach", "--samples", "1"]).args(rest));
    bench(&["--counts", "0"]).exits(2).prints_nothing();
    bench(&["--pattern", "jiffies"]).exits(2).prints_nothing();
    let name = blacklisted_function().expect("a blacklisted function that ftrace knows");
    bench(&["--pattern", &name, "--mode", "perf", "--counts", "1"])
        .exits(1)
        .prints_nothing();
}

fn hardly_any_files(_: Kernel) {
    for limit in ["6", "9", "12"] {
        // It can be raised: nobody notices.
        run(&mut limited(
            &["--nofile", &format!("{limit}:{limit}")],
            &["--pattern", "__x64_sys_getppid", "--duration", "0s"],
        ))
        .exits(0);
        // It cannot.
        run(&mut limited(
            &[
                "--nofile",
                &format!("{limit}:{limit}"),
                "--drop-cap",
                "sys_resource",
            ],
            &["--pattern", "__x64_sys_getppid", "--duration", "0s"],
        ))
        .exits(3)
        .says(["open files", "ulimit -n"])
        .prints_nothing();
    }
}

fn few_files(_: Kernel) {
    let limits = ["--nofile", "64:64", "--drop-cap", "sys_resource"];
    run(&mut limited(
        &limits,
        &["--pattern", "tcp_*", "--mode", "perf"],
    ))
    .exits(3)
    .says(["open files", "ulimit -n"])
    .prints_nothing();
}

fn files_raised(_: Kernel) {
    // More probes than the soft limit allows.
    let arguments = [
        "--pattern",
        "__x64_sys_s*",
        "--mode",
        "perf",
        "--format",
        "json",
        "--duration",
        "0s",
    ];
    let document = run(&mut limited(&["--nofile", "16:4096"], &arguments))
        .exits(0)
        .json();
    assert!(number(&document, "/targets/attached") > 16);
}

fn no_command(_: Kernel) {
    run(&mut ksyms_attach([
        "--pattern",
        "tcp_*",
        "--",
        "no-such-command",
    ]))
    .exits(2)
    .says(["no-such-command", "not found"])
    .prints_nothing();
}

fn bad_command(_: Kernel) -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;

    // Executable by its mode, and yet no program: only exec(2) can tell.
    let path = "/tmp/no-program";
    fs::write(path, "\u{7f}ELF")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--",
        path,
    ]))
    .exits(1)
    .says([path])
    .prints_nothing();
    Ok(())
}

fn closed_stdout(_: Kernel) -> Outcome {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = ksyms_attach(["--pattern", "__x64_sys_getppid", "--duration", "0s"]);
    let output = command
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let stderr = String::from_utf8(output.stderr)?;
    assert!(!stderr.contains("panic"), "{stderr}");
    Ok(())
}

fn full_stdout(_: Kernel) -> Outcome {
    let mut command = ksyms_attach(["--pattern", "__x64_sys_getppid", "--duration", "0s"]);
    let output = command
        .stdout(File::options().write(true).open("/dev/full")?)
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8(output.stderr)?.contains("stdout"));
    Ok(())
}

fn blacklisted(_: Kernel) {
    // All kernels that were looked at have one, for example perf_event_nmi_handler.
    let name = blacklisted_function().expect("a blacklisted function that ftrace knows");
    run(&mut ksyms_attach([
        "--pattern",
        &name,
        "--mode",
        "perf",
        "--duration",
        "0s",
    ]))
    .exits(3)
    .says([&name, "kprobes/blacklist"])
    .prints_nothing();
}

fn no_multi(_: Kernel) {
    run(&mut ksyms_attach(["--pattern", "tcp_*", "--mode", "multi"]))
        .exits(3)
        .says(["kprobe.multi"])
        .prints_nothing();
}

/// Attaches the counting program where its owner does not know of it.
fn stray_hit(kernel: Kernel) -> Outcome {
    if kernel < Kernel::new(5, 15) {
        // By address: the registry of addresses cannot be reached from outside.
        return Ok(());
    }
    let mut running = start(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getuid",
        "--mode",
        "perf",
        "--format",
        "json",
        "-v",
    ]));
    running.wait_until_counting();
    let mut program = loop {
        let ours = aya::programs::loaded_programs()
            .filter_map(Result::ok)
            .find(|info| info.name_as_str() == Some("count_by_cookie"));
        if let Some(info) = ours {
            break from_info(info)?;
        }
    };
    let link = program.attach("__x64_sys_getppid", 0)?;
    run(std::process::Command::new("ksyms-workload").args(["getppid", "--calls", "7"])).exits(0);
    program.detach(link)?;
    running.signal(rustix::process::Signal::INT);
    let finished = running.finish().exits(0).says([
        "eBPF: hit at ffffffff",
        "7 hits belong to no attached function",
    ]);
    assert_eq!(hits(&finished.json(), "__x64_sys_getuid"), 0);
    Ok(())
}

#[expect(unsafe_code, reason = "aya cannot know what a foreign program is")]
fn from_info(
    info: aya::programs::ProgramInfo,
) -> Result<aya::programs::KProbe, aya::programs::ProgramError> {
    // SAFETY: the program is our own, loaded as a kprobe.
    unsafe {
        aya::programs::KProbe::from_program_info(
            info,
            "count_by_cookie".into(),
            aya::programs::ProbeKind::Entry,
        )
    }
}
