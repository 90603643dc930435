//! Resolve kernel symbols and attach one eBPF program to thousands of kernel
//! functions.
//!
//! ```text
//!  source  ->  kallsyms  ->  select  ->  attach  ->  (count)  ->  report
//! ```
//!
//! Each stage takes a value and returns a value. [`kallsyms`] and [`select`] are
//! pure; [`source`] reads the kernel's files; these three need no cargo feature
//! and pull in neither aya nor tokio. The rest comes with features:
//!
//! | feature | brings |
//! |---|---|
//! | `attach` | `attach`: load, arm, count, detach; `registry` |
//! | `report` | `report`: tables, CSV, JSON documents; `selftest` |
//! | `cli` (default) | both of them, `bench`, and the program `ksyms-attach` |
//!
//! The library never prints and never exits.
#![deny(
    clippy::exit,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]
#![cfg_attr(
    test,
    expect(clippy::unwrap_used, reason = "a test that fails should panic")
)]

#[cfg(feature = "attach")]
pub mod attach;
#[cfg(all(feature = "attach", feature = "report"))]
pub mod bench;
#[cfg(feature = "attach")]
mod bpf;
pub mod kallsyms;
#[cfg(feature = "attach")]
pub mod registry;
#[cfg(feature = "report")]
pub mod report;
pub mod select;
#[cfg(feature = "report")]
pub mod selftest;
pub mod source;
