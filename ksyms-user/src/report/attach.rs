//! The result of the main job.

use std::{
    io::{self, Write},
    time::Duration,
};

use serde::Serialize;

use super::{
    Address, Format, RejectedRow,
    list::reasons,
    module_name, nanoseconds,
    text::{Align, columns, duration, grouped},
    write_json,
};
use crate::{select::Rejected, source::Kernel};

/// What the phases of a run took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reading the kernel's symbols and what ftrace can probe.
    pub symbols: Duration,
    /// Finding what the patterns mean and joining it with what can be probed.
    pub select: Duration,
    /// Making the maps and loading the program.
    pub load: Duration,
    /// Arming all functions.
    pub attach: Duration,
    /// Taking all probes off again.
    pub detach: Duration,
}

impl Cost {
    fn total(&self) -> Duration {
        self.symbols + self.select + self.load + self.attach + self.detach
    }
}

/// One attached function and its hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count<'a> {
    /// The name that the pattern matched.
    pub name: &'a str,
    /// Its module; `None` for the core kernel.
    pub module: Option<&'a str>,
    /// Its address as kallsyms gives it.
    pub address: u64,
    /// Its other names.
    pub aliases: &'a [&'a str],
    /// How often it was called.
    pub hits: u64,
}

/// What a run of the main job found.
#[derive(Debug)]
pub struct Report<'a> {
    /// Where it ran.
    pub kernel: &'a Kernel,
    /// Which way was taken.
    pub backend: &'a str,
    /// What was left out, and why.
    pub rejected: &'a [Rejected<'a>],
    /// What it took.
    pub cost: Cost,
    /// Every attached function.
    pub counts: Vec<Count<'a>>,
    /// Hits that the kernel saw but did not count, where it says so.
    pub missed: Option<u64>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    kernel: &'a Kernel,
    backend: &'a str,
    targets: Targets,
    rejected: Vec<RejectedRow<'a>>,
    cost: CostRow,
    counts: Vec<CountRow<'a>>,
    total_hits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
}

#[derive(Serialize)]
struct Targets {
    matched: usize,
    attached: usize,
    rejected: usize,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "times end in their unit")]
struct CostRow {
    symbols_ns: u64,
    select_ns: u64,
    load_ns: u64,
    attach_ns: u64,
    detach_ns: u64,
    total_ns: u64,
}

#[derive(Serialize)]
struct CountRow<'a> {
    name: &'a str,
    module: &'a str,
    address: Address,
    aliases: &'a [&'a str],
    hits: u64,
}

impl Report<'_> {
    /// Writes the report, functions with most hits first; of those not more
    /// than `top`. The table leaves out functions without hits, the other
    /// formats do not.
    ///
    /// # Errors
    ///
    /// When `out` does not take it.
    pub fn write(
        &self,
        format: Format,
        top: Option<usize>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut counts: Vec<&Count<'_>> = self.counts.iter().collect();
        // Stable: functions with the same hits stay in address order.
        counts.sort_by_key(|count| std::cmp::Reverse(count.hits));
        counts.truncate(top.unwrap_or(usize::MAX));
        match format {
            Format::Json => write_json(&self.document(&counts), out),
            Format::Csv => write_csv(&counts, out),
            Format::Table => self.write_table(&counts, out),
        }
    }

    fn total_hits(&self) -> u64 {
        self.counts.iter().map(|count| count.hits).sum()
    }

    fn document<'a>(&'a self, counts: &[&'a Count<'a>]) -> Document<'a> {
        let cost = &self.cost;
        Document {
            schema: "ksyms-attach/1",
            kernel: self.kernel,
            backend: self.backend,
            targets: Targets {
                matched: self.counts.len() + self.rejected.len(),
                attached: self.counts.len(),
                rejected: self.rejected.len(),
            },
            rejected: self.rejected.iter().map(RejectedRow::new).collect(),
            cost: CostRow {
                symbols_ns: nanoseconds(cost.symbols),
                select_ns: nanoseconds(cost.select),
                load_ns: nanoseconds(cost.load),
                attach_ns: nanoseconds(cost.attach),
                detach_ns: nanoseconds(cost.detach),
                total_ns: nanoseconds(cost.total()),
            },
            counts: counts.iter().copied().map(CountRow::new).collect(),
            total_hits: self.total_hits(),
            missed: self.missed,
        }
    }

    fn write_table(&self, counts: &[&Count<'_>], out: &mut impl Write) -> io::Result<()> {
        let total = self.total_hits();
        let rows: Vec<_> = counts
            .iter()
            .filter(|count| count.hits > 0)
            .map(|count| {
                [
                    count.name.to_owned(),
                    module_name(count.module).to_owned(),
                    grouped(count.hits),
                    share(count.hits, total),
                ]
            })
            .collect();
        columns(
            [
                ("FUNCTION", Align::Left),
                ("MODULE", Align::Left),
                ("HITS", Align::Right),
                ("SHARE", Align::Right),
            ],
            &rows,
            out,
        )?;
        let hit = self.counts.iter().filter(|count| count.hits > 0).count();
        if hit > rows.len() {
            writeln!(out, "… and {} more functions with hits", hit - rows.len())?;
        }
        let attached = self.counts.len();
        writeln!(
            out,
            "\n{} hits in {hit} of {attached} functions attached with {}{}",
            grouped(total),
            self.backend,
            match self.missed {
                Some(missed) => format!(", {} missed", grouped(missed)),
                None => String::new(),
            },
        )?;
        if !self.rejected.is_empty() {
            writeln!(
                out,
                "left out: {} (see --list)",
                reasons(self.rejected.iter().map(|rejected| rejected.reason))
            )?;
        }
        self.write_cost(attached, out)
    }

    fn write_cost(&self, attached: usize, out: &mut impl Write) -> io::Result<()> {
        let Cost {
            symbols,
            select,
            load,
            attach,
            detach,
        } = self.cost;
        let milliseconds = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
        let per_function = |time: Duration| {
            let functions = u32::try_from(attached.max(1)).unwrap_or(u32::MAX);
            format!(
                "{} ({} a function)",
                milliseconds(time),
                duration(time / functions)
            )
        };
        writeln!(
            out,
            "cost: symbols {}, select {}, load {}, attach {}, detach {}, total {}",
            milliseconds(symbols),
            milliseconds(select),
            milliseconds(load),
            per_function(attach),
            per_function(detach),
            milliseconds(self.cost.total()),
        )
    }
}

impl<'a> CountRow<'a> {
    fn new(count: &'a Count<'a>) -> Self {
        Self {
            name: count.name,
            module: module_name(count.module),
            address: Address(count.address),
            aliases: count.aliases,
            hits: count.hits,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share with one decimal")]
fn share(hits: u64, total: u64) -> String {
    format!("{:.1} %", hits as f64 * 100.0 / total.max(1) as f64)
}

fn write_csv(counts: &[&Count<'_>], out: &mut impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["name", "module", "address", "aliases", "hits"])?;
    for count in counts {
        csv.write_record([
            count.name,
            module_name(count.module),
            &Address(count.address).to_string(),
            &count.aliases.join(" "),
            &count.hits.to_string(),
        ])?;
    }
    csv.flush()
}
