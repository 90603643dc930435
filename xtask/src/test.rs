//! `cargo xtask test`: the tests of this machine, then those that need a
//! kernel to themselves, in VMs.

mod sanitize;
mod tally;

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use self::tally::{Skip, Tally};
use crate::{
    artifacts::{Guest, build_kernel_tests},
    kernels::{Choice, Kernel},
    setup::Setup,
    vm::{AddedFile, Processors, Stream, Vm},
    workspace::{cargo, read_output},
};

/// Options of `cargo xtask test`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Kernels to boot [default: all that there are tests for]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernels: Vec<Choice>,
    /// Only the tests that need no VM
    #[arg(long)]
    host_only: bool,
    /// Only the tests in VMs
    #[arg(long, conflicts_with = "host_only")]
    vm_only: bool,
    /// Only the tests in which threads share a table, watched for data races
    #[arg(long, conflicts_with_all = ["kernels", "host_only", "vm_only", "filters"])]
    sanitize: bool,
    /// Only tests whose names contain one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// A boot, and the tests that run in it.
struct Boot {
    kernel: &'static str,
    label: &'static str,
    processors: Processors,
    append: &'static [&'static str],
    modules: &'static [&'static str],
    wants: fn(&str) -> bool,
}

impl Boot {
    /// All tests but those that want a machine of another kind.
    const fn whole(kernel: &'static str) -> Self {
        Self {
            kernel,
            label: "whole suite",
            processors: Processors::Counted,
            append: &[],
            modules: &[],
            wants: |test| {
                !["lockdown::", "smp::", "module::"]
                    .iter()
                    .any(|other| test.starts_with(other))
            },
        }
    }

    /// With a module that has functions of its own.
    const fn with_module(kernel: &'static str) -> Self {
        Self {
            label: "with a module",
            modules: &["dummy", "llc"],
            wants: |test| test.starts_with("module::"),
            ..Self::whole(kernel)
        }
    }

    /// The main job and the exact counts.
    const fn brief(kernel: &'static str) -> Self {
        Self {
            label: "every kernel",
            wants: |test| test.starts_with("every_kernel::"),
            ..Self::whole(kernel)
        }
    }
}

/// The boots, the long ones first so that two at a time end together.
///
/// Most of them count instructions: waiting takes no real time then, and QEMU
/// has crashed guests that patched much code with more than one processor.
const BOOTS: [Boot; 12] = [
    Boot::whole("6.12"),
    Boot::whole("6.1"),
    Boot::brief("5.10"),
    Boot {
        label: "two CPUs",
        processors: Processors::Many(2),
        wants: |test| test.starts_with("smp::"),
        ..Boot::whole("6.12")
    },
    Boot {
        label: "locked down",
        append: &["lockdown=confidentiality"],
        wants: |test| test.starts_with("lockdown::"),
        ..Boot::whole("6.12")
    },
    Boot::with_module("6.12"),
    Boot::with_module("6.1"),
    Boot::with_module("6.18"),
    Boot::with_module("7.3"),
    Boot::brief("6.18"),
    Boot::brief("7.0"),
    Boot::brief("7.3"),
];

/// The longest that a boot with its tests may take.
const LIMIT: Duration = Duration::from_mins(15);

/// Where the tests are in a guest.
const GUEST_TESTS: &str = "/bin/kernel-tests";

/// The test target that is for VMs, as cargo announces it.
const VM_TARGET: &str = "tests/kernel";

/// What came of one part of the whole.
struct Report {
    name: String,
    tally: Tally,
    took: Duration,
}

/// Runs the tests and sums them up.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.sanitize {
        return sanitize::run();
    }
    let setup = Setup::default();
    setup.toolchain()?;
    let mut reports = Vec::new();
    if !args.vm_only {
        reports.push(test_host(args)?);
    }
    if !args.host_only {
        reports.extend(test_vms(args, &setup)?);
    }
    let mut all = Tally::default();
    for report in &reports {
        all.add(&report.tally);
    }
    print!("{}", summary(&reports, &all));
    if all.passed + all.failed + all.skipped.len() == 0 {
        bail!("no test has a name like that");
    }
    Ok(if all.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// `cargo test`, seen as it runs.
fn test_host(args: &Args) -> Result<Report> {
    let start = Instant::now();
    let mut tally = Tally::default();
    // cargo hands on one filter only to a test target with its own harness.
    let filters: Vec<Option<&str>> = if args.filters.is_empty() {
        vec![None]
    } else {
        args.filters
            .iter()
            .map(|filter| Some(filter.as_str()))
            .collect()
    };
    for filter in filters {
        // One pipe for both streams keeps what they say in order.
        let (reader, writer) = io::pipe()?;
        let mut command = cargo();
        command
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(filter);
        if io::stdout().is_terminal() {
            command.args(["--color", "always"]);
        }
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("cannot run cargo test")?;
        // Else the pipe has a writer left and never ends: ourselves.
        drop(command);
        let mut target = String::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line?;
            let mut stdout = io::stdout().lock();
            stdout.write_all(&line)?;
            stdout.write_all(b"\n")?;
            let line = tally::strip_escapes(&String::from_utf8_lossy(&line));
            if let Some(running) = line.trim_start().strip_prefix("Running ") {
                running
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut target);
            }
            // These are skipped here because they are about to run elsewhere.
            let elsewhere = !args.host_only && target.starts_with(VM_TARGET);
            tally.read_line(&line, !elsewhere);
        }
        if !child.wait()?.success() && tally.failed == 0 {
            tally.fail("cargo test", "it failed before or besides the tests");
        }
    }
    Ok(Report {
        name: "this machine".to_owned(),
        tally,
        took: start.elapsed(),
    })
}

/// All the boots that are asked for, as many at a time as there are processors.
fn test_vms(args: &Args, setup: &Setup) -> Result<Vec<Report>> {
    let guest = Guest::build(setup, true)?;
    let tests = build_kernel_tests(setup)?;
    let mut reports = Vec::new();
    let mut planned = VecDeque::new();
    for boot in &BOOTS {
        let asked_for = args.kernels.is_empty()
            || args
                .kernels
                .iter()
                .any(|kernel| kernel.to_string() == boot.kernel);
        if !asked_for {
            continue;
        }
        let name = format!("{} {}", boot.kernel, boot.label);
        let selection = Selection::new(&tests, boot, &args.filters)?;
        if selection.wanted.is_empty() && !args.filters.is_empty() {
            continue;
        }
        let choice = boot.kernel.parse().map_err(anyhow::Error::msg)?;
        match Kernel::get(&choice, setup) {
            Ok(kernel) => planned.push_back((name, boot.vm(kernel, &tests), selection)),
            // On this machine they cannot run, unless the user knows better.
            Err(error) if args.kernels.is_empty() => {
                let reason = format!("{error:#}")
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                reports.push(selection.skip_all(name, &reason));
            }
            Err(error) => return Err(error),
        }
    }
    // What has to be found out once is not found out by two at once.
    setup.qemu()?;
    if let Some((_, vm, _)) = planned
        .iter()
        .find(|(_, vm, _)| vm.processors != Processors::Counted)
    {
        vm.effective_accel(setup, &guest)?;
    }
    eprintln!("test: {} VMs", planned.len());
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2);
    let planned = Mutex::new(planned);
    let done = Mutex::new(reports);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    // On a line of its own: in a `while let` the lock would be
                    // held, and the VMs wait for each other.
                    let next = lock(&planned).pop_front();
                    let Some((name, vm, selection)) = next else {
                        break;
                    };
                    let report = test_vm(setup, &guest, name, &vm, &selection);
                    lock(&done).push(report);
                }
            });
        }
    });
    let mut reports = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let order = |name: &str| {
        BOOTS
            .iter()
            .position(|boot| name == format!("{} {}", boot.kernel, boot.label))
    };
    reports.sort_by_key(|report| order(&report.name));
    Ok(reports)
}

/// A thread that panicked has left nothing half done in these.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Boot {
    fn vm(&self, kernel: Kernel, tests: &Path) -> Vm {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Vm {
            processors: self.processors,
            append: owned(self.append),
            modules: owned(self.modules),
            files: vec![AddedFile {
                host: tests.to_owned(),
                guest: PathBuf::from(GUEST_TESTS),
            }],
            environment: vec![
                ("KSYMS_TEST_KERNEL".to_owned(), self.kernel.to_owned()),
                ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
            ],
            limit: LIMIT,
            ..Vm::new(kernel)
        }
    }
}

/// The tests of a boot.
struct Selection {
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

impl Selection {
    fn new(tests: &Path, boot: &Boot, filters: &[String]) -> Result<Self> {
        let listed = read_output(
            Command::new(tests)
                .arg("--list")
                .env("KSYMS_TEST_KERNEL", boot.kernel),
        )?;
        let (wanted, unwanted) = parse_list(&listed).partition(|test| {
            (boot.wants)(test)
                && (filters.is_empty() || filters.iter().any(|filter| test.contains(filter)))
        });
        Ok(Self { wanted, unwanted })
    }

    /// The command that runs just these: the harness takes one name to run but
    /// any number of names to skip.
    fn command(&self) -> Vec<String> {
        let fixed = [GUEST_TESTS, "--test-threads=1", "--exact"].map(str::to_owned);
        let skip = self
            .unwanted
            .iter()
            .flat_map(|test| ["--skip".to_owned(), test.clone()]);
        fixed.into_iter().chain(skip).collect()
    }

    fn skip_all(&self, name: String, reason: &str) -> Report {
        let skip = |test: &String| Skip {
            test: test.clone(),
            reason: reason.to_owned(),
        };
        let tally = Tally {
            skipped: self.wanted.iter().map(skip).collect(),
            ..Tally::default()
        };
        Report {
            name,
            tally,
            took: Duration::ZERO,
        }
    }
}

/// The names in what a test binary answers to `--list`.
fn parse_list(listed: &str) -> impl Iterator<Item = String> {
    listed
        .lines()
        .filter_map(|line| Some(line.strip_suffix(": test")?.to_owned()))
}

/// One boot, shown as a block when it ends.
fn test_vm(setup: &Setup, guest: &Guest, name: String, vm: &Vm, selection: &Selection) -> Report {
    let start = Instant::now();
    // Apart, so that neither breaks the other's lines.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let command: Vec<_> = selection.command().into_iter().map(Into::into).collect();
    let mut keep = |stream, bytes: &[u8]| {
        match stream {
            Stream::Stdout => stdout.extend_from_slice(bytes),
            Stream::Stderr => stderr.extend_from_slice(bytes),
        }
        Ok(())
    };
    let outcome = vm.run(setup, guest, &command, &mut keep);
    let stdout = String::from_utf8_lossy(&stdout);
    let mut tally = Tally::default();
    for line in stdout.lines() {
        tally.read_line(line, true);
    }
    let mut remarks = String::new();
    match outcome {
        Err(error) => {
            remarks = format!("{error:#}");
            tally.fail("the VM", "it failed; see its block");
        }
        Ok(outcome) => {
            for complaint in outcome.console.complaints() {
                tally.fail("the kernel complains", complaint);
            }
            if tally.results == 0 {
                tally.fail("the tests", "they ended without a \"test result:\" line");
            } else if tally.passed + tally.failed + tally.skipped.len() == 0 {
                tally.fail("the tests", "none ran");
            } else if outcome.status != 0 && tally.failed == 0 {
                tally.fail(
                    "the tests",
                    &format!("they ended with status {}", outcome.status),
                );
            }
        }
    }
    if tally.failed > 0 {
        let stderr = String::from_utf8_lossy(&stderr);
        remarks = format!("---- standard error ----\n{}\n{remarks}", stderr.trim_end());
    }
    let report = Report {
        name,
        tally,
        took: start.elapsed(),
    };
    // In one piece, or two blocks would mix.
    let block = format!("\n==== {}\n{}\n{remarks}\n", report.line(), stdout.trim());
    let _reader_left = io::stdout().lock().write_all(block.as_bytes());
    report
}

impl Report {
    fn line(&self) -> String {
        format!(
            "{}: {}, {:.1} s",
            self.name,
            self.tally,
            self.took.as_secs_f64()
        )
    }
}

fn summary(reports: &[Report], all: &Tally) -> String {
    let mut text = String::from("\n==== Summary\n");
    for report in reports {
        text.push_str(&report.line());
        text.push('\n');
        for Skip { test, reason } in &report.tally.skipped {
            writeln!(text, "    skipped {test}: {reason}").expect("a string takes any text");
        }
        for failure in &report.tally.failures {
            writeln!(text, "    FAILED {failure}").expect("a string takes any text");
        }
    }
    writeln!(text, "{all}").expect("a string takes any text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_a_boot_that_wants_it() {
        for test in [
            "every_kernel::main_job",
            "faults::not_root",
            "lockdown::says_so",
            "smp::counts",
        ] {
            let kernels: Vec<_> = BOOTS
                .iter()
                .filter(|boot| (boot.wants)(test))
                .map(|boot| boot.kernel)
                .collect();
            let expected: &[&str] = match test.split("::").next() {
                Some("every_kernel") => &["6.12", "6.1", "5.10", "6.18", "7.0", "7.3"],
                Some("faults") => &["6.12", "6.1"],
                _ => &["6.12"],
            };
            assert_eq!(kernels, expected, "{test}");
        }
    }

    #[test]
    fn kernels_of_the_boots_exist() {
        for boot in BOOTS {
            assert!(boot.kernel.parse::<Choice>().is_ok(), "{}", boot.kernel);
        }
    }

    #[test]
    fn a_list_has_names_and_other_lines() {
        let listed = "a::b: test\nc: bench\nd: test\n\n2 tests, 1 benchmark\n";
        assert_eq!(parse_list(listed).collect::<Vec<_>>(), ["a::b", "d"]);
    }

    #[test]
    fn the_summary_ends_with_the_sum() {
        let mut tally = Tally::default();
        tally.read_line("test a ... ignored, no kernel", true);
        tally.read_line(
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured",
            true,
        );
        let reports = [Report {
            name: "6.12 x".to_owned(),
            tally,
            took: Duration::from_secs(2),
        }];
        let text = summary(&reports, &reports[0].tally);
        assert!(
            text.contains("\n6.12 x: 2 passed, 0 failed, 1 skipped, 2.0 s\n"),
            "{text}"
        );
        assert!(text.contains("skipped a: no kernel"), "{text}");
        assert!(
            text.ends_with("\n2 passed, 0 failed, 1 skipped\n"),
            "{text}"
        );
    }
}
