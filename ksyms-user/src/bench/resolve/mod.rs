//! What looking symbols up costs: in the four ways kernels do it, in the one
//! this library does, and in those of others.
//!
//! Names are answered for names that are there and names that are not: the
//! latter are like the former but for their last character, so that a search
//! for them goes as far. Every answer is checked, outside of what is timed.

mod peers;
mod queries;
mod turns;

use std::{
    any::Any,
    fmt::{self, Write as _},
    hint::black_box,
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
    path::Path,
    time::{Duration, Instant},
};

use serde::Serialize;

use self::{
    peers::Aya,
    queries::{Listing, Names, Place, Set, places},
    turns::{CHUNK, Outcome, Run, Turn},
};
use super::{Bench, Row, Subject, Summary};
use crate::{
    kallsyms::{Plan, Resolved, Step, SymbolTable, Symbols, TableError, TableParts},
    report::grouped,
    source::Kernel,
};

/// The lookups by name, as rows call them.
const STEPS: [(&str, Step); 4] = [
    ("step1", Step::Expand),
    ("step2", Step::Tokens),
    ("step3", Step::Batch),
    ("step4", Step::Sequence),
];

/// The numbers of names that are resolved at once, besides all of them.
const BATCHES: [usize; 4] = [10, 100, 1_000, 10_000];

/// What is measured, and on what.
pub struct ResolveBench<'a> {
    /// Lookups of each kind; slow ones get fewer.
    pub iters: NonZeroUsize,
    /// The table, as it was read: no lookup should have been made in it.
    pub table: &'a SymbolTable,
    /// Where it came from, in words.
    pub origin: String,
    /// What it was encoded from, if it was.
    pub symbols: Option<&'a Symbols>,
    /// A text of the same symbols, for those that read one.
    pub text: Option<&'a Path>,
    /// Bytes that a table with its index of names adds to a process, if known.
    pub resident: Option<u64>,
    /// What else is to be measured: ways to read the running kernel's symbols.
    pub sources: Vec<Source<'a>>,
}

/// A way to read the running kernel's symbols.
pub struct Source<'a> {
    /// Its row.
    pub row: &'static str,
    /// Reads all, up to where the result could answer; `None` where that
    /// cannot be done. What it returns is dropped outside of what is timed.
    pub read: Box<dyn FnMut() -> Option<Box<dyn Any>> + 'a>,
}

/// What the lookups were made in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resolve {
    table: Table,
    /// The names of the set `hot`.
    hot: Vec<String>,
    /// How `batch+index` went about it, by the number of names.
    plans: Vec<Planned>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Table {
    origin: String,
    symbols: usize,
    names_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Planned {
    names: usize,
    plan: &'static str,
}

/// The note below the table.
impl fmt::Display for Resolve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table {
            origin,
            symbols,
            names_bytes,
        } = &self.table;
        writeln!(
            f,
            "x step1: how many times faster than step1 of the same set, hit or miss (batches: than \
             step1/all)\nns: of one lookup, name or address; of the whole for setup, teardown, \
             walk, build, encode, source\na sample: up to {} lookups that take about 1 ms and are \
             timed together, one batch or one whole",
            grouped(CHUNK as u64)
        )?;
        writeln!(
            f,
            "{} symbols of {origin}, names {} bytes; hot: {}",
            grouped(*symbols as u64),
            grouped(*names_bytes as u64),
            self.hot.join(", ")
        )?;
        f.write_str("batch+index took:")?;
        for (at, Planned { names, plan }) in self.plans.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {plan} for {}", grouped(*names as u64))?;
        }
        Ok(())
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// A lookup found what it should not, or not what it should.
    #[error("{row}: a wrong answer; `ksyms-attach selftest` with the same --symbols says which")]
    Wrong {
        /// The row that was being measured.
        row: String,
    },
    /// The parts of the table make no table.
    #[error("the table cannot be made a second time")]
    Table(#[from] TableError),
}

/// Measures lookups in a table of symbols. Rows:
///
/// | row | is |
/// |---|---|
/// | `step1` to `step4` | [`Step`], the last two within a batch |
/// | `fast` | [`SymbolTable::resolve`], its index ready |
/// | `batch` | [`SymbolTable::resolve_batch`], the same |
/// | `batch+index` | the same in a table made anew: all that it builds counts |
/// | `std-hashmap`, `proc-scan`, `aya`, `blazesym` | what others do |
/// | `setup`, `teardown`, `index` | [`SymbolTable::batch_start`], its end, and the size of its index |
/// | `break_even` | lookups (step 2 against step 3, all, hit) that pay for setup and teardown |
/// | `walk`, `addr/plain`, `addr/offset`, and each `+batch` | all symbols; address to `name`, to `name+0x1/0x2` |
/// | `fast/setup`, `fast/index` | building the index of `fast`, and its size |
/// | `encode` | [`SymbolTable::encode`] of the symbols of a text |
/// | `resident` | what a table with its index adds to a process |
/// | others | the sources given |
///
/// Lookups by name are `<lookup>/<hot|all|n10…|nall>/<hit|miss>`. `aya` reads
/// the running kernel's symbols and is asked for those.
///
/// # Errors
///
/// When an answer is wrong.
pub fn resolve(bench: ResolveBench<'_>) -> Result<Bench, ResolveError> {
    let ResolveBench {
        iters,
        table,
        origin,
        symbols,
        text,
        resident,
        sources,
    } = bench;
    let iters = iters.get();
    // As they were read: without what the lookups below build.
    let parts = table.to_parts();
    let sizes = batch_sizes(table.len());
    let (plans, fast_index) = of_fresh(&parts, &sizes)?;
    table.prepare();

    let listing = Listing::of(table);
    let first = listing.first();
    let names = Names::draw(listing.names.iter().collect(), &first);
    let sets = names.sets(|name| symbol(first.get(name).copied()));
    let address_sets = names.sets(|name| answer(first.get(name).map(|&s| listing.addresses[s])));
    let found_sets = names.sets(|name| u64::from(first.contains_key(name)));
    let places = places(&listing);
    let plain = Addresses::new(&places, |place| place.name.len());
    let offset = Addresses::new(&places, |place| place.to_string().len());
    let hash_map = peers::hash_map(table);
    let aya = Aya::read();
    let aya = aya.as_ref().map(AyaGround::new);
    #[cfg(feature = "blazesym")]
    let blazesym = text.map(|text| BlazesymGround::new(text, &places));

    let mut lookups = steps(table, &sets);
    lookups.push(Lookup::new("fast", &sets, |name| {
        symbol(table.resolve(name).next())
    }));
    lookups.push(Lookup::new("std-hashmap", &address_sets, |name| {
        answer(hash_map.get(name).copied())
    }));
    lookups.extend(text.map(|text| {
        Lookup::new("proc-scan", &found_sets, |name| {
            peers::scan(text, name).map_or(u64::MAX, u64::from)
        })
    }));
    lookups.extend(aya.as_ref().map(AyaGround::lookup));
    let mut turns = by_name(&lookups, iters);
    turns.extend(by_batch(table, &parts, &sets, &sizes, iters));
    turns.extend(batch_costs(table));
    turns.push(Turn::of_one("fast/setup", 3, fast_setup(&parts)));
    turns.extend(walks(table));
    turns.extend(by_address(table, &plain, &offset, iters));
    turns.extend(aya.as_ref().map(|aya| aya.by_address(iters)));
    #[cfg(feature = "blazesym")]
    turns.extend(blazesym.as_ref().map(|blazesym| blazesym.by_address(iters)));
    let mut build = |name: &str, run| turns.push(Turn::of_one(name, 1, run));
    build("std-hashmap/build", whole(|| Some(peers::hash_map(table))));
    build(
        "aya/build",
        whole(|| aya.as_ref().and_then(|_| Aya::read_symbols())),
    );
    build("encode", whole(|| SymbolTable::encode(symbols?).ok()));
    for mut source in sources {
        let run = whole(move || (source.read)());
        build(source.row, run);
    }

    let mut rows = turns::take(turns, iters)?;
    rows.extend(break_even(&rows));
    rows.extend(bytes("index", table.batch_start().index_bytes() as u64));
    rows.extend(bytes("fast/index", fast_index as u64));
    rows.extend(resident.and_then(|resident| bytes("resident", resident)));
    let subject = Resolve {
        table: Table {
            origin,
            symbols: table.len(),
            names_bytes: table.names_bytes(),
        },
        hot: names.hot().map(str::to_owned).collect(),
        plans,
    };
    Ok(Bench::new(
        Subject::Resolve(subject),
        Kernel::running(),
        rows,
    ))
}

/// A way to look names up, and the names with what it must answer.
struct Lookup<'a> {
    name: &'static str,
    sets: &'a [Set<'a>; 4],
    run: Box<dyn Fn(&'a Set<'a>) -> Run<'a> + 'a>,
    batch: Option<&'a SymbolTable>,
}

impl<'a> Lookup<'a> {
    fn new(
        name: &'static str,
        sets: &'a [Set<'a>; 4],
        find: impl Fn(&str) -> u64 + Copy + 'a,
    ) -> Self {
        Self {
            name,
            sets,
            run: Box::new(move |set| lookups(set, find)),
            batch: None,
        }
    }
}

/// The lookups of the kernel, those that can use a batch within one.
fn steps<'a>(table: &'a SymbolTable, sets: &'a [Set<'a>; 4]) -> Vec<Lookup<'a>> {
    let lookup = |(name, step)| Lookup {
        batch: matches!(step, Step::Batch | Step::Sequence).then_some(table),
        ..Lookup::new(name, sets, move |name| symbol(table.first(step, name)))
    };
    STEPS.into_iter().map(lookup).collect()
}

/// What is compared stands together: a set's lookups.
fn by_name<'a>(lookups: &[Lookup<'a>], iters: usize) -> Vec<Turn<'a>> {
    let turn = |at: usize, lookup: &Lookup<'a>| {
        let set = &lookup.sets[at];
        Turn::of_many(set.row(lookup.name), iters, (lookup.run)(set))
            .against(set.row("step1"))
            .within(lookup.batch)
    };
    let sets = 0..4;
    sets.flat_map(|at| lookups.iter().map(move |lookup| turn(at, lookup)))
        .collect()
}

/// Many names at once, of all, with the index ready and from nothing.
fn by_batch<'a>(
    table: &'a SymbolTable,
    parts: &'a TableParts,
    sets: &'a [Set<'a>; 4],
    sizes: &[usize],
    iters: usize,
) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    for set in sets.iter().filter(|set| set.name == "all") {
        for &size in sizes {
            let batch = if size == table.len() {
                "nall".to_owned()
            } else {
                format!("n{size}")
            };
            let name = |lookup: &str| format!("{lookup}/{batch}/{}", set.kind);
            let (ready, fresh) = (batches(set, size, table), fresh_batches(set, size, parts));
            turns.extend([
                Turn::of_many(name("batch"), iters, ready).against(set.row("step1")),
                Turn::of_one(name("batch+index"), 3, fresh).against(set.row("step1")),
            ]);
        }
    }
    turns
}

/// aya, and what it is asked.
struct AyaGround<'a> {
    aya: &'a Aya,
    sets: [Set<'a>; 4],
    addresses: Addresses,
}

impl<'a> AyaGround<'a> {
    fn new(aya: &'a Aya) -> Self {
        let first = aya.first();
        Self {
            aya,
            sets: aya.names.sets(|name| answer(first.get(name).copied())),
            addresses: Addresses {
                all: aya.addresses(),
            },
        }
    }

    fn lookup(&'a self) -> Lookup<'a> {
        Lookup::new("aya", &self.sets, |name| answer(self.aya.find(name)))
    }

    fn by_address(&self, iters: usize) -> Turn<'_> {
        let print = |address, out: &mut String| {
            out.push_str(self.aya.at(address).unwrap_or_default());
        };
        Turn::of_many("aya/addr".to_owned(), iters, self.addresses.run(print))
    }
}

/// blazesym, and what it is asked.
#[cfg(feature = "blazesym")]
struct BlazesymGround {
    blazesym: peers::Blazesym,
    addresses: Addresses,
}

#[cfg(feature = "blazesym")]
impl BlazesymGround {
    fn new(text: &Path, places: &[Place<'_>]) -> Self {
        let blazesym = peers::Blazesym::new(text);
        // Of several names at an address it may choose another.
        let same = |place: &&Place<'_>| {
            blazesym.at(place.address, |name| name == place.name) == Some(true)
        };
        Self {
            addresses: Addresses::new(places.iter().filter(same), |place| place.name.len()),
            blazesym,
        }
    }

    fn by_address(&self, iters: usize) -> Turn<'_> {
        let print = |address, out: &mut String| {
            self.blazesym.at(address, |name| out.push_str(name));
        };
        Turn::of_many("blazesym/addr".to_owned(), iters, self.addresses.run(print))
    }
}

fn bytes(name: &str, bytes: u64) -> Option<Row> {
    Some(Row {
        name: name.to_owned(),
        unit: "bytes",
        summary: Summary::of_whole(&[bytes])?,
        ratio: None,
    })
}

/// What a lookup answers: 0 for nothing.
fn answer(found: Option<u64>) -> u64 {
    found.map_or(0, |value| value.wrapping_add(1))
}

/// The same for the first symbol of a name.
fn symbol(found: Option<usize>) -> u64 {
    answer(found.map(|symbol| symbol as u64))
}

/// The numbers of names to resolve at once: those there are so many names for.
fn batch_sizes(symbols: usize) -> Vec<usize> {
    let fewer = BATCHES.into_iter().filter(|&size| size < symbols);
    fewer.chain([symbols]).collect()
}

/// What a table just read does with so many names, and the size of the index
/// that it builds for the fast path.
fn of_fresh(parts: &TableParts, sizes: &[usize]) -> Result<(Vec<Planned>, usize), TableError> {
    let table = SymbolTable::from_parts(parts.clone())?;
    let plans = sizes.iter().map(|&names| Planned {
        names,
        plan: match table.plan(names) {
            Plan::Search => "search",
            Plan::Pass => "pass",
            Plan::Index => "index",
        },
    });
    let plans = plans.collect();
    let before = table.heap_bytes();
    table.prepare();
    Ok((plans, table.heap_bytes() - before))
}

/// Looks up the names of `set` in turn, around and around.
fn lookups<'a>(set: &'a Set<'_>, find: impl Fn(&str) -> u64 + 'a) -> Run<'a> {
    let mut next = 0;
    Box::new(move |count| {
        let len = set.names.len();
        let (mut at, mut sum) = (next, 0_u64);
        let start = Instant::now();
        for _ in 0..count {
            sum = sum.wrapping_add(black_box(find(black_box(set.names[at]))));
            at += 1;
            if at == len {
                at = 0;
            }
        }
        let time = start.elapsed();
        let answers = set.answers.iter().cycle().skip(next).take(count);
        next = at;
        let expected = answers.fold(0, |sum: u64, answer| sum.wrapping_add(*answer));
        outcome(time, count, sum == expected)
    })
}

/// Resolves `size` names of `set` at once, and the next ones, around and around.
fn batches<'a>(set: &'a Set<'_>, size: usize, table: &'a SymbolTable) -> Run<'a> {
    let mut ranges = Ranges::new(set, size);
    Box::new(move |count| {
        let calls = (count / size).max(1);
        let (mut at, mut sum) = (ranges, 0_u64);
        let start = Instant::now();
        for _ in 0..calls {
            let resolved = table.resolve_batch(black_box(&set.names[at.take()]));
            sum = sum.wrapping_add(firsts(&resolved));
        }
        let time = start.elapsed();
        let mut expected = 0_u64;
        for _ in 0..calls {
            expected = expected.wrapping_add(sum_of(&set.answers[ranges.take()]));
        }
        outcome(time, calls * size, sum == expected)
    })
}

/// The same, once, in a table that was made for it.
fn fresh_batches<'a>(set: &'a Set<'_>, size: usize, parts: &'a TableParts) -> Run<'a> {
    let mut ranges = Ranges::new(set, size);
    Box::new(move |_| {
        let Ok(table) = SymbolTable::from_parts(parts.clone()) else {
            return Outcome::Absent;
        };
        let range = ranges.take();
        let start = Instant::now();
        let resolved = table.resolve_batch(black_box(&set.names[range.clone()]));
        let sum = firsts(&resolved);
        let time = start.elapsed();
        outcome(time, size, sum == sum_of(&set.answers[range]))
    })
}

/// Ranges of `size`, one after the other, from the start again when the rest is
/// too short.
#[derive(Clone, Copy)]
struct Ranges {
    at: usize,
    size: usize,
    len: usize,
}

impl Ranges {
    const fn new(set: &Set<'_>, size: usize) -> Self {
        Self {
            at: 0,
            size,
            len: set.names.len(),
        }
    }

    const fn take(&mut self) -> Range<usize> {
        if self.at + self.size > self.len {
            self.at = 0;
        }
        let start = self.at;
        self.at += self.size;
        start..self.at
    }
}

/// The sum of the first answers to each name.
fn firsts(resolved: &Resolved) -> u64 {
    let first = |symbols: &[u32]| symbol(symbols.first().map(|&symbol| symbol as usize));
    resolved.iter().map(first).sum()
}

fn sum_of(answers: &[u64]) -> u64 {
    answers.iter().sum()
}

const fn outcome(time: Duration, operations: usize, right: bool) -> Outcome {
    if right {
        Outcome::Took(time, operations)
    } else {
        Outcome::Wrong
    }
}

/// Times one operation; what it returns is dropped afterwards.
fn whole<'a, T>(mut run: impl FnMut() -> Option<T> + 'a) -> Run<'a> {
    Box::new(move |_| {
        let start = Instant::now();
        let kept = black_box(run());
        let time = start.elapsed();
        kept.map_or(Outcome::Absent, |_| Outcome::Took(time, 1))
    })
}

/// Starting and ending a batch.
fn batch_costs(table: &SymbolTable) -> [Turn<'_>; 2] {
    const TIMES: usize = 5;
    let end = move |_| {
        let batch = table.batch_start();
        let start = Instant::now();
        drop(batch);
        Outcome::Took(start.elapsed(), 1)
    };
    [
        Turn::of_one("setup", TIMES, whole(|| Some(table.batch_start()))),
        Turn::of_one("teardown", TIMES, Box::new(end)),
    ]
}

/// Building the index of names.
fn fast_setup(parts: &TableParts) -> Run<'_> {
    Box::new(move |_| {
        let Ok(table) = SymbolTable::from_parts(parts.clone()) else {
            return Outcome::Absent;
        };
        let start = Instant::now();
        table.prepare();
        Outcome::Took(start.elapsed(), 1)
    })
}

/// How many lookups without the index of a batch take as much more time as
/// starting and ending a batch does.
fn break_even(rows: &[Row]) -> Option<Row> {
    let median = |name: &str| {
        let row = rows.iter().find(|row| row.name == name)?;
        Some(row.summary.median)
    };
    let saved = median("step2/all/hit")? - median("step3/all/hit")?;
    let lookups = (median("setup")? + median("teardown")?) / saved;
    (saved > 0.0).then_some(())?;
    Some(Row {
        name: "break_even".to_owned(),
        unit: "lookups",
        summary: Summary::of(vec![lookups.ceil()])?,
        ratio: None,
    })
}

/// All symbols, without a batch and within one.
fn walks(table: &SymbolTable) -> [Turn<'_>; 2] {
    const TIMES: usize = 5;
    let walk = move || {
        let mut sum = 0;
        let end: ControlFlow<()> = table.walk(|_, symbol| {
            sum += black_box(symbol).name.len();
            ControlFlow::Continue(())
        });
        end.is_continue().then_some(sum)
    };
    [
        Turn::of_one("walk", TIMES, whole(walk)),
        Turn::of_one("walk+batch", TIMES, whole(walk)).within(Some(table)),
    ]
}

/// Addresses to look up, and how long the answers are.
struct Addresses {
    all: Vec<(u64, usize)>,
}

impl Addresses {
    fn new<'p>(
        places: impl IntoIterator<Item = &'p Place<'p>>,
        len: impl Fn(&Place<'_>) -> usize,
    ) -> Self {
        let all = places.into_iter().map(|place| (place.address, len(place)));
        Self { all: all.collect() }
    }

    /// Looks them up in turn, around and around; `print` writes the answer.
    fn run<'a>(&'a self, print: impl Fn(u64, &mut String) + 'a) -> Run<'a> {
        let (mut next, mut out) = (0, String::new());
        Box::new(move |count| {
            let len = self.all.len();
            if len == 0 {
                return Outcome::Absent;
            }
            let (mut at, mut sum) = (next, 0);
            let start = Instant::now();
            for _ in 0..count {
                out.clear();
                print(black_box(self.all[at].0), &mut out);
                sum += black_box(&out).len();
                at += 1;
                if at == len {
                    at = 0;
                }
            }
            let time = start.elapsed();
            let expected = self.all.iter().cycle().skip(next).take(count);
            next = at;
            outcome(
                time,
                count,
                sum == expected.map(|(_, len)| len).sum::<usize>(),
            )
        })
    }
}

/// Address to name, with and without the offset, without a batch and within
/// one.
fn by_address<'a>(
    table: &'a SymbolTable,
    plain: &'a Addresses,
    offset: &'a Addresses,
    iters: usize,
) -> Vec<Turn<'a>> {
    // Writing to a String does not fail.
    let print_plain = move |address, out: &mut String| {
        if let Some(described) = table.describe(address) {
            let _ = write!(out, "{described:#}");
        }
    };
    let print_offset = move |address, out: &mut String| {
        if let Some(described) = table.describe(address) {
            let _ = write!(out, "{described}");
        }
    };
    let turn = |name: &str, run| Turn::of_many(name.to_owned(), iters, run);
    vec![
        turn("addr/plain", plain.run(print_plain)),
        turn("addr/plain+batch", plain.run(print_plain)).within(Some(table)),
        turn("addr/offset", offset.run(print_offset)),
        turn("addr/offset+batch", offset.run(print_offset)).within(Some(table)),
    ]
}

#[cfg(test)]
mod tests;
