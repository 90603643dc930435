//! What a pattern would attach, and what not and why.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;

use super::{
    Address, Format, RejectedRow, module_name,
    text::{Align, columns, grouped},
    write_json,
};
use crate::select::{Reason, Rejected, Selection, Target};

/// A selection, shown without attaching anything.
#[derive(Debug)]
pub struct List<'a> {
    /// What was selected.
    pub selection: &'a Selection<'a>,
    /// Whether it is known what can be probed. When tracefs cannot be read,
    /// every function is listed and whether it can be attached is left open.
    pub traceability_known: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    targets: Targets,
    functions: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Targets {
    matched: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachable: Option<usize>,
    rejected: usize,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    module: &'a str,
    address: Address,
    aliases: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    attachable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip)]
    explanation: Option<Reason>,
}

impl List<'_> {
    /// Writes the list in address order.
    ///
    /// # Errors
    ///
    /// When `out` does not take it.
    pub fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        let rows = self.rows();
        match format {
            Format::Json => write_json(
                &Document {
                    schema: "ksyms-list/1",
                    targets: Targets {
                        matched: rows.len(),
                        attachable: self
                            .traceability_known
                            .then_some(self.selection.targets.len()),
                        rejected: self.selection.rejected.len(),
                    },
                    functions: rows,
                },
                out,
            ),
            Format::Csv => write_csv(&rows, out),
            Format::Table => self.write_table(&rows, out),
        }
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let Selection {
            targets, rejected, ..
        } = self.selection;
        let mut rows: Vec<(u64, Row<'_>)> = targets
            .iter()
            .map(|target| (target.address, self.target(target)))
            .chain(
                rejected
                    .iter()
                    .map(|rejected| (rejected.address, Row::rejected(rejected))),
            )
            .collect();
        rows.sort_by_key(|(address, _)| *address);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn target<'a>(&self, target: &'a Target<'a>) -> Row<'a> {
        Row {
            name: target.name,
            module: module_name(target.module),
            address: Address(target.address),
            aliases: &target.aliases,
            attachable: self.traceability_known.then_some(true),
            reason: None,
            explanation: None,
        }
    }

    fn write_table(&self, rows: &[Row<'_>], out: &mut impl Write) -> io::Result<()> {
        let cells: Vec<_> = rows
            .iter()
            .map(|row| {
                [
                    row.name.to_owned(),
                    row.module.to_owned(),
                    row.address.to_string(),
                    row.verdict(),
                ]
            })
            .collect();
        columns(
            [
                ("FUNCTION", Align::Left),
                ("MODULE", Align::Left),
                ("ADDRESS", Align::Left),
                ("ATTACHABLE", Align::Left),
            ],
            &cells,
            out,
        )?;
        let Selection {
            targets, rejected, ..
        } = self.selection;
        let count = grouped(targets.len() as u64);
        if self.traceability_known {
            writeln!(out, "\n{count} functions can be attached")?;
        } else {
            writeln!(
                out,
                "\n{count} functions; which can be attached is not known"
            )?;
        }
        if !rejected.is_empty() {
            writeln!(
                out,
                "left out: {}",
                reasons(rejected.iter().map(|rejected| rejected.reason))
            )?;
        }
        Ok(())
    }
}

impl<'a> Row<'a> {
    fn rejected(rejected: &'a Rejected<'a>) -> Self {
        let RejectedRow {
            name,
            module,
            address,
            reason,
            errno: _,
        } = RejectedRow::new(rejected);
        Self {
            name,
            module,
            address,
            aliases: &[],
            attachable: Some(false),
            reason: Some(reason),
            explanation: Some(rejected.reason),
        }
    }

    fn verdict(&self) -> String {
        match (self.attachable, &self.explanation) {
            (_, Some(explanation)) => format!("no: {explanation}"),
            (Some(_), None) => "yes".to_owned(),
            (None, None) => "unknown".to_owned(),
        }
    }
}

/// How many were left out for which reason, most first:
/// `3 not-traceable, 1 blacklisted`.
pub(super) fn reasons(all: impl Iterator<Item = Reason>) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in all {
        *counts.entry(reason.as_str()).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let parts: Vec<_> = counts
        .into_iter()
        .map(|(reason, count)| format!("{} {reason}", grouped(count)))
        .collect();
    parts.join(", ")
}

fn write_csv(rows: &[Row<'_>], out: &mut impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "name",
        "module",
        "address",
        "aliases",
        "attachable",
        "reason",
    ])?;
    for row in rows {
        csv.write_record([
            row.name,
            row.module,
            &row.address.to_string(),
            &row.aliases.join(" "),
            match row.attachable {
                Some(true) => "yes",
                Some(false) => "no",
                None => "unknown",
            },
            row.reason.unwrap_or_default(),
        ])?;
    }
    csv.flush()
}
