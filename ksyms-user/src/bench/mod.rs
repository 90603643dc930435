//! Measurements that anyone can repeat with one command.
//!
//! A benchmark compares within one run, what it compares taking turns, and
//! gives ratios beside times: on a shared machine only those mean something.
//! A figure that could not be measured is absent.

mod attach;
mod lock;
mod resolve;
mod stats;

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    report::{Align, Format, columns, write_json},
    source::Kernel,
};

pub use self::{
    attach::{AttachBench, attach},
    lock::{Lock, LockError},
    resolve::{Resolve, ResolveBench, ResolveError, Source, resolve},
    stats::Summary,
};

/// One measured thing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What was measured, parts separated by `/`.
    pub name: String,
    /// The unit of the figures, for example `ns`.
    pub unit: &'static str,
    /// The figures.
    #[serde(flatten)]
    pub summary: Summary,
    /// How the median compares with that of the row it is compared with.
    #[serde(flatten)]
    pub ratio: Option<Ratio>,
}

/// One median against another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum Ratio {
    /// Over that of the floor: 1 is as fast, more is slower.
    #[serde(rename = "ratio_to_floor")]
    ToFloor(f64),
    /// That of the first of the four lookups over this: how many times faster
    /// it is.
    #[serde(rename = "ratio_to_step1")]
    ToStep1(f64),
}

impl Ratio {
    const fn value(self) -> f64 {
        match self {
            Self::ToFloor(value) | Self::ToStep1(value) => value,
        }
    }
}

/// What a benchmark is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "bench", rename_all = "lowercase")]
enum Subject {
    Attach,
    Resolve(Resolve),
}

impl Subject {
    /// The column of [`Row::ratio`], in CSV and in a table.
    const fn ratio(&self) -> (&'static str, &'static str) {
        match self {
            Self::Attach => ("ratio_to_floor", "TO FLOOR"),
            Self::Resolve(_) => ("ratio_to_step1", "X STEP1"),
        }
    }

    /// What a reader of the table must know.
    fn note(&self) -> String {
        match self {
            Self::Attach => "floor: a bare BPF_LINK_CREATE with the same program and addresses; \
                             floor+cookies: with cookies too"
                .to_owned(),
            Self::Resolve(resolve) => resolve.to_string(),
        }
    }
}

/// The result of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bench {
    schema: &'static str,
    #[serde(flatten)]
    subject: Subject,
    kernel: Kernel,
    rows: Vec<Row>,
}

impl Bench {
    fn new(subject: Subject, kernel: Kernel, rows: Vec<Row>) -> Self {
        Self {
            schema: "ksyms-bench/1",
            subject,
            kernel,
            rows,
        }
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Writes the result.
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
        let decimals = |ratio: f64| match ratio {
            10.0.. => 1,
            0.1.. => 3,
            _ => 6,
        };
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                [
                    row.name.clone(),
                    row.unit.to_owned(),
                    figure(row.summary.median),
                    figure(row.summary.min),
                    figure(row.summary.max),
                    row.summary.samples.to_string(),
                    row.ratio.map_or_else(String::new, |ratio| {
                        let ratio = ratio.value();
                        format!("{ratio:.*}", decimals(ratio))
                    }),
                ]
            })
            .collect();
        columns(
            [
                ("NAME", Align::Left),
                ("UNIT", Align::Left),
                ("MEDIAN", Align::Right),
                ("MIN", Align::Right),
                ("MAX", Align::Right),
                ("SAMPLES", Align::Right),
                (self.subject.ratio().1, Align::Right),
            ],
            &rows,
            out,
        )?;
        writeln!(
            out,
            "\n{}\nLinux {}, CPUs: {}",
            self.subject.note(),
            self.kernel.release,
            self.kernel.cpus
        )
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record([
            "name",
            "unit",
            "median",
            "min",
            "max",
            "samples",
            self.subject.ratio().0,
        ])?;
        for row in &self.rows {
            csv.write_record([
                &row.name,
                row.unit,
                &row.summary.median.to_string(),
                &row.summary.min.to_string(),
                &row.summary.max.to_string(),
                &row.summary.samples.to_string(),
                &row.ratio
                    .map_or_else(String::new, |ratio| ratio.value().to_string()),
            ])?;
        }
        csv.flush()
    }
}

/// A figure of a table: small ones with a decimal, unless they are whole.
fn figure(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench() -> Bench {
        let row = |name: &str, median: u64, ratio| Row {
            name: name.to_owned(),
            unit: "ns",
            summary: Summary::of_whole(&[median]).unwrap(),
            ratio,
        };
        let rows = vec![
            row("multi/5/load", 7, None),
            row("multi/5/attach", 30, Some(Ratio::ToFloor(1.5))),
        ];
        Bench::new(Subject::Attach, Kernel::running(), rows)
    }

    fn written(format: Format) -> String {
        let mut out = Vec::new();
        bench().write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn documents_have_a_ratio_where_there_is_one() {
        let json = written(Format::Json);
        let start = r#"{"schema":"ksyms-bench/1","bench":"attach","kernel":{"#;
        let rows = concat!(
            r#""rows":[{"name":"multi/5/load","unit":"ns","median":7,"min":7,"max":7,"samples":1},"#,
            r#"{"name":"multi/5/attach","unit":"ns","median":30,"min":30,"max":30,"samples":1,"#,
            r#""ratio_to_floor":1.5}]}"#,
        );
        assert!(json.starts_with(start), "{json}");
        assert_eq!(
            json.trim_end().split_once(r#","rows""#).unwrap().1,
            &rows[6..]
        );
        let csv = written(Format::Csv);
        assert!(csv.ends_with(
            "samples,ratio_to_floor\nmulti/5/load,ns,7,7,7,1,\nmulti/5/attach,ns,30,30,30,1,1.5\n"
        ));
    }

    #[test]
    fn a_table_explains_its_last_column() {
        let table = written(Format::Table);
        assert!(
            table.lines().next().unwrap().ends_with("TO FLOOR"),
            "{table}"
        );
        assert!(table.contains("floor: a bare BPF_LINK_CREATE"), "{table}");
    }

    #[test]
    fn small_figures_have_a_decimal() {
        for (value, text) in [(7.0, "7"), (7.25, "7.2"), (99.96, "100.0"), (512.3, "512")] {
            assert_eq!(figure(value), text);
        }
    }
}
