//! The questions, and what is wrong with an answer.

use std::{
    collections::HashMap,
    fmt::Debug,
    hint::black_box,
    iter,
    num::NonZeroUsize,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{Check, absent, expected::Expected};
use crate::{
    kallsyms::{Described, NameBuffer, Place, Plan, Step, SymbolTable, Symbols},
    report::nanoseconds,
};

/// Differences that are told of each check.
const TOLD: usize = 3;

/// Symbols for each of which a name is looked up that is none.
const SYMBOLS_PER_MISS: usize = 16;

/// What reading the clock takes, in nanoseconds.
pub(super) fn clock() -> u64 {
    let times = (0..1000).map(|_| nanoseconds(Instant::now().elapsed()));
    times.min().unwrap_or_default()
}

/// What was found, so far.
pub(super) struct Checks {
    iters: NonZeroUsize,
    done: Vec<Check>,
    differences: Vec<String>,
}

/// A check that goes on.
struct Running<'c> {
    checks: &'c mut Checks,
    check: Check,
    told: usize,
    least: Option<Duration>,
    total: Duration,
}

impl Running<'_> {
    /// Compares answers to `question`.
    fn compare<A: PartialEq + Debug>(&mut self, question: impl Debug, found: &A, expected: &A) {
        self.check.answers += 1;
        if found == expected {
            return;
        }
        self.check.wrong += 1;
        if self.told < TOLD {
            self.told += 1;
            self.checks.differences.push(format!(
                "{}: {question:?}: found {found:?}, expected {expected:?}",
                self.check.name
            ));
        }
    }

    /// Notes what one answer took, or several together.
    fn time(&mut self, time: Duration, answers: usize) {
        let one = time / u32::try_from(answers.max(1)).unwrap_or(u32::MAX);
        self.least = Some(self.least.map_or(one, |least| least.min(one)));
        self.total += time;
    }

    fn done(mut self) {
        self.check.min_ns = self.least.map(nanoseconds);
        self.check.avg_ns = self
            .least
            .and_then(|_| nanoseconds(self.total).checked_div(self.check.answers));
        self.checks.done.push(self.check);
    }
}

impl Checks {
    pub(super) const fn new(iters: NonZeroUsize) -> Self {
        Self {
            iters,
            done: Vec::new(),
            differences: Vec::new(),
        }
    }

    pub(super) fn done(self) -> (Vec<Check>, Vec<String>) {
        (self.done, self.differences)
    }

    /// A check that has failed before it began.
    pub(super) fn fail(&mut self, name: &str, difference: &str) {
        let mut check = self.begin(name);
        check.check.answers = 1;
        check.check.wrong = 1;
        check.done();
        self.differences.push(format!("{name}: {difference}"));
    }

    fn begin(&mut self, name: impl Into<String>) -> Running<'_> {
        Running {
            checks: self,
            check: Check {
                name: name.into(),
                answers: 0,
                wrong: 0,
                min_ns: None,
                avg_ns: None,
            },
            told: 0,
            least: None,
            total: Duration::ZERO,
        }
    }

    /// Asks each of `questions`, timing each answer alone, and compares what
    /// `read` makes of it, which is not timed, with what goes with the question.
    fn ask<Q: Copy + Debug, A, E: PartialEq + Debug>(
        &mut self,
        name: impl Into<String>,
        questions: &[(Q, E)],
        ask: impl Fn(Q) -> A,
        read: impl Fn(A) -> E,
    ) {
        let iters = self.iters.get();
        let mut check = self.begin(name);
        for _ in 0..iters {
            for (question, expected) in questions {
                let start = Instant::now();
                let answer = black_box(ask(black_box(*question)));
                check.time(start.elapsed(), 1);
                check.compare(question, &read(answer), expected);
            }
        }
        check.done();
    }

    pub(super) fn run(
        &mut self,
        table: &SymbolTable,
        expected: &Expected,
        symbols: Option<&Symbols>,
    ) {
        if let Some(symbols) = symbols {
            self.encoding(expected, symbols);
        }
        let by_name = expected.by_name();
        let absent: Vec<String> = expected
            .names
            .iter()
            .step_by(SYMBOLS_PER_MISS)
            .map(|name| absent(name, &by_name))
            .collect();
        let questions = Questions::new(expected, &by_name, &absent);
        // What is initialised at first use is no lookup's.
        let _ = table.placed(0);
        table.prepare();
        for (name, step) in [
            ("step1", Step::Expand),
            ("step2", Step::Tokens),
            ("step3", Step::Batch),
            ("step4", Step::Sequence),
        ] {
            self.by_step(name, step, table, &questions);
        }
        {
            let _batch = table.batch_start();
            self.by_step("step3+batch", Step::Batch, table, &questions);
            self.by_step("step4+batch", Step::Sequence, table, &questions);
            self.walk("walk+batch", table, expected);
        }
        self.fast(table, &questions);
        self.at_once(table, &questions);
        self.walk("walk", table, expected);
        self.by_number(table, expected);
        self.by_address(table, expected);
    }

    /// The decoding against what was encoded.
    fn encoding(&mut self, expected: &Expected, symbols: &Symbols) {
        let mut check = self.begin("encode");
        check.compare("symbols", &expected.names.len(), &symbols.len());
        for (number, symbol) in symbols.iter().enumerate() {
            let symbol = (symbol.address, char::from(symbol.kind), symbol.name);
            check.compare(number, &expected.get(number), &Some(symbol));
        }
        check.done();
    }

    fn by_step(&mut self, name: &str, step: Step, table: &SymbolTable, questions: &Questions<'_>) {
        let first = |name| table.first(step, name);
        self.ask(format!("{name}/hit"), &questions.hits, first, |a| a);
        self.ask(format!("{name}/miss"), &questions.misses, first, |a| a);
        self.ask(
            format!("{name}/matches"),
            &questions.matches,
            |name| table.range(step, name),
            |places| places.map(|place| table.placed(place)).collect(),
        );
    }

    fn fast(&mut self, table: &SymbolTable, questions: &Questions<'_>) {
        let first = |name: &str| table.resolve(name).next();
        self.ask("fast/hit", &questions.hits, first, |a| a);
        self.ask("fast/miss", &questions.misses, first, |a| a);
        let all = |name| table.resolve(name);
        self.ask("fast/matches", &questions.matches, all, Iterator::collect);
    }

    /// All names in one call, those that are none among them.
    fn at_once(&mut self, table: &SymbolTable, questions: &Questions<'_>) {
        let misses = questions
            .misses
            .iter()
            .map(|&(name, _)| (name, [].as_slice()));
        let all = questions.matches.iter();
        let all = all.map(|(name, symbols)| (*name, symbols.as_slice()));
        let all: Vec<(&str, &[usize])> = all.chain(misses).collect();
        let names: Vec<&str> = all.iter().map(|&(name, _)| name).collect();
        let iters = self.iters.get();
        for (name, plan) in [
            ("batch/search", Plan::Search),
            ("batch/pass", Plan::Pass),
            ("batch/index", Plan::Index),
        ] {
            let mut check = self.begin(name);
            for _ in 0..iters {
                let start = Instant::now();
                let resolved = black_box(table.resolve_by(plan, black_box(&names)));
                check.time(start.elapsed(), names.len());
                check.compare("names", &resolved.len(), &names.len());
                for (&(name, expected), found) in all.iter().zip(resolved.iter()) {
                    let found: Vec<usize> = found.iter().map(|&symbol| symbol as usize).collect();
                    check.compare(name, &&*found, &expected);
                }
            }
            check.done();
        }
    }

    fn walk(&mut self, name: &str, table: &SymbolTable, expected: &Expected) {
        let iters = self.iters.get();
        let mut check = self.begin(name);
        for _ in 0..iters {
            let start = Instant::now();
            let _: ControlFlow<()> = table.walk(|number, symbol| {
                black_box((number, symbol));
                ControlFlow::Continue(())
            });
            check.time(start.elapsed(), table.len());
            let mut seen = 0;
            let _: ControlFlow<()> = table.walk(|number, symbol| {
                let found = (symbol.address, char::from(symbol.kind), symbol.name);
                let expected = expected.get(number);
                check.compare(number, &Some(found), &expected);
                seen += 1;
                ControlFlow::Continue(())
            });
            check.compare("symbols", &seen, &expected.names.len());
        }
        check.done();
    }

    /// Each symbol by its number, and by its place in name order.
    fn by_number(&mut self, table: &SymbolTable, expected: &Expected) {
        let numbers: Vec<_> = (0..table.len())
            .map(|number| {
                let owned =
                    |(address, kind, name): (u64, char, &str)| (address, kind, name.to_owned());
                (number, expected.get(number).map(owned))
            })
            .collect();
        self.ask(
            "number",
            &numbers,
            |number| {
                let mut buffer = NameBuffer::default();
                let name = table.name(number, &mut buffer).to_owned();
                Some((table.address(number), char::from(table.kind(number)), name))
            },
            |a| a,
        );
        let places: Vec<_> = expected.order().into_iter().enumerate().collect();
        self.ask("placed", &places, |place| table.placed(place), |a| a);
    }

    /// The first and the last byte of each symbol, and that before all.
    fn by_address(&mut self, table: &SymbolTable, expected: &Expected) {
        let places = expected.places();
        let answer = |symbol: usize, offset: u64, size: Option<u64>| {
            Some((symbol, expected.names[symbol].clone(), offset, size))
        };
        let ask = |address| {
            let described = table.describe(address)?;
            let place = table.at(address)?;
            Some((place, described))
        };
        let read = |found: Option<(Place, Described)>| {
            let (place, described) = found?;
            let same = (described.offset, described.size) == (place.offset, place.size);
            same.then(|| {
                let name = String::from(described.name);
                (place.index, name, place.offset, place.size)
            })
        };
        let first: Vec<_> = places
            .iter()
            .map(|&(address, symbol, next)| {
                let size = next.map(|next| next - address);
                (address, answer(symbol, 0, size))
            })
            .collect();
        self.ask("addr/first", &first, ask, read);
        let last: Vec<_> = places
            .iter()
            .filter_map(|&(address, symbol, next)| {
                let size = next? - address;
                Some((address + size - 1, answer(symbol, size - 1, Some(size))))
            })
            .collect();
        self.ask("addr/last", &last, ask, read);
        let before = places.first().and_then(|(first, ..)| first.checked_sub(1));
        let before: Vec<_> = before.into_iter().zip(iter::once(None)).collect();
        if !before.is_empty() {
            self.ask("addr/before", &before, ask, read);
        }
    }
}

/// What is asked by name, and the answers.
struct Questions<'a> {
    hits: Vec<(&'a str, Option<usize>)>,
    misses: Vec<(&'a str, Option<usize>)>,
    matches: Vec<(&'a str, Vec<usize>)>,
}

impl<'a> Questions<'a> {
    fn new(
        expected: &'a Expected,
        by_name: &HashMap<&'a str, Vec<usize>>,
        absent: &'a [String],
    ) -> Self {
        let symbols = |name: &str| by_name.get(name).cloned().unwrap_or_default();
        let first = |name: &str| by_name.get(name)?.first().copied();
        let names = || expected.names.iter().map(|name| &**name);
        let mut matches = Vec::with_capacity(by_name.len());
        for (number, name) in names().enumerate() {
            if first(name) == Some(number) {
                matches.push((name, symbols(name)));
            }
        }
        Self {
            hits: names().map(|name| (name, first(name))).collect(),
            misses: absent.iter().map(|name| (&**name, None)).collect(),
            matches,
        }
    }
}
