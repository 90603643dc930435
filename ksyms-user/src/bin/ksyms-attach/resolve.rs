//! `bench resolve`.

use std::{
    any::Any,
    fs::{self, File},
    io::Read,
    sync::Arc,
};

use ksyms::{
    bench::{ResolveBench, Source, resolve},
    report::Format,
    select::select,
    source::{SourceError, SymbolSource},
};

use crate::{
    args::{self, BenchResolve},
    failure::{Failure, chain},
    output,
    table::Loaded,
    terminal::Talk,
};

const KALLSYMS: &str = "/proc/kallsyms";

/// What `pattern/…` resolves.
const PATTERN: &str = "tcp_*";

pub(crate) fn bench_resolve(
    args: &BenchResolve,
    symbols: &SymbolSource,
    talk: Talk,
) -> Result<(), Failure> {
    let resident = resident_table(symbols);
    let loaded = Loaded::read(symbols, talk)?;
    let read = |source: SymbolSource| {
        move || {
            let reading = source.read(None)?;
            // Up to its first answer.
            reading.symbols.named("vfs_read").next();
            Ok(reading)
        }
    };
    let patterns = Arc::new(args::patterns(&[PATTERN.to_owned()])?);
    let pattern = |source: SymbolSource| {
        let patterns = patterns.clone();
        move || {
            let reading = source.read(None)?;
            let traceable = reading.traceable(None)?;
            let selection = select(&reading.symbols, &traceable, &patterns);
            let addresses = selection.targets.iter().map(|target| target.address);
            Ok(addresses.collect::<Vec<_>>())
        }
    };
    let bench = resolve(ResolveBench {
        iters: args.iters,
        table: loaded.table(),
        origin: loaded.origin(),
        symbols: loaded.symbols(),
        text: loaded.text(),
        resident,
        sources: vec![
            source_of(talk, "source/kcore", read(SymbolSource::Kcore)),
            source_of(talk, "source/proc", read(SymbolSource::Proc)),
            source_of(talk, "source/proc-read-only", read_only),
            source_of(talk, "pattern/kcore", pattern(SymbolSource::Kcore)),
            source_of(talk, "pattern/proc", pattern(SymbolSource::Proc)),
        ],
    })?;
    output(|mut out| bench.write(Format::from(args.format), &mut out))
}

/// A source that says why it cannot be measured, to who wants to know.
fn source_of<T: Any>(
    talk: Talk,
    row: &'static str,
    read: impl Fn() -> Result<T, SourceError> + 'static,
) -> Source<'static> {
    Source {
        row,
        read: Box::new(move || match read() {
            Ok(read) => Some(Box::new(read)),
            Err(error) => {
                talk.explain(&format!("{row} is not measured: {}", chain(&error)));
                None
            }
        }),
    }
}

/// What a table and its index of names add to this process, before anything else
/// has left memory behind. Text leaves more behind than it becomes: of that it
/// is not told.
fn resident_table(source: &SymbolSource) -> Option<u64> {
    if let SymbolSource::File(path) = source
        && !path.is_file()
    {
        // A pipe can be read once.
        return None;
    }
    let before = resident()?;
    let reading = source.read(Some(&[])).ok()?;
    reading.symbols.table()?.prepare();
    resident()?.checked_sub(before)
}

/// The memory of this process that is there, in bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Reads the text to its end and keeps nothing.
fn read_only() -> Result<(), SourceError> {
    let fail = |call| {
        move |source| SourceError::Io {
            call,
            path: KALLSYMS.into(),
            source,
        }
    };
    let mut text = File::open(KALLSYMS).map_err(fail("open"))?;
    let mut buffer = vec![0; 1 << 16];
    while text.read(&mut buffer).map_err(fail("read"))? > 0 {}
    Ok(())
}
