//! The command line.

use std::{
    ffi::OsString,
    num::{NonZeroU8, NonZeroUsize},
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};
use ksyms::{attach::Mode, report::Format, select::Patterns, source::SymbolSource};

use crate::failure::Failure;

const AFTER_HELP: &str = "\
Patterns (repeatable, in any order):
  tcp_*          glob over function names: * ? [a-z]
  nf_nat:*       only of this module; vmlinux:tcp_* only of the core kernel
                 (quote * ? ! from the shell)
  !tcp_ca_*      takes away
  /^tcp_v[46]_/  regular expression
  @FILE          one pattern a line

Needs root, or CAP_BPF, CAP_PERFMON and CAP_SYSLOG (CAP_SYS_RAWIO makes the start
faster); and a kernel with kprobes that is not locked down.

Counting ends after --duration, when COMMAND ends, or at Ctrl-C, whichever is
first, and always prints its result. stdout is data only; COMMAND's own output
goes to stderr.

Exit codes: 0 done; 1 failed while running; 2 usage, or nothing matched;
3 this machine or user cannot attach. A failing COMMAND does not change them.";

/// Attach one eBPF program to thousands of kernel functions, count how often
/// each is hit, and say what it cost.
#[derive(Debug, Parser)]
#[command(
    name = "ksyms-attach",
    version,
    after_help = AFTER_HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    subcommand_help_heading = "Subcommands",
    subcommand_value_name = "SUBCOMMAND"
)]
pub(crate) struct Args {
    /// Functions to attach to (see below).
    #[arg(long, value_name = "PAT", required = true)]
    pub(crate) pattern: Vec<String>,

    /// How long to count, for example 10s, 500ms, 1m [default: until COMMAND
    /// ends or Ctrl-C].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// How many functions to print, those with most hits first; 0 for all
    /// [default: 20 in a table, else all].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = FormatName::Table)]
    pub(crate) format: FormatName,

    /// How to attach: multi (one kprobe.multi link), event (one trace event of
    /// all probes), perf (a perf kprobe each), auto (the best this kernel has).
    #[arg(long, default_value_t = Mode::Auto)]
    pub(crate) mode: Mode,

    /// Only list what would be attached, and what not and why.
    #[arg(long, conflicts_with_all = ["duration", "top", "mode", "command"])]
    pub(crate) list: bool,

    /// Where to read symbols from: kcore (the kernel's memory), proc
    /// (/proc/kallsyms), FILE (a saved copy of it, a System.map or a vmlinux),
    /// auto (the fastest that works).
    #[arg(
        long,
        value_name = "auto|kcore|proc|FILE",
        default_value_t,
        value_parser = parse_symbols,
        global = true
    )]
    pub(crate) symbols: SymbolSource,

    /// Say more on stderr, with the diagnostics of the eBPF side.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,

    /// Count while this command runs.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(subcommand)]
    pub(crate) action: Option<Action>,
}

impl Args {
    pub(crate) fn patterns(&self) -> Result<Patterns, Failure> {
        patterns(&self.pattern)
    }

    /// How many functions to print; `None` for all.
    pub(crate) fn top(&self) -> Option<usize> {
        match (self.top, self.format) {
            (Some(0), _) => None,
            (None, FormatName::Table) => Some(20),
            (top, _) => top,
        }
    }
}

pub(crate) fn patterns(texts: &[String]) -> Result<Patterns, Failure> {
    Ok(Patterns::parse(texts)?)
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Measure what attaching, or looking symbols up, costs.
    #[command(subcommand)]
    Bench(Bench),
    /// Look up every symbol in every way, and check each answer.
    Selftest(Selftest),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What attaching and detaching cost beside a bare link to the same
    /// functions.
    Attach(BenchAttach),
    /// What looking symbols up costs: as kernels do it, as this tool does, and
    /// as others do.
    Resolve(BenchResolve),
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchAttach {
    /// How many functions to attach at a time.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "100,1000,5000,20000"
    )]
    pub(crate) counts: Vec<NonZeroUsize>,

    /// Samples of each figure.
    #[arg(long, default_value = "5")]
    pub(crate) samples: NonZeroU8,

    /// Functions to take them from, spread evenly.
    #[arg(long, value_name = "PAT", default_value = "*")]
    pub(crate) pattern: Vec<String>,

    /// How to attach.
    #[arg(long, default_value_t = Mode::Auto)]
    pub(crate) mode: Mode,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = FormatName::Table)]
    pub(crate) format: FormatName,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchResolve {
    /// Lookups of each kind; slow ones get fewer.
    #[arg(long, value_name = "N", default_value = "100000")]
    pub(crate) iters: NonZeroUsize,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = FormatName::Table)]
    pub(crate) format: FormatName,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Selftest {
    /// How often each symbol is looked up.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) iters: NonZeroUsize,

    /// How to print the result.
    #[arg(long, value_enum, default_value_t = FormatName::Table)]
    pub(crate) format: FormatName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// Columns for people.
    Table,
    /// One JSON document.
    Json,
    /// Comma-separated values.
    Csv,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Table => Self::Table,
            FormatName::Json => Self::Json,
            FormatName::Csv => Self::Csv,
        }
    }
}

/// A word, or a file that is there.
fn parse_symbols(text: &str) -> Result<SymbolSource, String> {
    let Ok(source) = text.parse();
    match &source {
        SymbolSource::File(path) if !path.exists() => {
            Err("there is no such file; give auto, kcore, proc, or the path of a file".to_owned())
        }
        _ => Ok(source),
    }
}

/// `10s`, `1m 30s`, `250ms`; a bare number is seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 10s, 500ms or 1m"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_are_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "-1", "inf", "nan", "10 parsecs", "1e30"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_is_cut_where_other_formats_are_whole() {
        let top = |arguments: &[&str]| {
            let all = ["ksyms-attach", "--pattern", "x"].iter().chain(arguments);
            Args::parse_from(all).top()
        };
        assert_eq!(top(&[]), Some(20));
        assert_eq!(top(&["--format", "json"]), None);
        assert_eq!(top(&["--format", "json", "--top", "3"]), Some(3));
        assert_eq!(top(&["--top", "0"]), None);
    }

    #[test]
    fn command_and_its_arguments_are_its_own() {
        let args = Args::parse_from([
            "ksyms-attach",
            "--pattern",
            "x",
            "--",
            "ls",
            "--pattern",
            "-v",
        ]);
        assert_eq!(args.command, ["ls", "--pattern", "-v"]);
        assert_eq!(args.pattern, ["x"]);
        assert!(!args.verbose);
    }
}
