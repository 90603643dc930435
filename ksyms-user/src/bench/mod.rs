//! Measurements that anyone can repeat with one command.
//!
//! A benchmark compares within one run, what it compares taking turns, and
//! gives ratios beside times: on a shared machine only those mean something.
//! A figure that could not be measured is absent.

mod attach;
mod stats;

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    report::{Align, Format, columns, write_json},
    source::Kernel,
};

pub use self::{
    attach::{AttachBench, attach},
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
    /// Median against that of the row this one is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_floor: Option<f64>,
}

/// The result of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bench {
    schema: &'static str,
    #[serde(rename = "bench")]
    what: &'static str,
    kernel: Kernel,
    rows: Vec<Row>,
}

impl Bench {
    fn new(what: &'static str, kernel: Kernel, rows: Vec<Row>) -> Self {
        Self {
            schema: "ksyms-bench/1",
            what,
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
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                [
                    row.name.clone(),
                    row.unit.to_owned(),
                    row.summary.median.to_string(),
                    row.summary.min.to_string(),
                    row.summary.max.to_string(),
                    row.summary.samples.to_string(),
                    row.ratio_to_floor
                        .map_or_else(String::new, |ratio| format!("{ratio:.3}")),
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
                ("TO FLOOR", Align::Right),
            ],
            &rows,
            out,
        )?;
        writeln!(
            out,
            "\nfloor: a bare BPF_LINK_CREATE with the same program and addresses; floor+cookies: \
             with cookies too\nLinux {}, CPUs: {}",
            self.kernel.release, self.kernel.cpus
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
            "ratio_to_floor",
        ])?;
        for row in &self.rows {
            csv.write_record([
                &row.name,
                row.unit,
                &row.summary.median.to_string(),
                &row.summary.min.to_string(),
                &row.summary.max.to_string(),
                &row.summary.samples.to_string(),
                &row.ratio_to_floor
                    .map_or_else(String::new, |ratio| ratio.to_string()),
            ])?;
        }
        csv.flush()
    }
}
