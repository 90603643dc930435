//! What the running kernel says about itself: its symbols, what ftrace can
//! probe, and what kprobes must not touch.
//!
//! Everything here reads files of procfs, tracefs, debugfs and securityfs; the
//! fastest of them is the kernel's memory, [`Kcore`].
//! Where tracefs or debugfs is not mounted, a private mount takes its place,
//! which no other process sees and which is gone with this one.
//!
//! ```no_run
//! use ksyms::source::SymbolSource;
//!
//! let reading = SymbolSource::Auto.read(None)?;
//! let traceable = reading.traceable(None)?;
//! let symbols = reading.symbols;
//! # Ok::<(), ksyms::source::SourceError>(())
//! ```

mod blacklist;
mod error;
mod files;
mod kcore;
mod kernel;
mod lockdown;
mod symbols;
mod traceable;
mod vmlinux;

pub use blacklist::Blacklist;
pub use error::{KptrRestrict, SourceError};
pub use files::Tracefs;
pub use kcore::{Kcore, KcoreError, Layouts, Member, Memory, VmcoreInfo};
pub use kernel::Kernel;
pub use lockdown::{Lockdown, lockdown};
pub use symbols::{Reading, SymbolSource, kallsyms, kallsyms_from};
pub use traceable::{Locations, Names, Traceable};
pub(crate) use traceable::{Prober, Verdict};
pub use vmlinux::{ElfError, ElfErrorKind, ElfSymbols, vmlinux};

#[cfg(test)]
mod tests;
