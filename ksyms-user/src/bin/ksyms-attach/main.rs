//! `ksyms-attach`: attach one eBPF program to thousands of kernel functions,
//! count how often each is hit, and say what it cost.
//!
//! Only what belongs to a program is here: arguments, signals, COMMAND, where
//! output goes, and the exit code. The rest is the library.

mod args;
mod command;
mod count;
mod failure;
mod resolve;
mod selftest;
mod signals;
mod table;
mod terminal;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use clap::Parser as _;
use ksyms::{
    attach::lacks_kprobes,
    bench::Lock,
    kallsyms::Symbols,
    report::{Format, List},
    select::{Patterns, Selection, missing_modules, select, suggest},
    source::{Reading, SourceError, SymbolSource, Traceable},
};

use crate::{
    args::{Action, Args, Bench, BenchAttach},
    failure::Failure,
    terminal::{Talk, say},
};

fn main() -> ExitCode {
    let args = Args::parse();
    let talk = Talk::new(args.verbose);
    match run(args, talk) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough: `ksyms-attach … | head`.
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            say(&failure.to_string());
            failure.exit_code()
        }
    }
}

fn run(args: Args, talk: Talk) -> Result<(), Failure> {
    match args.action {
        None if args.list => list(&args, talk),
        None => count::count(&args, talk),
        Some(Action::Bench(bench)) => {
            let _lock = Lock::take()?;
            match bench {
                Bench::Attach(bench) => bench_attach(&bench, &args.symbols, talk),
                Bench::Resolve(bench) => resolve::bench_resolve(&bench, &args.symbols, talk),
            }
        }
        Some(Action::Selftest(selftest)) => selftest::selftest(&selftest, &args.symbols, talk),
    }
}

/// The first few of what may be thousands.
fn some(texts: &[String]) -> String {
    const SHOWN: usize = 5;
    match texts.len().checked_sub(SHOWN) {
        None | Some(0) => texts.join(", "),
        Some(more) => format!("{}, and {more} more", texts[..SHOWN].join(", ")),
    }
}

/// Writes to stdout through `write`, with one buffer.
fn output(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out)
        .and_then(|()| out.flush())
        .map_err(Failure::Output)
}

/// What the kernel has: its symbols, and which of them can be probed.
struct Machine {
    symbols: Symbols,
    traceable: Traceable,
}

impl Machine {
    /// Reads both, each once, as far as `patterns` need them. Where that fails
    /// and would be in vain as well, says so: a user should not mend one
    /// obstacle to find the next.
    fn read(source: &SymbolSource, patterns: &Patterns, talk: Talk) -> Result<Self, Failure> {
        Self::try_read(source, patterns, talk).map_err(|error| match lacks_kprobes() {
            Some(lack) if error.is_environment() => {
                Failure::Environment(format!("{lack}; moreover: {}", failure::chain(&error)))
            }
            _ => error.into(),
        })
    }

    fn try_read(
        source: &SymbolSource,
        patterns: &Patterns,
        talk: Talk,
    ) -> Result<Self, SourceError> {
        let modules = patterns.modules();
        let reading = read_symbols(source, modules.as_deref(), talk)?;
        Ok(Self {
            traceable: reading.traceable(modules.as_deref())?,
            symbols: reading.symbols,
        })
    }

    /// Finds what `patterns` mean here. Says which of them mean nothing; that
    /// none does is a failure.
    fn select(&self, patterns: &Patterns) -> Result<Selection<'_>, Failure> {
        let selection = select(&self.symbols, &self.traceable, patterns);
        let unmatched = (!selection.unmatched.is_empty()).then(|| {
            let near = suggest(&self.symbols, &self.traceable, &selection.unmatched);
            let missing = missing_modules(&self.symbols, &selection.unmatched);
            let near = match near.as_slice() {
                _ if !missing.is_empty() => {
                    format!("not loaded: module {}", missing.join(", "))
                }
                [] => "ksyms-attach --list --pattern '*' shows all names".to_owned(),
                names => format!("did you mean {}?", names.join(", ")),
            };
            format!("no function matches {}; {near}", some(&selection.unmatched))
        });
        match unmatched {
            _ if selection.matched() > 0 => {
                if let Some(unmatched) = unmatched {
                    say(&unmatched);
                }
                Ok(selection)
            }
            Some(unmatched) => Err(Failure::NoMatch(unmatched)),
            None => Err(Failure::NoMatch(
                "the patterns with ! take away all that the others match".to_owned(),
            )),
        }
    }
}

/// Reads the symbols of the core kernel and of `modules`, or of all of them.
fn read_symbols(
    source: &SymbolSource,
    modules: Option<&[&str]>,
    talk: Talk,
) -> Result<Reading, SourceError> {
    let reading = source.read(modules)?;
    let why = reading
        .passed_over
        .as_ref()
        .map_or_else(String::new, |why| {
            format!(", since {}", failure::chain(why))
        });
    talk.explain(&format!(
        "{} symbols read from {}{why}",
        reading.symbols.len(),
        reading.path.display(),
    ));
    Ok(reading)
}

fn list(args: &Args, talk: Talk) -> Result<(), Failure> {
    let patterns = args.patterns()?;
    let modules = patterns.modules();
    let reading = read_symbols(&args.symbols, modules.as_deref(), talk)?;
    let (traceable, known) = match reading.traceable(modules.as_deref()) {
        Ok(traceable) => (traceable, true),
        Err(error) => {
            say(&format!(
                "what can be attached is not known: {}",
                failure::chain(&error)
            ));
            (Traceable::Unknown, false)
        }
    };
    let machine = Machine {
        symbols: reading.symbols,
        traceable,
    };
    let selection = machine.select(&patterns)?;
    let list = List {
        selection: &selection,
        traceability_known: known,
    };
    output(|mut out| list.write(args.format.into(), &mut out))
}

fn bench_attach(args: &BenchAttach, symbols: &SymbolSource, talk: Talk) -> Result<(), Failure> {
    let patterns = args::patterns(&args.pattern)?;
    let machine = Machine::read(symbols, &patterns, talk)?;
    let selection = machine.select(&patterns)?;
    let targets = count::addresses(&selection)?;
    let bench = ksyms::bench::attach(
        &targets,
        &ksyms::bench::AttachBench {
            counts: args.counts.iter().map(|count| count.get()).collect(),
            samples: args.samples.get().into(),
            mode: args.mode,
        },
    )?;
    output(|mut out| bench.write(Format::from(args.format), &mut out))
}
