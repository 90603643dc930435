//! What the user gets: a table, CSV, or one JSON document.
//!
//! The shapes are a contract: `ksyms-attach/1`, `ksyms-list/1`,
//! `ksyms-bench/1` and `ksyms-selftest/1`. Times end in `_ns`, addresses are `"0x…"`, the core kernel is
//! module `vmlinux` as in patterns, and a figure that could not be measured is
//! absent.

mod attach;
mod list;
mod text;

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::{
    select::{Reason, Rejected},
    source::Kernel,
};

pub(crate) use self::text::{Align, columns};
pub use self::{
    attach::{Cost, Count, Report},
    list::List,
    text::{duration, grouped},
};

/// A time as documents write it.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Columns for people.
    Table,
    /// One JSON document.
    Json,
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
}

/// The module column of a symbol.
fn module_name(module: Option<&str>) -> &str {
    module.unwrap_or("vmlinux")
}

/// An address as reports write it.
struct Address(u64);

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Kernel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            release: &'a str,
            cpus: usize,
            #[serde(skip_serializing_if = "Option::is_none")]
            jit: Option<bool>,
            ibt: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            mitigations: Option<&'a [String]>,
        }
        let Self {
            release,
            cpus,
            jit,
            ibt,
            mitigations,
        } = self;
        Shape {
            release,
            cpus: *cpus,
            jit: *jit,
            ibt: *ibt,
            mitigations: mitigations.as_deref(),
        }
        .serialize(serializer)
    }
}

/// A function that was left out, as documents show it.
#[derive(Serialize)]
struct RejectedRow<'a> {
    name: &'a str,
    module: &'a str,
    address: Address,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
}

impl<'a> RejectedRow<'a> {
    fn new(rejected: &'a Rejected<'a>) -> Self {
        Self {
            name: rejected.name,
            module: module_name(rejected.module),
            address: Address(rejected.address),
            reason: rejected.reason.as_str(),
            errno: match rejected.reason {
                Reason::KernelRefused { errno } => Some(errno),
                _ => None,
            },
        }
    }
}

/// Writes one JSON document and its final newline.
pub(crate) fn write_json(
    document: &impl Serialize,
    out: &mut impl std::io::Write,
) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    out.write_all(b"\n")
}
