//! The kernel's symbol table, from its text form.
//!
//! [`Symbols`] answers the questions that attaching asks: what lives at an
//! address ([`Symbols::at`]), where a name lives ([`Symbols::named`]), and
//! everything in address order ([`Symbols::iter`]). It is made from the bytes
//! of /proc/kallsyms, of a System.map, or of a saved copy of either, and talks
//! to no kernel: [`crate::source`] does the reading.
//!
//! ```
//! let text = b"ffffffff81000a30 t __do_sys_getpid\nffffffff81000a30 T __x64_sys_getpid\n";
//! let symbols = ksyms::kallsyms::Symbols::parse(text.to_vec())?;
//! let names: Vec<_> = symbols.at(0xffff_ffff_8100_0a30).map(|s| s.name).collect();
//! assert_eq!(names, ["__do_sys_getpid", "__x64_sys_getpid"]);
//! # Ok::<(), ksyms::kallsyms::ParseError>(())
//! ```

mod index;
mod parse;
mod table;

use std::{fmt, ops::Range, sync::OnceLock};

pub(crate) use index::NameIndex;
pub(crate) use parse::{Fault, Label, Modules, address, excerpt, hex};
pub use parse::{ParseError, ParseErrorKind};
pub use table::{
    Addresses, Batch, Described, Matches, NameBuffer, Place, Plan, Resolved, Step, SymbolTable,
    TableError, TableErrorKind, TableParts,
};

/// One symbol of a [`Symbols`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Symbol<'a> {
    /// The address, in bytes. 0 where the kernel hides it; small for absolute
    /// and per-CPU symbols.
    pub address: u64,
    /// The type letter as nm(1) has it, lower case for local symbols: `t` and
    /// `T` text, `w` and `W` weak, `d` `D` `b` `B` `r` `R` data, `a` `A`
    /// absolute, and so on.
    pub kind: u8,
    /// The name, with the suffixes that the compiler gave it (`.isra.0`).
    pub name: &'a str,
    /// The module it belongs to, without brackets; `None` for the core kernel.
    pub module: Option<&'a str>,
}

impl Symbol<'_> {
    /// Whether this is code: type `t`, `T`, `w` or `W`.
    ///
    /// Weak symbols can be data too, which nm(1) writes as `v` and `V`.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        is_text(self.kind)
    }
}

const fn is_text(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

/// 24 bytes a symbol; the name's bytes are in the table's arena.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    name: u32,
    /// 0 for the core kernel, else 1 + the index in [`Symbols::modules`].
    module: u32,
    name_len: u16,
    kind: u8,
}

/// A table of symbols, sorted by address; those at one address keep the order
/// they had in the text.
///
/// Costs 24 bytes a symbol and the names' own bytes, each followed by a
/// newline.
#[derive(Default)]
pub struct Symbols {
    names: String,
    entries: Vec<Entry>,
    modules: Vec<Box<str>>,
    addresses_hidden: bool,
    by_name: OnceLock<NameIndex>,
}

impl Symbols {
    /// Parses `text`: lines of `ADDRESS TYPE NAME [MODULE]`, as in
    /// /proc/kallsyms (kernel/kallsyms.c, `s_show()`), System.map and the
    /// output of nm(1).
    ///
    /// The address is hexadecimal, the type one letter. Fields are separated
    /// by spaces or tabs: the kernel has a tab before `[MODULE]`, copies often
    /// a space. Lines may end in CRLF and may come in any order. Mapping
    /// symbols, which mark data in code on arm64 and RISC-V (`$d`, `$x.12`),
    /// are no symbols to a user and are left out.
    ///
    /// `text` becomes the table's own memory: nothing larger than it is
    /// allocated but the entries, 24 bytes for each line.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first line that is not of this form, a text
    /// without a symbol, and a last line without its newline: a file that was
    /// cut off, whose last name may be half a name.
    pub fn parse(text: Vec<u8>) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// Whether a module of this name has symbols; `-` and `_` are one.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        let same = |own: u8, other: u8| own == other || (own == b'_' && other == b'-');
        self.modules.iter().any(|module| {
            module.len() == name.len() && module.bytes().zip(name.bytes()).all(|(a, b)| same(a, b))
        })
    }

    /// How many symbols there are, aliases counted each.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no symbol, which only [`Symbols::default`] has.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbol at `index`, counted from 0 in address order.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Symbol<'_>> {
        self.entries.get(index).map(|entry| self.symbol(entry))
    }

    /// Every symbol, in address order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            symbols: self,
            entries: self.entries.iter(),
        }
    }

    /// Every symbol at exactly `address`, in the order the text had them.
    ///
    /// A binary search. For address 0, every symbol whose address is hidden.
    pub fn at(&self, address: u64) -> impl Iterator<Item = Symbol<'_>> {
        let first = self.entries.partition_point(|e| e.address < address);
        self.entries[first..]
            .iter()
            .take_while(move |entry| entry.address == address)
            .map(|entry| self.symbol(entry))
    }

    /// Every symbol of exactly this name, in address order: static functions
    /// often share a name, and modules may repeat one of the core kernel.
    ///
    /// The first call builds an index of 8 to 12 bytes a symbol; each call
    /// then costs a hash and a few comparisons.
    pub fn named(&self, name: &str) -> impl Iterator<Item = Symbol<'_>> {
        self.by_name
            .get_or_init(|| NameIndex::build(self.entries.iter().map(|entry| self.name(entry))))
            .candidates(name)
            .filter_map(|index| self.get(index))
            .filter(move |symbol| symbol.name == name)
    }

    /// Whether the kernel hid the addresses: it has text symbols, and each of
    /// them is at 0.
    ///
    /// /proc/kallsyms shows zeros to readers without `CAP_SYSLOG`, and to
    /// everyone when `kernel.kptr_restrict` is 2 (`kernel/ksyms_common.c`,
    /// `kallsyms_show_value()`). Small addresses of absolute and per-CPU
    /// symbols are what they are and do not count.
    #[must_use]
    pub const fn addresses_hidden(&self) -> bool {
        self.addresses_hidden
    }

    /// The index ranges of symbols that share an address, in address order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut end = 0;
        self.entries
            .chunk_by(|a, b| a.address == b.address)
            .map(move |chunk| {
                let start = end;
                end += chunk.len();
                start..end
            })
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        Symbol {
            address: entry.address,
            kind: entry.kind,
            name: self.name(entry),
            module: (entry.module as usize)
                .checked_sub(1)
                .map(|module| &*self.modules[module]),
        }
    }

    fn name(&self, entry: &Entry) -> &str {
        let start = entry.name as usize;
        &self.names[start..start + usize::from(entry.name_len)]
    }
}

impl<'a> IntoIterator for &'a Symbols {
    type Item = Symbol<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols")
            .field("symbols", &self.entries.len())
            .field("modules", &self.modules.len())
            .field("addresses_hidden", &self.addresses_hidden)
            .finish_non_exhaustive()
    }
}

/// The symbols of a table in address order, from [`Symbols::iter`].
#[derive(Clone)]
pub struct Iter<'a> {
    symbols: &'a Symbols,
    entries: std::slice::Iter<'a, Entry>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Symbol<'a>;

    fn next(&mut self) -> Option<Symbol<'a>> {
        self.entries.next().map(|entry| self.symbols.symbol(entry))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries
            .next_back()
            .map(|entry| self.symbols.symbol(entry))
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
