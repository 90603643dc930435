//! The kernel's symbol table.
//!
//! [`Symbols`] answers the questions that attaching asks: what lives at an
//! address ([`Symbols::at`]), where a name lives ([`Symbols::named`]), and
//! everything in address order ([`Symbols::iter`]). It is made from the bytes
//! of /proc/kallsyms, of a System.map, or of a saved copy of either, or holds
//! the kernel's own table, a [`SymbolTable`]. Nothing here talks to a kernel:
//! [`crate::source`] does the reading.
//!
//! A [`SymbolTable`] has more to offer: the kernel's ways to look names up, batches
//! of names, name order. It comes with the symbols where they are from the kernel's
//! memory ([`Symbols::table`]), and is made of any others by
//! [`SymbolTable::encode`].
//!
//! ```
//! let text = b"ffffffff81000a30 t __do_sys_getpid\nffffffff81000a30 T __x64_sys_getpid\n";
//! let symbols = ksyms::kallsyms::Symbols::parse(text)?;
//! let names: Vec<_> = symbols.at(0xffff_ffff_8100_0a30).map(|s| s.name).collect();
//! assert_eq!(names, ["__do_sys_getpid", "__x64_sys_getpid"]);
//! # Ok::<(), ksyms::kallsyms::ParseError>(())
//! ```

mod index;
mod parse;
mod plain;
mod table;

use std::{fmt, ops::Range};

use index::NameIndex;
pub(crate) use parse::{Fault, Feed, Label, Lines, SymbolLines, Wanted, address, excerpt, hex};
pub use parse::{ParseError, ParseErrorKind};
pub(crate) use plain::Builder;
use plain::Plain;
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

impl Symbol<'_> {
    /// Whether its code was made at run time: an eBPF program, a trampoline of
    /// ftrace's, a slot of kprobes'. /proc/kallsyms shows these with modules that
    /// are none.
    pub(crate) fn is_made_at_run_time(&self) -> bool {
        self.module
            .is_some_and(|module| module == "bpf" || module.starts_with("__builtin__"))
    }
}

const fn is_text(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

/// The symbols of a kernel and its modules, sorted by address; those at one
/// address keep the order in which they were given.
///
/// The core kernel's may be in a [`SymbolTable`], compressed as the kernel has
/// them; all that came as text, and those of modules, are kept as they are.
/// Whichever it is, the answers are the same.
#[derive(Default)]
pub struct Symbols {
    table: Option<SymbolTable>,
    plain: Plain,
    runs: Vec<Run>,
    addresses_hidden: bool,
}

/// Symbols that follow each other both here and in a part. Modules lie together
/// above the core kernel, or below it, so there are two or three runs.
struct Run {
    start: usize,
    part: Part,
    first: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Table,
    Plain,
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
    /// Costs 17 bytes a symbol and the names' own bytes.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first line that is not of this form, a text
    /// without a symbol, and a last line without its newline: a file that was
    /// cut off, whose last name may be half a name.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let text = text.as_ref();
        let lines = SymbolLines::new(text.len(), Wanted::default());
        Feed::new(lines).parse(text)?.finish()
    }

    /// Takes the core kernel's symbols from its own table, and those of modules
    /// from `modules`, or all from there.
    pub(crate) fn new(table: Option<SymbolTable>, modules: Builder) -> Self {
        Self::of(table, modules.build(), false)
    }

    fn of(table: Option<SymbolTable>, plain: Plain, addresses_hidden: bool) -> Self {
        let runs = runs(table.as_ref(), &plain);
        Self {
            table,
            plain,
            runs,
            addresses_hidden,
        }
    }

    /// The core kernel's own table, where the symbols came with one.
    #[must_use]
    pub const fn table(&self) -> Option<&SymbolTable> {
        self.table.as_ref()
    }

    /// Opens a batch of lookups, see [`SymbolTable::batch_start`]; `None` where
    /// there is no table, and names need no looking for.
    #[must_use]
    pub fn batch_start(&self) -> Option<Batch<'_>> {
        self.table.as_ref().map(SymbolTable::batch_start)
    }

    /// Whether a module of this name has symbols; `-` and `_` are one.
    #[must_use]
    pub fn has_module(&self, name: &str) -> bool {
        let same = |own: u8, other: u8| own == other || (own == b'_' && other == b'-');
        self.plain.modules().iter().any(|module| {
            module.len() == name.len() && module.bytes().zip(name.bytes()).all(|(a, b)| same(a, b))
        })
    }

    /// How many symbols there are, aliases counted each.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.as_ref().map_or(0, SymbolTable::len) + self.plain.len()
    }

    /// Whether there is no symbol, which only [`Symbols::default`] has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The symbol at `index`, counted from 0 in address order.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Symbol<'_>> {
        (index < self.len()).then(|| match self.place(index) {
            (Some(table), index) => table.symbol(index),
            (None, index) => self.plain.symbol(index),
        })
    }

    /// Every symbol, in address order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            symbols: self,
            range: 0..self.len(),
        }
    }

    /// Every symbol at exactly `address`, in the order the text had them.
    ///
    /// A binary search. For address 0, every symbol whose address is hidden.
    pub fn at(&self, address: u64) -> impl Iterator<Item = Symbol<'_>> {
        let first = partition(0..self.len(), |index| self.address(index) < address);
        (first..self.len())
            .take_while(move |&index| self.address(index) == address)
            .filter_map(|index| self.get(index))
    }

    /// The symbol that `address` is in, to be printed as the kernel does in its
    /// backtraces (`%pS`): `tcp_v4_rcv+0x12/0x5f0`, `nf_nat_init+0x4/0x80
    /// [nf_nat]`. `None` below the first symbol.
    ///
    /// As in kernel/kallsyms.c and kernel/module/kallsyms.c: the last symbol that
    /// does not begin after `address`, the first of its aliases, and the next
    /// symbol of the module elsewhere as its end. How far the last symbol of the
    /// core kernel or of a module reaches is not told: an address behind it is
    /// in that one, and has no size.
    #[must_use]
    pub fn describe(&self, address: u64) -> Option<Described> {
        let next = partition(0..self.len(), |index| self.address(index) <= address);
        let start = self.address(next.checked_sub(1)?);
        let first = partition(0..next, |index| self.address(index) < start);
        let symbol = self.get(first)?;
        let size = self
            .get(next)
            .filter(|next| next.module == symbol.module)
            .map(|next| next.address - start);
        Some(Described {
            name: symbol.name.into(),
            module: symbol.module.map(Into::into),
            offset: address - start,
            size,
        })
    }

    /// Every symbol of exactly this name, in address order: static functions
    /// often share a name, and modules may repeat one of the core kernel.
    ///
    /// A table goes about it as [`SymbolTable::resolve_batch`] does. Text is
    /// passed over; after some calls an index of 8 to 12 bytes a symbol is built,
    /// with which a call costs a hash and a few comparisons.
    pub fn named(&self, name: &str) -> impl Iterator<Item = Symbol<'_>> {
        let mut found = self.plain.named(name);
        for index in &mut found {
            *index = self.index(Part::Plain, *index);
        }
        if let Some(table) = &self.table {
            found.extend(self.indices(table.resolve_batch(&[name]).get(0)));
            found.sort_unstable();
        }
        found.into_iter().filter_map(|index| self.get(index))
    }

    /// Every symbol whose name begins with `prefix`: those of the core kernel's
    /// table in name order, see [`SymbolTable::prefixed`], then all others in
    /// address order.
    pub fn prefixed(&self, prefix: &str) -> impl Iterator<Item = Symbol<'_>> {
        let table = self
            .table
            .iter()
            .flat_map(move |table| table.prefixed(prefix).map(move |index| table.symbol(index)));
        let plain = (0..self.plain.len())
            .map(|index| self.plain.symbol(index))
            .filter(move |symbol| symbol.name.starts_with(prefix));
        table.chain(plain)
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

    /// The symbols among which all are that have one of `names` or begin with
    /// one of `prefixes`, in address order: those of the table that do, found
    /// without looking at the rest, and all that are not in it.
    pub(crate) fn narrowed(&self, names: &[&str], prefixes: &[&str]) -> Vec<usize> {
        let mut found = Vec::new();
        if let Some(table) = &self.table {
            let resolved = table.resolve_batch(names);
            found.extend(resolved.iter().flat_map(|named| self.indices(named)));
            for prefix in prefixes {
                let begin = table.prefixed(prefix);
                found.extend(begin.map(|index| self.index(Part::Table, index)));
            }
        }
        found.extend((0..self.plain.len()).map(|index| self.index(Part::Plain, index)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Takes each of `indices`, which are in order, to the range of symbols
    /// that share its address; each range comes once.
    pub(crate) fn groups(
        &self,
        indices: impl IntoIterator<Item = usize>,
    ) -> impl Iterator<Item = Range<usize>> {
        let mut end = 0;
        indices.into_iter().filter_map(move |index| {
            if index < end {
                return None;
            }
            let address = self.address(index);
            let shared = |&index: &usize| self.address(index) == address;
            let start = (end..index).rev().take_while(shared).last();
            end = (index..self.len())
                .take_while(shared)
                .last()
                .unwrap_or(index)
                + 1;
            Some(start.unwrap_or(index)..end)
        })
    }

    /// The address of the symbol at `index`, which must be one.
    pub(crate) fn address(&self, index: usize) -> u64 {
        match self.place(index) {
            (Some(table), index) => table.address(index),
            (None, index) => self.plain.address(index),
        }
    }

    /// Where the symbol at `index` is: in the table, or else in plain text.
    fn place(&self, index: usize) -> (Option<&SymbolTable>, usize) {
        let run = self.runs.partition_point(|run| run.start <= index) - 1;
        let Run { start, part, first } = self.runs[run];
        let table = match part {
            Part::Table => self.table.as_ref(),
            Part::Plain => None,
        };
        (table, first + index - start)
    }

    /// The index of what is at `index` of a part.
    fn index(&self, part: Part, index: usize) -> usize {
        self.runs
            .iter()
            .rfind(|run| run.part == part && run.first <= index)
            .map_or(index, |run| run.start + index - run.first)
    }

    /// The indices of those that have these in the table.
    fn indices<'i>(&'i self, in_table: &'i [u32]) -> impl Iterator<Item = usize> + 'i {
        in_table
            .iter()
            .map(|&index| self.index(Part::Table, index as usize))
    }
}

/// Puts the parts into the order of their addresses; at the same one, the table
/// comes first.
fn runs(table: Option<&SymbolTable>, plain: &Plain) -> Vec<Run> {
    let tables = table.map_or(0, SymbolTable::len);
    let in_table = |index| table.map_or(0, |table| table.address(index));
    let mut runs = Vec::new();
    let (mut from_table, mut from_plain) = (0, 0);
    loop {
        let end = if from_plain < plain.len() {
            let next = plain.address(from_plain);
            partition(from_table..tables, |index| in_table(index) <= next)
        } else {
            tables
        };
        if end > from_table {
            runs.push(Run {
                start: from_table + from_plain,
                part: Part::Table,
                first: from_table,
            });
            from_table = end;
        }
        let end = if from_table < tables {
            let next = in_table(from_table);
            partition(from_plain..plain.len(), |index| plain.address(index) < next)
        } else {
            plain.len()
        };
        if end == from_plain {
            return runs;
        }
        runs.push(Run {
            start: from_table + from_plain,
            part: Part::Plain,
            first: from_plain,
        });
        from_plain = end;
    }
}

/// The first of `range` for which `before` no longer holds.
fn partition(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let Range {
        start: mut low,
        end: mut high,
    } = range;
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
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
            .field("symbols", &self.len())
            .field("modules", &self.plain.modules().len())
            .field("table", &self.table)
            .field("addresses_hidden", &self.addresses_hidden)
            .finish_non_exhaustive()
    }
}

/// The symbols of a table in address order, from [`Symbols::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    symbols: &'a Symbols,
    range: Range<usize>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Symbol<'a>;

    fn next(&mut self) -> Option<Symbol<'a>> {
        self.range.next().and_then(|index| self.symbols.get(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.range
            .next_back()
            .and_then(|index| self.symbols.get(index))
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests;
