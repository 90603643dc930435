//! The table that `bench resolve` and `selftest` look symbols up in.

use std::path::Path;

use ksyms::{
    kallsyms::{SymbolTable, Symbols},
    source::{Reading, SymbolSource},
};

use crate::{failure::Failure, read_symbols, terminal::Talk};

/// The core kernel's symbols in a table; of a file, all that it has.
pub(crate) struct Loaded {
    source: SymbolSource,
    reading: Reading,
    /// What was made of symbols that came as text.
    encoded: Option<SymbolTable>,
}

impl Loaded {
    pub(crate) fn read(source: &SymbolSource, talk: Talk) -> Result<Self, Failure> {
        let reading = read_symbols(source, Some(&[]), talk)?;
        let encoded = match reading.symbols.table() {
            Some(_) => None,
            None => Some(SymbolTable::encode(&reading.symbols)?),
        };
        Ok(Self {
            source: source.clone(),
            reading,
            encoded,
        })
    }

    pub(crate) fn table(&self) -> &SymbolTable {
        match (&self.encoded, self.reading.symbols.table()) {
            (Some(table), _) | (None, Some(table)) => table,
            (None, None) => unreachable!("what has no table was encoded"),
        }
    }

    /// In words.
    pub(crate) fn origin(&self) -> String {
        let encoded = self.encoded.as_ref().map_or("", |_| " (encoded)");
        format!("{}{encoded}", self.reading.path.display())
    }

    /// What it was encoded from, if it was.
    pub(crate) fn symbols(&self) -> Option<&Symbols> {
        self.encoded.as_ref().map(|_| &self.reading.symbols)
    }

    /// A text with the same symbols, if there is one.
    pub(crate) fn text(&self) -> Option<&Path> {
        match self.source {
            SymbolSource::File(_) => (self.encoded.is_some() && self.reading.path.is_file())
                .then_some(&*self.reading.path),
            _ => Some(Path::new("/proc/kallsyms")),
        }
    }
}
