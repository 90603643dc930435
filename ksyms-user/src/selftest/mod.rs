//! Every symbol of a table looked up in every way, each answer compared with a
//! decoding of the table that shares no code with the lookups.
//!
//! The counterpart of the kernel's own (`CONFIG_KALLSYMS_SELFTEST`, since 6.2;
//! `kernel/kallsyms_selftest.c`), which times and validates its lookups at
//! boot.

mod checks;
mod expected;

use std::{
    collections::HashMap,
    io::{self, Write},
    num::NonZeroUsize,
};

use serde::Serialize;

use self::{checks::Checks, expected::Expected};
use crate::{
    kallsyms::{SymbolTable, Symbols},
    report::{Align, Format, columns, grouped, write_json},
};

/// One way to look symbols up, and how it did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// What was asked, in the words of `bench resolve`.
    pub name: String,
    /// How many answers there were.
    pub answers: u64,
    /// How many of them were wrong.
    pub wrong: u64,
    /// What an answer took at least, in nanoseconds, with what reading the clock
    /// takes; of a pass over all symbols the least for one, in whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<u64>,
    /// The same on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_ns: Option<u64>,
}

/// The result of a test, from [`selftest`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Selftest {
    schema: &'static str,
    result: &'static str,
    origin: String,
    symbols: usize,
    names_bytes: usize,
    clock_ns: u64,
    checks: Vec<Check>,
    differences: Vec<String>,
}

/// Looks up every symbol of `table` in every way, `iters` times: by each
/// [`Step`](crate::kallsyms::Step) and by the fast path, without and within a
/// batch, each match of a name, many at once, by number, in a walk, and by the
/// first and the last byte of each. Names that are no symbol's are looked up
/// too, one for 16 symbols.
///
/// `origin` says where the table came from, in words. With the `symbols` that
/// it was encoded from, it is compared with those as well.
#[must_use]
pub fn selftest(
    table: &SymbolTable,
    origin: &str,
    symbols: Option<&Symbols>,
    iters: NonZeroUsize,
) -> Selftest {
    run(
        table,
        Expected::decode(&table.to_parts()),
        origin,
        symbols,
        iters,
    )
}

fn run(
    table: &SymbolTable,
    expected: Result<Expected, String>,
    origin: &str,
    symbols: Option<&Symbols>,
    iters: NonZeroUsize,
) -> Selftest {
    let mut checks = Checks::new(iters);
    match expected {
        Ok(expected) => checks.run(table, &expected, symbols),
        Err(difference) => checks.fail("decode", &difference),
    }
    let (checks, differences) = checks.done();
    let is_right = checks.iter().all(|check| check.wrong == 0);
    Selftest {
        schema: "ksyms-selftest/1",
        result: if is_right { "PASS" } else { "FAIL" },
        origin: origin.to_owned(),
        symbols: table.len(),
        names_bytes: table.names_bytes(),
        clock_ns: checks::clock(),
        checks,
        differences,
    }
}

impl Selftest {
    /// Whether every answer was right.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.wrong() == 0
    }

    /// How many answers were wrong.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.checks.iter().map(|check| check.wrong).sum()
    }

    /// What was asked.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// The first wrong answers of each check.
    #[must_use]
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// Writes the result: as a table that ends in `PASS` or `FAIL`, as CSV of
    /// the checks, or as a document `ksyms-selftest/1`.
    ///
    /// # Errors
    ///
    /// When `out` does not take it.
    pub fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        match format {
            Format::Json => write_json(self, out),
            Format::Csv => self.write_csv(out),
            Format::Table => self.write_table(out),
        }
    }

    fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let time = |time: Option<u64>| time.map_or_else(String::new, grouped);
        let rows: Vec<_> = self
            .checks
            .iter()
            .map(|check| {
                [
                    check.name.clone(),
                    grouped(check.answers),
                    grouped(check.wrong),
                    time(check.min_ns),
                    time(check.avg_ns),
                ]
            })
            .collect();
        columns(
            [
                ("CHECK", Align::Left),
                ("ANSWERS", Align::Right),
                ("WRONG", Align::Right),
                ("MIN NS", Align::Right),
                ("AVG NS", Align::Right),
            ],
            &rows,
            out,
        )?;
        writeln!(
            out,
            "\n{} symbols of {}; times are those of one answer, of which reading the clock takes \
             {} ns",
            grouped(self.symbols as u64),
            self.origin,
            self.clock_ns
        )?;
        for difference in &self.differences {
            writeln!(out, "{difference}")?;
        }
        writeln!(out, "{}", self.result)
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(["name", "answers", "wrong", "min_ns", "avg_ns"])?;
        let figure = |figure: Option<u64>| figure.map_or_else(String::new, |ns| ns.to_string());
        for check in &self.checks {
            csv.write_record([
                &check.name,
                &check.answers.to_string(),
                &check.wrong.to_string(),
                &figure(check.min_ns),
                &figure(check.avg_ns),
            ])?;
        }
        csv.flush()
    }
}

/// A name like `name` that is not `known`: the search for it goes all the way,
/// and ends beside a symbol.
pub(crate) fn absent<V>(name: &str, known: &HashMap<&str, V>) -> String {
    let mut absent = name.to_owned();
    let last = absent.pop();
    for other in ('a'..='z').chain('0'..='9').rev() {
        absent.push(other);
        if Some(other) != last && !known.contains_key(&*absent) {
            return absent;
        }
        absent.pop();
    }
    while known.contains_key(&*absent) {
        absent.push('~');
    }
    absent
}

#[cfg(test)]
mod tests;
