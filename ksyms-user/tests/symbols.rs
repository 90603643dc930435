//! `bench resolve` and `selftest` on a saved copy of symbols: as a user calls
//! them, on any machine, without root.

use std::{
    fmt::Write as _,
    fs,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::PermissionsExt as _,
            net::{SocketAddr, UnixListener},
            process::CommandExt as _,
        },
    },
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ksyms-attach"))
        .args(arguments)
        .output()
        .expect("the program runs")
}

/// What it said, after ending with `code`.
fn said(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("output is UTF-8");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
    (stdout, stderr)
}

fn document(output: &Output) -> Value {
    let (stdout, stderr) = said(output, 0);
    assert_eq!(stderr, "");
    serde_json::from_str(&stdout).expect("one JSON document")
}

/// A copy of /proc/kallsyms with a module, and where it is.
fn copy(folder: &Path) -> String {
    let mut text = String::from("0000000000000000 A fixed_percpu_data\n");
    for number in 0..400 {
        let address = 0xffff_ffff_8100_0000_u64 + 64 * number;
        writeln!(text, "{address:016x} T tcp_function_{number}").expect("a String takes it");
    }
    text.push_str("ffffffffc0000000 t ops_get\t[dummy]\nffffffffc0000100 t ops_get\t[dummy]\n");
    let path = folder.join("kallsyms");
    fs::write(&path, text).expect("a folder takes a file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn selftest_of_a_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    let document = document(&run(&["selftest", "--symbols", &copy, "--format", "json"]));
    assert_eq!(document["schema"], "ksyms-selftest/1");
    assert_eq!(document["result"], "PASS");
    assert_eq!(document["symbols"], 403);
    let (stdout, stderr) = said(&run(&["selftest", "--symbols", &copy, "--iters", "2"]), 0);
    assert!(stdout.ends_with("\nPASS\n"), "{stdout}");
    assert!(stdout.contains("step4+batch/hit"), "{stdout}");
    assert_eq!(stderr, "");
}

/// Waits until no other benchmark runs: another developer's counts as well.
fn lock() -> UnixListener {
    let address = SocketAddr::from_abstract_name("ksyms-attach/bench").expect("a short name");
    for _ in 0..600 {
        match UnixListener::bind_addr(&address) {
            Ok(lock) => return lock,
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
    panic!("another benchmark runs and does not end");
}

/// In one test: the program runs one benchmark at a time.
#[test]
fn bench_resolve_of_a_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    let bench = |iters: &str| {
        run(&[
            "bench",
            "resolve",
            "--symbols",
            &copy,
            "--iters",
            iters,
            "--format",
            "json",
        ])
    };
    drop(lock());
    let document = document(&bench("3"));
    assert_eq!(document["schema"], "ksyms-bench/1");
    assert_eq!(document["bench"], "resolve");
    let rows = document["rows"].as_array().expect("rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    for name in ["step1/hot/hit", "fast/all/miss", "batch+index/nall/hit"] {
        let row = row(name).unwrap_or_else(|| panic!("no row {name}"));
        assert!(row["ratio_to_step1"].as_f64() > Some(0.0), "{row}");
    }
    for name in [
        "setup",
        "teardown",
        "walk",
        "addr/offset",
        "addr/plain",
        "encode",
    ] {
        assert!(row(name).is_some(), "no row {name}");
    }

    let (stdout, stderr) = said(&bench("0"), 2);
    assert_eq!(stdout, "");
    assert!(stderr.contains("--iters"), "{stderr}");

    let other = lock();
    let (stdout, stderr) = said(&bench("3"), 1);
    assert_eq!(stdout, "");
    assert!(stderr.contains("another benchmark runs"), "{stderr}");
    drop(other);
    said(&bench("3"), 0);
}

#[test]
fn copies_that_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a folder takes a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    for (file, expected) in [
        (
            write("broken", "ffffffff81000000 T a\nnot a symbol\n"),
            "broken:2",
        ),
        (write("empty", ""), "empty"),
        (
            write("hidden", "0000000000000000 T a\n"),
            "all addresses are 0",
        ),
        (folder.path().display().to_string(), "read"),
    ] {
        let (stdout, stderr) = said(&run(&["selftest", "--symbols", &file]), 1);
        assert_eq!(stdout, "");
        assert!(stderr.contains(expected), "{stderr}");
    }
    for typo in ["porc", ""] {
        let (_, stderr) = said(&run(&["selftest", "--symbols", typo]), 2);
        assert!(stderr.contains("give auto, kcore, proc, or"), "{stderr}");
    }
}

/// As in a container that may have no more processes: threads are refused.
#[test]
fn no_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let everyone = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), everyone).expect("its permissions");
    let program = folder.path().join("ksyms-attach");
    fs::copy(env!("CARGO_BIN_EXE_ksyms-attach"), &program).expect("a copy");
    let mut command = Command::new("bash");
    command
        .args(["-c", "ulimit -u 1 && exec \"$@\"", "bash"])
        .arg(&program)
        .args(["--list", "--pattern", "vfs_read", "--symbols", "proc"])
        .current_dir("/");
    if rustix::process::geteuid().is_root() {
        // Root has no such limit.
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().expect("bash runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // 3 where addresses are hidden from users.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Each check has all columns.
#[test]
fn selftest_as_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = copy(folder.path());
    let output = run(&["selftest", "--symbols", &copy, "--format", "csv"]);
    let (stdout, _) = said(&output, 0);
    assert!(
        stdout.starts_with("name,answers,wrong,min_ns,avg_ns\nencode,"),
        "{stdout}"
    );
    assert!(
        stdout.lines().all(|line| line.split(',').count() == 5),
        "{stdout}"
    );
}
