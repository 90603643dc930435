//! Running the program and looking at the kernel.

use std::{
    collections::HashSet,
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    panic::Location,
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use libtest_mimic::{Completion, Failed, Trial};
use serde_json::Value;

pub(crate) type Outcome = Result<(), Failed>;

/// The kernel under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel {
    major: u32,
    minor: u32,
}

impl Kernel {
    pub(crate) const V6_12: Self = Self::new(6, 12);

    pub(crate) const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The kernel that `cargo xtask test` says this is; `None` outside its VMs.
    fn under_test() -> Option<Self> {
        let name = env::var("KSYMS_TEST_KERNEL").ok()?;
        let (major, minor) = name.split_once('.').expect("a kernel is named MAJOR.MINOR");
        let number = |text: &str| text.parse().expect("a kernel is named MAJOR.MINOR");
        Some(Self::new(number(major), number(minor)))
    }

    /// Debian's cloud kernels have `CONFIG_FPROBE` from 6.12 on, not in 6.1.
    pub(crate) fn has_multi(self) -> bool {
        self >= Self::V6_12
    }

    /// The way that `--mode auto` must take.
    pub(crate) fn backend(self) -> &'static str {
        if self.has_multi() { "multi" } else { "event" }
    }

    /// Whether its memory says where its symbol table is.
    pub(crate) fn tells_symbols(self) -> bool {
        self >= Self::new(6, 0)
    }
}

/// What a test may return: nothing, where it only asserts.
pub(crate) trait Verdict {
    fn outcome(self) -> Outcome;
}

impl Verdict for () {
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

impl Verdict for Outcome {
    fn outcome(self) -> Outcome {
        self
    }
}

/// A test for any kernel.
pub(crate) fn test<V: Verdict + 'static>(name: &'static str, body: fn(Kernel) -> V) -> Trial {
    test_if(name, |_| None, body)
}

/// A test for kernels to which `skip` has no objection.
pub(crate) fn test_if<V: Verdict + 'static>(
    name: &'static str,
    skip: fn(Kernel) -> Option<&'static str>,
    body: fn(Kernel) -> V,
) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(kernel) = Kernel::under_test() else {
            return Ok(Completion::ignored_with(
                "needs a VM with kprobes: cargo xtask test",
            ));
        };
        if let Some(reason) = skip(kernel) {
            return Ok(Completion::ignored_with(reason));
        }
        body(kernel).outcome()?;
        nothing_attached()?;
        Ok(Completion::Completed)
    })
}

/// Why a test of kprobe.multi is skipped.
pub(crate) fn without_multi(kernel: Kernel) -> Option<&'static str> {
    (!kernel.has_multi()).then_some("this kernel has no kprobe.multi")
}

/// The program as tests call it.
pub(crate) fn program() -> Command {
    // In the VM it is on the PATH; the path it was built at is not there.
    let built = env!("CARGO_BIN_EXE_ksyms-attach");
    let mut command = Command::new(if fs::exists(built).unwrap_or(false) {
        built
    } else {
        "ksyms-attach"
    });
    command.stdin(Stdio::null());
    command
}

pub(crate) fn ksyms_attach<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = program();
    command.args(arguments);
    command
}

/// What `--pattern PATTERN` lists, as a document.
#[track_caller]
pub(crate) fn listed(pattern: &str) -> Value {
    run(&mut ksyms_attach([
        "--list",
        "--pattern",
        pattern,
        "--format",
        "json",
    ]))
    .exits(0)
    .json()
}

/// `ksyms-attach` that counts a system call of ksyms-workload's, as a document,
/// and says when it begins.
pub(crate) fn counting_getppid() -> Command {
    ksyms_attach(["--pattern", "__x64_sys_getppid", "--format", "json", "-v"])
}

/// What became of a finished program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that stderr has all of `words`.
    #[track_caller]
    pub(crate) fn says<const N: usize>(self, words: [&str; N]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {self:#?}");
        }
        self
    }

    #[track_caller]
    pub(crate) fn prints_nothing(self) -> Self {
        assert_eq!(self.stdout, "", "{self:#?}");
        self
    }

    /// stdout as exactly one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_str(&self.stdout) {
            Ok(document) => document,
            Err(error) => panic!("{error} in {self:#?}"),
        }
    }
}

pub(crate) fn run(command: &mut Command) -> Finished {
    Finished::of(command.output().expect("the program can be started"))
}

/// A program that is still running, its output collected.
pub(crate) struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// What it has said so far.
    said: String,
}

pub(crate) fn start(command: &mut Command) -> Running {
    start_with_stdout(command.stdout(Stdio::piped()))
}

/// As [`start`], where the command's stdout is already what it should be.
pub(crate) fn start_with_stdout(command: &mut Command) -> Running {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let stderr = child.stderr.take().expect("a pipe was asked for");
    Running {
        child,
        stderr: BufReader::new(stderr),
        said: String::new(),
    }
}

impl Running {
    /// Waits until ksyms-attach, run with `-v`, counts. That a probe is armed
    /// does not tell: counting begins a moment later.
    #[track_caller]
    pub(crate) fn wait_until_counting(&mut self) {
        self.wait_until_it_says("attached with");
    }

    #[track_caller]
    pub(crate) fn wait_until_it_says(&mut self, words: &str) {
        while !self.said.contains(words) {
            let read = self.stderr.read_line(&mut self.said);
            assert_ne!(read.expect("stderr is UTF-8"), 0, "{:?}", self.said);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the program still runs");
    }

    pub(crate) fn finish(mut self) -> Finished {
        // Its result may be larger than a pipe holds.
        let stderr = std::thread::spawn(move || {
            self.stderr
                .read_to_string(&mut self.said)
                .expect("stderr is UTF-8");
            self.said
        });
        let output = self.child.wait_with_output().expect("the program ends");
        let mut finished = Finished::of(output);
        finished.stderr = stderr.join().expect("stderr is UTF-8");
        finished
    }
}

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let here = Location::caller();
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_mins(2),
            "{here}: {what} did not come about"
        );
        sleep(Duration::from_millis(5));
    }
}

/// Functions that ftrace calls someone for.
pub(crate) fn enabled_functions() -> usize {
    lines_of("/sys/kernel/tracing/enabled_functions")
}

/// Kprobes that are registered.
pub(crate) fn kprobes() -> usize {
    lines_of("/sys/kernel/debug/kprobes/list")
}

/// Probes that are defined in tracefs, armed or not.
pub(crate) fn definitions() -> usize {
    lines_of("/sys/kernel/tracing/kprobe_events")
}

/// A function that ftrace can probe and kprobes must not touch, if there is one.
pub(crate) fn blacklisted_function() -> Option<String> {
    let blacklist = fs::read_to_string("/sys/kernel/debug/kprobes/blacklist").expect("debugfs");
    let traceable = fs::read_to_string("/sys/kernel/tracing/available_filter_functions")
        .expect("tracefs is mounted");
    let traceable: HashSet<&str> = traceable.lines().collect();
    blacklist
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1))
        .find(|name| traceable.contains(name))
        .map(ToOwned::to_owned)
}

/// Whether the kernel hides from everyone what could be attached.
pub(crate) fn is_locked_down() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|state| state.contains("[confidentiality]"))
}

fn lines_of(path: &str) -> usize {
    if is_locked_down() {
        // tracefs is empty then, and nothing can be attached.
        return 0;
    }
    fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{path}: {error}"))
        .lines()
        .count()
}

/// Checks that no probe is left in the kernel. What a killed process had is
/// taken off by the kernel a moment later; what it had defined, by the next run.
fn nothing_attached() -> Outcome {
    let start = Instant::now();
    if definitions() > 0 {
        run(&mut ksyms_attach([
            "--pattern",
            "__x64_sys_getppid",
            "--mode",
            "event",
            "--duration",
            "0s",
        ]))
        .exits(0)
        .says(["clearing"]);
    }
    loop {
        let left = (enabled_functions(), kprobes());
        if left == (0, 0) {
            return Ok(());
        }
        if start.elapsed() > Duration::from_mins(1) {
            return Err(format!("left in the kernel: {left:?} functions and kprobes").into());
        }
        sleep(Duration::from_millis(20));
    }
}

/// A number in a document.
#[track_caller]
pub(crate) fn number(document: &Value, pointer: &str) -> u64 {
    document
        .pointer(pointer)
        .and_then(Value::as_u64)
        .unwrap_or_else(|| panic!("no number at {pointer} in {document:#}"))
}

/// A text in a document.
#[track_caller]
pub(crate) fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer} in {document:#}"))
}

/// A list in a document.
#[track_caller]
pub(crate) fn list<'a>(document: &'a Value, pointer: &str) -> &'a [Value] {
    document
        .pointer(pointer)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no list at {pointer} in {document:#}"))
}

/// The hits of one function.
#[track_caller]
pub(crate) fn hits(document: &Value, name: &str) -> u64 {
    let counts: Vec<u64> = list(document, "/counts")
        .iter()
        .filter(|count| text(count, "/name") == name)
        .map(|count| number(count, "/hits"))
        .collect();
    assert_eq!(counts.len(), 1, "{name} once in {document:#}");
    counts[0]
}
