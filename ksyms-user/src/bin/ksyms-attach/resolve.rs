//! `bench resolve`.

use std::{
    any::Any,
    fs::File,
    io::{self, Read},
};

use ksyms::{
    bench::{ResolveBench, Source, resolve},
    report::Format,
    source::SymbolSource,
};

use crate::{
    args::BenchResolve,
    failure::{Failure, chain},
    output,
    table::Loaded,
    terminal::Talk,
};

const KALLSYMS: &str = "/proc/kallsyms";

pub(crate) fn bench_resolve(
    args: &BenchResolve,
    symbols: &SymbolSource,
    talk: Talk,
) -> Result<(), Failure> {
    let loaded = Loaded::read(symbols, talk)?;
    let read = |source: SymbolSource| {
        move || {
            let reading = source.read(None).map_err(|error| chain(&error))?;
            // Up to its first answer.
            reading.symbols.named("vfs_read").next();
            Ok(reading)
        }
    };
    let bench = resolve(ResolveBench {
        iters: args.iters,
        table: loaded.table(),
        origin: loaded.origin(),
        symbols: loaded.symbols(),
        text: loaded.text(),
        sources: vec![
            source_of(talk, "kcore", read(SymbolSource::Kcore)),
            source_of(talk, "proc", read(SymbolSource::Proc)),
            source_of(talk, "proc-read-only", || {
                read_only().map_err(|error| format!("reading {KALLSYMS} failed: {error}"))
            }),
        ],
    })?;
    output(|mut out| bench.write(Format::from(args.format), &mut out))
}

/// A source that says why it cannot be measured, to who wants to know.
fn source_of<T: Any>(
    talk: Talk,
    name: &'static str,
    read: impl Fn() -> Result<T, String> + 'static,
) -> Source<'static> {
    Source {
        name,
        read: Box::new(move || match read() {
            Ok(read) => Some(Box::new(read)),
            Err(error) => {
                talk.explain(&format!("source/{name} is not measured: {error}"));
                None
            }
        }),
    }
}

/// Reads the text to its end and keeps nothing.
fn read_only() -> io::Result<()> {
    let mut text = File::open(KALLSYMS)?;
    let mut buffer = vec![0; 1 << 16];
    while text.read(&mut buffer)? > 0 {}
    Ok(())
}
