//! What the running kernel says about itself: its symbols, what ftrace can
//! probe, and what kprobes must not touch.
//!
//! Everything here reads files of procfs, tracefs, debugfs and securityfs.
//! Where tracefs or debugfs is not mounted, a private mount takes its place,
//! which no other process sees and which is gone with this one.
//!
//! ```no_run
//! use ksyms::source::{self, Traceable, Tracefs};
//!
//! let symbols = source::kallsyms()?;
//! let traceable = Traceable::read(&Tracefs::open()?)?;
//! # Ok::<(), ksyms::source::SourceError>(())
//! ```

mod blacklist;
mod error;
mod files;
mod kcore;
mod kernel;
mod lockdown;
mod traceable;

use std::path::Path;

pub use blacklist::Blacklist;
pub use error::{KptrRestrict, SourceError};
pub use files::Tracefs;
pub use kcore::{Kcore, KcoreError, Memory, VmcoreInfo};
pub use kernel::Kernel;
pub use lockdown::{Lockdown, lockdown};
pub use traceable::{Locations, Names, Traceable};
pub(crate) use traceable::{Prober, Verdict};

use crate::kallsyms::Symbols;

const KALLSYMS: &str = "/proc/kallsyms";

/// Reads the symbols of the running kernel and its modules from
/// /proc/kallsyms, once.
///
/// The kernel formats the lines while they are read, which takes several
/// times longer than parsing them.
///
/// # Errors
///
/// [`SourceError::AddressesHidden`] when the kernel shows zeros for addresses,
/// [`SourceError::Unavailable`] when it was built without `CONFIG_KALLSYMS`,
/// and else what reading a file can come to.
pub fn kallsyms() -> Result<Symbols, SourceError> {
    let path = Path::new(KALLSYMS);
    let text = files::read_path(path).map_err(|error| match error {
        SourceError::Io { call, path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            SourceError::Unavailable {
                call,
                path,
                advice: "mount procfs at /proc, or use a kernel with CONFIG_KALLSYMS",
                source: Some(source),
            }
        }
        error => error,
    })?;
    let symbols = parse(path, text)?;
    if symbols.addresses_hidden() {
        return Err(SourceError::AddressesHidden(KptrRestrict::read()));
    }
    Ok(symbols)
}

/// Reads symbols from a System.map, or from a saved copy of /proc/kallsyms.
///
/// # Errors
///
/// [`SourceError::NoAddresses`] when all text symbols are at address 0, and
/// else what reading and parsing a file can come to.
pub fn kallsyms_from(path: impl AsRef<Path>) -> Result<Symbols, SourceError> {
    let path = path.as_ref();
    let symbols = parse(path, files::read_path(path)?)?;
    if symbols.addresses_hidden() {
        return Err(SourceError::NoAddresses { path: path.into() });
    }
    Ok(symbols)
}

fn parse(path: &Path, text: Vec<u8>) -> Result<Symbols, SourceError> {
    Symbols::parse(text).map_err(|source| SourceError::Malformed {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests;
