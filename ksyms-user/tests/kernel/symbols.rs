//! Where symbols are read from, and that it makes no difference.

use std::{fmt::Write as _, fs};

use libtest_mimic::Trial;
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::Value;

use crate::harness::{Finished, Kernel, Outcome, hits, ksyms_attach, number, run, test, test_if};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("every_kernel::symbols_of_any_source", sources),
        test("every_kernel::symbols_of_a_saved_copy", saved_copy),
        test("symbols::of_another_boot_are_refused", other_boot),
        test_if("symbols::kcore_is_passed_over", telling, no_kcore),
        test_if("symbols::kernels_that_do_not_tell", not_telling, untold),
        test_if("symbols::encoded_as_the_kernel_does", telling, encoded),
    ]
}

fn telling(kernel: Kernel) -> Option<&'static str> {
    (!kernel.tells_symbols()).then_some("this kernel does not tell where its symbols are")
}

fn not_telling(kernel: Kernel) -> Option<&'static str> {
    kernel
        .tells_symbols()
        .then_some("this kernel tells where its symbols are")
}

fn listed(symbols: &str, pattern: &str) -> Finished {
    run(&mut ksyms_attach([
        "--list",
        "--pattern",
        pattern,
        "--symbols",
        symbols,
        "--format",
        "json",
        "-v",
    ]))
}

/// All that could be attached, and why the rest cannot, is the same.
fn sources(kernel: Kernel) {
    for pattern in ["*", "tcp_*", "vmlinux:s_show", "/sys_getp?pid$/"] {
        let text = listed("proc", pattern)
            .exits(0)
            .says(["/proc/kallsyms"])
            .json();
        let auto = listed("auto", pattern).exits(0);
        let auto = if kernel.tells_symbols() {
            auto.says(["symbols read from /proc/kcore"])
        } else {
            auto.says(["from /proc/kallsyms, since", "kernel 6.0"])
        };
        let auto = auto.json();
        assert!(number(&text, "/targets/matched") > 1, "{pattern}");
        // Before 6.5, text cannot tell functions of one name apart.
        if kernel >= Kernel::new(6, 5) || !kernel.tells_symbols() {
            assert_same(&auto, &text);
        } else {
            assert_eq!(
                number(&auto, "/targets/matched"),
                number(&text, "/targets/matched")
            );
            let attachable = |document| number(document, "/targets/attachable");
            assert!(attachable(&auto) <= attachable(&text));
            assert!(attachable(&auto) + 2_000 > attachable(&text));
        }
    }
}

/// Says which function differs, rather than all of them.
#[track_caller]
fn assert_same(one: &Value, other: &Value) {
    let functions = |document: &Value| document["functions"].as_array().cloned().unwrap();
    for (one, other) in functions(one).iter().zip(&functions(other)) {
        assert_eq!(one, other);
    }
    assert_eq!(one["targets"], other["targets"]);
}

fn saved_copy(_: Kernel) -> Outcome {
    let copy = "/tmp/kallsyms";
    fs::write(copy, fs::read("/proc/kallsyms")?)?;
    let finished = run(&mut ksyms_attach([
        "--pattern",
        "__x64_sys_getppid",
        "--symbols",
        copy,
        "--format",
        "json",
        "--",
        "ksyms-workload",
        "getppid",
        "--calls",
        "10",
    ]));
    fs::remove_file(copy)?;
    assert_eq!(hits(&finished.exits(0).json(), "__x64_sys_getppid"), 10);
    Ok(())
}

/// The kernel is loaded elsewhere each time: nothing would be where it was.
fn other_boot(_: Kernel) -> Outcome {
    let copy = "/tmp/other";
    let text = fs::read_to_string("/proc/kallsyms")?;
    let mut moved = String::with_capacity(text.len());
    for line in text.lines() {
        let (address, rest) = line.split_at(16);
        let address = u64::from_str_radix(address, 16)?;
        writeln!(moved, "{:016x}{rest}", address.wrapping_add(0x20_0000))?;
    }
    // One that was loaded at the same place, and of which all but one function is.
    let renamed = text.replace(" tcp_v4_rcv\n", " tcp_v4_other\n");
    assert_ne!(renamed, text);
    fs::write(copy, renamed)?;
    listed(copy, "tcp_v4_other")
        .exits(0)
        .says(["not known", "tcp_v4_other", "tcp_v4_rcv+0x0"]);
    fs::write(copy, moved)?;
    run(&mut ksyms_attach([
        "--pattern",
        "tcp_*",
        "--duration",
        "0s",
        "--symbols",
        copy,
    ]))
    .exits(1)
    .says([
        copy,
        "not of the running kernel",
        "save /proc/kallsyms again",
    ])
    .prints_nothing();
    // What it holds can be listed, but not whether it could be attached.
    let document = listed(copy, "tcp_v4_rcv")
        .exits(0)
        .says(["not known", "not of the running kernel"])
        .json();
    assert_eq!(document["functions"][0].get("attachable"), None);
    fs::remove_file(copy)?;
    Ok(())
}

/// As on a kernel without it.
fn no_kcore(_: Kernel) -> Outcome {
    mount_bind("/dev/null", "/proc/kcore")?;
    let auto = listed("auto", "tcp_v4_rcv");
    let kcore = listed("kcore", "tcp_v4_rcv");
    unmount("/proc/kcore", UnmountFlags::empty())?;
    auto.exits(0)
        .says(["from /proc/kallsyms, since", "/proc/kcore"]);
    kcore.exits(1).says(["/proc/kcore"]).prints_nothing();
    Ok(())
}

fn untold(_: Kernel) {
    listed("kcore", "tcp_v4_rcv")
        .exits(3)
        .says(["/proc/kcore", "kernel 6.0"])
        .prints_nothing();
}

/// Compressed here, names take hardly more than the kernel's build makes of
/// them.
fn encoded(_: Kernel) -> Outcome {
    let kernel = ksyms::source::Kcore::open()?.table()?;
    let text = ksyms::source::kallsyms()?;
    let core = text.iter().filter(|symbol| symbol.module.is_none());
    let ours = ksyms::kallsyms::SymbolTable::encode(core)?;
    assert_eq!(ours.len(), kernel.len());
    let (ours, kernel) = (ours.names_bytes(), kernel.names_bytes());
    assert!(100 * ours <= 103 * kernel, "{ours} bytes of {kernel}");
    Ok(())
}
