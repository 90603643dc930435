//! The kernel's symbol table as the kernel keeps it: compressed.
//!
//! A name is a length and that many codes, each of which stands for one of 256
//! tokens; the first character that they expand to is the type letter
//! (scripts/kallsyms.c). [`SymbolTable`] holds such names, whether taken from a
//! kernel ([`SymbolTable::from_parts`]) or compressed here
//! ([`SymbolTable::encode`]), and looks names up in them: in the four ways that
//! kernels have done it or may ([`Step`]), and in one that is faster
//! ([`SymbolTable::resolve`], [`SymbolTable::resolve_batch`]).
//!
//! ```
//! use ksyms::kallsyms::{Step, SymbolTable, Symbols};
//!
//! let text = b"ffffffff81000000 T _stext\nffffffff81000a30 t s_next\nffffffff81000b00 t s_next\n";
//! let symbols = Symbols::parse(text.to_vec())?;
//! let table = SymbolTable::encode(&symbols)?;
//! let found = table.resolve("s_next").map(|index| table.address(index));
//! assert_eq!(found.collect::<Vec<_>>(), [0xffff_ffff_8100_0a30, 0xffff_ffff_8100_0b00]);
//! let batch = table.batch_start();
//! assert_eq!(table.first(Step::Sequence, "_stext"), Some(0));
//! drop(batch);
//! assert_eq!(table.describe(0xffff_ffff_8100_0a42).unwrap().to_string(), "s_next+0x12/0xd0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod batch;
mod blocks;
mod encode;
mod error;
mod hash;
mod index;
mod lookup;
mod resolve;
mod tokens;

use std::{
    fmt,
    ops::ControlFlow,
    sync::{OnceLock, atomic::AtomicU32},
};

pub use address::{Addresses, Described, Place};
pub use batch::Batch;
use batch::Batches;
use blocks::Blocks;
pub use error::{TableError, TableErrorKind};
use index::Index;
pub use lookup::Step;
pub use resolve::{Matches, Plan, Resolved};
use tokens::{BUFFER, Tokens, Unfit};

use super::Symbol;

/// The longest name in bytes, without its type letter: `KSYM_NAME_LEN` - 1
/// (include/linux/kallsyms.h, since 6.1).
const MAX_NAME: usize = 511;

/// Symbols from one marker to the next.
const MARKED: usize = 256;

/// Sequence numbers have 24 bits.
const MAX_SYMBOLS: usize = 1 << 24;

/// The parts of a kernel's table, as found in its memory or its ELF file, each
/// without what lies around it.
#[derive(Clone, Debug)]
pub struct TableParts {
    /// `kallsyms_names`: for each symbol a length and that many codes. The
    /// length is one byte, or two when bit 7 is set: then its low 7 bits come
    /// first and the rest, shifted by 7, second (since 6.1, commit
    /// 73bbb94466fd). Up to 7 zeros may follow the last, see
    /// [`TableParts::names_end`].
    pub names: Vec<u8>,
    /// `kallsyms_num_syms`.
    pub count: usize,
    /// `kallsyms_token_table`: texts that each end in a NUL. More may follow.
    pub token_table: Vec<u8>,
    /// `kallsyms_token_index`: where the text of each of the 256 codes begins.
    pub token_index: Vec<u16>,
    /// `kallsyms_seqs_of_names`, since 6.2: the symbols in name order, three
    /// bytes each, big endian. Without it the order is computed when a lookup
    /// first needs it.
    pub seqs_of_names: Option<Vec<u8>>,
    /// `kallsyms_markers`: where in the names every 256th symbol begins.
    /// Without it that is computed; with it, it is checked.
    pub markers: Option<Vec<u32>>,
    /// Where the symbols are, in the order of the names.
    pub addresses: Addresses,
}

impl TableParts {
    /// Where in `names` the last of `count` symbols ends: for callers that have
    /// the kernel's memory from `kallsyms_names` on, but not its length.
    ///
    /// # Errors
    ///
    /// [`TableErrorKind::NameTruncated`] when `names` ends before.
    pub fn names_end(names: &[u8], count: usize) -> Result<usize, TableError> {
        (0..count).try_fold(0, |offset, index| {
            name_at(names, offset).map(|(_, end)| end).ok_or_else(|| {
                TableErrorKind::NameTruncated {
                    index,
                    offset,
                    len: names.len(),
                }
                .into()
            })
        })
    }
}

/// Where the codes begin and end of the name whose length is at `offset`;
/// `None` if that is past the end of `names`.
#[inline]
fn name_at(names: &[u8], offset: usize) -> Option<(usize, usize)> {
    let rest = names.get(offset..)?;
    let &first = rest.first()?;
    let (head, len) = if first & 0x80 == 0 {
        (1, usize::from(first))
    } else {
        let &second = rest.get(1)?;
        (2, usize::from(first & 0x7f) | usize::from(second) << 7)
    };
    (head + len <= rest.len()).then_some((offset + head, offset + head + len))
}

/// The kernel's symbols, compressed as the kernel has them.
///
/// Symbols are numbered from 0 in address order, as in the kernel, and the
/// methods that take a number panic where indexing a slice would. Takes the
/// size of the parts and 24 KiB; the index of names, once there is one, another
/// 16 bytes a symbol; names that were asked for by [`SymbolTable::symbol`] stay
/// expanded.
pub struct SymbolTable {
    names: Box<[u8]>,
    tokens: Tokens,
    markers: Box<[u32]>,
    addresses: Addresses,
    count: usize,
    batches: Batches,
    /// The kernel's order of names.
    given_order: Option<Box<[u8]>>,
    /// The order of names that is right; `None` if that is the kernel's.
    order: OnceLock<Option<Box<[u8]>>>,
    index: OnceLock<Index>,
    /// How many batches were resolved by a pass.
    passes: AtomicU32,
    blocks: Blocks,
}

impl SymbolTable {
    /// Makes a table of a kernel's own, after checking all of it: no lookup
    /// can then leave it, whatever the parts were.
    ///
    /// Costs one pass over the names, and nothing is allocated that is larger
    /// than the parts. Whether the order of names is right, and has each symbol
    /// once, is seen when a lookup first needs it; if it is not, a right one is
    /// computed instead.
    ///
    /// # Errors
    ///
    /// [`TableError`] names the first thing that is wrong and where it is.
    pub fn from_parts(parts: TableParts) -> Result<Self, TableError> {
        let TableParts {
            mut names,
            count,
            token_table,
            token_index,
            seqs_of_names,
            markers,
            addresses,
        } = parts;
        if count == 0 {
            return Err(TableErrorKind::Empty.into());
        }
        if count > MAX_SYMBOLS {
            return Err(TableErrorKind::TooManySymbols(count).into());
        }
        if u32::try_from(names.len()).is_err() {
            return Err(TableErrorKind::NamesTooLarge(names.len()).into());
        }
        addresses.check(count)?;
        let tokens = Tokens::new(token_table, &token_index)?;
        let mut found = Vec::with_capacity(count.div_ceil(MARKED));
        let end = check_names(&names, count, &tokens, &mut found)?;
        if names.len() - end >= 8 || names[end..].iter().any(|&byte| byte != 0) {
            return Err(TableErrorKind::TrailingNames {
                count,
                end,
                len: names.len(),
            }
            .into());
        }
        names.truncate(end);
        check_markers(markers, &found)?;
        if let Some(order) = &seqs_of_names {
            lookup::check_order(order, count)?;
        }
        let table = Self {
            names: names.into(),
            tokens,
            markers: found.into(),
            addresses,
            count,
            batches: Batches::default(),
            given_order: seqs_of_names.map(Into::into),
            order: OnceLock::new(),
            index: OnceLock::new(),
            passes: AtomicU32::new(0),
            blocks: Blocks::default(),
        };
        table.check_utf8()?;
        Ok(table)
    }

    /// The parts again, to be saved: with markers, and with the order of names
    /// if it was given or was needed yet.
    #[must_use]
    pub fn to_parts(&self) -> TableParts {
        TableParts {
            names: self.names.to_vec(),
            count: self.count,
            token_table: self.tokens.table().to_vec(),
            token_index: self.tokens.index(),
            seqs_of_names: self
                .own_order()
                .or(self.given_order.as_deref())
                .map(<[u8]>::to_vec),
            markers: Some(self.markers.to_vec()),
            addresses: self.addresses.clone(),
        }
    }

    fn check_utf8(&self) -> Result<(), TableErrorKind> {
        if self.tokens.all_ascii() {
            return Ok(());
        }
        let mut buffer = [0; BUFFER];
        let mut offset = 0;
        for index in 0..self.count {
            let name = self.codes_from(&mut offset);
            let len = self.tokens.expand(name, &mut buffer);
            // The type letter is a byte of its own.
            if !buffer[0].is_ascii() || str::from_utf8(&buffer[1..len]).is_err() {
                return Err(TableErrorKind::NotUtf8 { index });
            }
        }
        Ok(())
    }

    /// How many symbols there are; at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no table is empty")]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// The address of symbol `index`.
    #[must_use]
    #[inline]
    pub fn address(&self, index: usize) -> u64 {
        self.addresses.get(index)
    }

    /// The type letter of symbol `index`, see [`Symbol::kind`].
    #[must_use]
    pub fn kind(&self, index: usize) -> u8 {
        let offset = self.marked_offset(index);
        self.tokens.text(self.codes_at(offset)[0])[0]
    }

    /// The name of symbol `index`, expanded into `buffer`: costs a walk from
    /// the nearest marker each time. To keep the name, see
    /// [`SymbolTable::symbol`].
    pub fn name<'b>(&self, index: usize, buffer: &'b mut NameBuffer) -> &'b str {
        let offset = self.marked_offset(index);
        buffer.fill(&self.tokens, self.codes_at(offset)).1
    }

    /// Calls `visit` with every symbol and its number, in address order, until
    /// it breaks. No module is known to the core kernel's table.
    ///
    /// As kernel/kallsyms.c, `kallsyms_on_each_symbol()`: one pass, each name
    /// expanded once.
    pub fn walk<B>(
        &self,
        mut visit: impl FnMut(usize, Symbol<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut buffer = NameBuffer::default();
        let mut offset = 0;
        for index in 0..self.count {
            let (kind, name) = buffer.fill(&self.tokens, self.codes_from(&mut offset));
            visit(
                index,
                Symbol {
                    address: self.address(index),
                    kind,
                    name,
                    module: None,
                },
            )?;
        }
        ControlFlow::Continue(())
    }

    /// The bytes of the compressed names, as in `kallsyms_names`.
    #[must_use]
    pub const fn names_bytes(&self) -> usize {
        self.names.len()
    }

    /// The bytes that the table occupies.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.names.len()
            + self.tokens.heap_bytes()
            + size_of_val(&*self.markers)
            + self.addresses.heap_bytes()
            + self.given_order.as_ref().map_or(0, |order| order.len())
            + self.own_order().map_or(0, <[u8]>::len)
            + self.index.get().map_or(0, Index::heap_bytes)
            + self.blocks.heap_bytes()
    }

    /// The codes of the name whose length is at `offset`.
    #[inline]
    fn codes_at(&self, offset: usize) -> &[u8] {
        let (start, end) = name_at(&self.names, offset).unwrap_or_default();
        &self.names[start..end]
    }

    /// The same, and `offset` moves on to the next name.
    #[inline]
    fn codes_from(&self, offset: &mut usize) -> &[u8] {
        let (start, end) = name_at(&self.names, *offset).unwrap_or_default();
        *offset = end;
        &self.names[start..end]
    }

    /// Where the name of symbol `index` is, walking from the nearest marker
    /// (kernel/kallsyms.c, `get_symbol_offset()`).
    fn marked_offset(&self, index: usize) -> usize {
        let marked = self.markers[index / MARKED] as usize;
        (0..index % MARKED).fold(marked, |offset, _| self.after(offset))
    }

    /// Where the name begins that follows the one whose length is at `offset`.
    #[inline]
    fn after(&self, offset: usize) -> usize {
        let first = self.names[offset];
        let mut len = usize::from(first);
        if first & 0x80 != 0 {
            len = (usize::from(first & 0x7f) | usize::from(self.names[offset + 1]) << 7) + 1;
        }
        offset + len + 1
    }
}

impl fmt::Debug for SymbolTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymbolTable")
            .field("symbols", &self.count)
            .field("names_bytes", &self.names.len())
            .finish_non_exhaustive()
    }
}

/// Checks every name, and finds where each 256th begins and the last one ends.
fn check_names(
    names: &[u8],
    count: usize,
    tokens: &Tokens,
    markers: &mut Vec<u32>,
) -> Result<usize, TableErrorKind> {
    let mut offset = 0;
    let sound = 2..=tokens.short().min(0x7f);
    for index in 0..count {
        if index % MARKED == 0 {
            markers.push(narrow(offset));
        }
        // Nearly all: a length of one byte, and codes that need no look.
        if let Some(&len) = names.get(offset)
            && sound.contains(&usize::from(len))
            && names.len() - offset > usize::from(len)
        {
            offset += 1 + usize::from(len);
            continue;
        }
        let (start, end) = name_at(names, offset).ok_or(TableErrorKind::NameTruncated {
            index,
            offset,
            len: names.len(),
        })?;
        tokens
            .check(&names[start..end])
            .map_err(|unfit| match unfit {
                Unfit::Empty => TableErrorKind::NameEmpty { index, offset },
                Unfit::TooLong => TableErrorKind::NameTooLong { index },
            })?;
        offset = end;
    }
    Ok(offset)
}

/// Checks markers that were given against those that were `found`.
fn check_markers(given: Option<Vec<u32>>, found: &[u32]) -> Result<(), TableErrorKind> {
    let Some(given) = given else {
        return Ok(());
    };
    if given.len() != found.len() {
        return Err(TableErrorKind::MarkerCount {
            expected: found.len(),
            found: given.len(),
        });
    }
    match given
        .iter()
        .zip(found)
        .position(|(given, found)| given != found)
    {
        Some(marker) => Err(TableErrorKind::Marker {
            marker,
            expected: found[marker],
            found: given[marker],
        }),
        None => Ok(()),
    }
}

/// A number of symbols, or an offset into their names.
#[expect(
    clippy::cast_possible_truncation,
    reason = "tables of 2^24 symbols or 4 GiB of names are refused"
)]
const fn narrow(number: usize) -> u32 {
    number as u32
}

/// Room for a name, to be used again and again.
#[derive(Clone)]
pub struct NameBuffer {
    bytes: [u8; BUFFER],
}

impl Default for NameBuffer {
    fn default() -> Self {
        Self { bytes: [0; BUFFER] }
    }
}

impl fmt::Debug for NameBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameBuffer").finish_non_exhaustive()
    }
}

impl NameBuffer {
    /// The type letter and the name that `codes` stand for.
    fn fill(&mut self, tokens: &Tokens, codes: &[u8]) -> (u8, &str) {
        let len = tokens.expand(codes, &mut self.bytes);
        // Every name of a table was checked when the table was made.
        let name = str::from_utf8(&self.bytes[1..len.max(1)]).unwrap_or_default();
        (self.bytes[0], name)
    }
}

#[cfg(test)]
mod tests;
