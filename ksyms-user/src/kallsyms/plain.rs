//! Symbols as they are: addresses, names and modules side by side.

use std::{
    collections::HashMap,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use super::{
    NameIndex, Symbol,
    parse::{Fault, ParseErrorKind, utf8},
};

/// 16 bytes a symbol; the type letter is in the arena, and the name behind it.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    /// Where the type letter is.
    start: u32,
    name_len: u16,
    /// 0 for the core kernel, else 1 + the index in [`Plain::modules`].
    module: u16,
}

/// Symbols sorted by address; those at one address keep the order in which
/// they were given.
///
/// Costs 17 bytes a symbol and the names' own bytes.
#[derive(Default)]
pub(super) struct Plain {
    text: String,
    entries: Vec<Entry>,
    modules: Vec<Box<str>>,
    passes: AtomicU32,
    by_name: OnceLock<NameIndex>,
}

/// How many names are sought before an index of them is built. Measured on
/// 122,000 symbols: that takes as long as so many passes over them.
const PASSES: u32 = 16;

impl Plain {
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn modules(&self) -> &[Box<str>] {
        &self.modules
    }

    pub(super) fn address(&self, index: usize) -> u64 {
        self.entries[index].address
    }

    pub(super) fn symbol(&self, index: usize) -> Symbol<'_> {
        let entry = &self.entries[index];
        Symbol {
            address: entry.address,
            kind: self.text.as_bytes()[entry.start as usize],
            name: self.name(entry),
            module: usize::from(entry.module)
                .checked_sub(1)
                .map(|module| &*self.modules[module]),
        }
    }

    /// Those of exactly this name, in order: by a pass over all, or once many
    /// names have been sought, by an index.
    pub(super) fn named(&self, name: &str) -> Vec<usize> {
        let is_it = |&index: &usize| self.name(&self.entries[index]) == name;
        if self.by_name.get().is_none() && self.passes.fetch_add(1, Relaxed) < PASSES {
            return (0..self.len()).filter(is_it).collect();
        }
        self.by_name
            .get_or_init(|| NameIndex::build(self.entries.iter().map(|entry| self.name(entry))))
            .candidates(name)
            .filter(is_it)
            .collect()
    }

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.start as usize + 1;
        &self.text[start..start + usize::from(entry.name_len)]
    }
}

/// A [`Plain`] in the making.
#[derive(Default)]
pub(crate) struct Builder {
    text: Vec<u8>,
    entries: Vec<Entry>,
    modules: Modules,
}

impl Builder {
    /// With room for so many symbols of a kernel.
    pub(crate) fn with_room_for(symbols: usize) -> Self {
        Self {
            text: Vec::with_capacity(26 * symbols),
            entries: Vec::with_capacity(symbols),
            modules: Modules::default(),
        }
    }

    /// Adds a symbol.
    pub(crate) fn push(&mut self, symbol: &Symbol<'_>) -> Result<(), Fault> {
        let (name, module) = (symbol.name, symbol.module.unwrap_or_default());
        self.push_line(
            symbol.address,
            symbol.kind,
            name.as_bytes(),
            module.as_bytes(),
        )
    }

    /// Adds a symbol as it stands in a line; `kind` must be ASCII, `name` UTF-8;
    /// `module` is empty for the core kernel.
    #[inline]
    pub(crate) fn push_line(
        &mut self,
        address: u64,
        kind: u8,
        name: &[u8],
        module: &[u8],
    ) -> Result<(), Fault> {
        let long = |_| ParseErrorKind::NameTooLong(name.len());
        let entry = Entry {
            address,
            start: u32::try_from(self.text.len()).map_err(|_| ParseErrorKind::TooLarge)?,
            module: match module {
                [] => 0,
                module => self.modules.id(module)?,
            },
            name_len: u16::try_from(name.len()).map_err(long)?,
        };
        self.entries.push(entry);
        self.text.push(kind);
        self.text.extend_from_slice(name);
        Ok(())
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn build(mut self) -> Plain {
        self.text.shrink_to_fit();
        self.entries.shrink_to_fit();
        if !self.entries.is_sorted_by_key(|entry| entry.address) {
            self.entries.sort_by_key(|entry| entry.address);
        }
        Plain {
            // All of it was checked piece by piece, so nothing is replaced.
            text: String::from_utf8(self.text)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            entries: self.entries,
            modules: self.modules.names,
            passes: AtomicU32::new(0),
            by_name: OnceLock::new(),
        }
    }
}

/// Numbers for module names: 0 is the core kernel, 1 the first of `names`.
#[derive(Default)]
struct Modules {
    names: Vec<Box<str>>,
    ids: HashMap<Box<str>, u16>,
    last: u16,
}

impl Modules {
    /// The number of `name`, a new one if need be. The lines of a module
    /// follow each other, so that most calls compare once.
    fn id(&mut self, name: &[u8]) -> Result<u16, Fault> {
        let last = usize::from(self.last).checked_sub(1);
        if last.is_some_and(|last| self.names[last].as_bytes() == name) {
            return Ok(self.last);
        }
        let name = utf8(name)?;
        self.last = if let Some(&id) = self.ids.get(name) {
            id
        } else {
            self.names.push(name.into());
            let id = u16::try_from(self.names.len()).map_err(|_| ParseErrorKind::TooManyModules)?;
            self.ids.insert(name.into(), id);
            id
        };
        Ok(self.last)
    }
}
