//! Threads that share a symbol table, under `ThreadSanitizer`.

use std::{
    env, fs,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};

use super::tally::Tally;
use crate::workspace::{cargo, read_output, root};

/// The tests in which threads share what they look up or build.
const TESTS: [&str; 3] = [
    "kallsyms::table::tests::lookups_while_batches_start_and_end",
    "kallsyms::table::tests::resolves_by_expanded_names",
    "kallsyms::table::tests::symbols_from_several_threads",
];

/// What of the standard library's doing looks like a race.
const SUPPRESSIONS: &str = "xtask/src/test/tsan.supp";

/// Builds and runs [`TESTS`], and prints one line of result.
///
/// A stable rustc takes the unstable flags, and the standard library is the
/// precompiled one: neither a nightly nor its source is needed.
pub(super) fn run() -> Result<ExitCode> {
    let start = Instant::now();
    if !has_runtime()? {
        println!("ThreadSanitizer: skipped, this rustc comes without it; rustup's has it");
        return Ok(ExitCode::SUCCESS);
    }
    let suppressions = root().join(SUPPRESSIONS);
    let mut command = cargo();
    command
        .args(["test", "--quiet", "--package", "ksyms-user", "--lib"])
        .args(["--no-default-features", "--target", "host-tuple"])
        .arg("--target-dir")
        .arg(root().join("target/tsan"))
        .args(["--", "--exact", "--test-threads=1"])
        .args(TESTS)
        .env("RUSTC_BOOTSTRAP", "1")
        // In place of .cargo/config.toml's: the sanitizer cannot be static.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "RUSTFLAGS",
            "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        )
        // Enough for reports, and built sooner.
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        // The longest memory of who wrote what: suppressions go by it too.
        .env(
            "TSAN_OPTIONS",
            format!("suppressions=\"{}\":history_size=7", suppressions.display()),
        );
    // Reports of races go to standard error, and each ends in a failure.
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo test")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut tally = Tally::default();
    for line in stdout.lines() {
        tally.read_line(line, true);
    }
    if !output.status.success() {
        bail!("a race, or a failed test, under ThreadSanitizer:\n{stdout}");
    }
    if tally.passed != TESTS.len() {
        bail!("not the tests that are to run under ThreadSanitizer: {tally}");
    }
    println!(
        "ThreadSanitizer: {tally}, no race, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether rustc comes with the sanitizer, as distributions' does not.
fn has_runtime() -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let directory = read_output(Command::new(rustc).args(["--print", "target-libdir"]))?;
    let files = fs::read_dir(directory.trim())
        .with_context(|| format!("cannot list {}", directory.trim()))?;
    for file in files {
        if file?
            .file_name()
            .as_encoded_bytes()
            .ends_with(b"_rt.tsan.a")
        {
            return Ok(true);
        }
    }
    Ok(false)
}
