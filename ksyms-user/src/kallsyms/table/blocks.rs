//! Names that stay expanded, those of one marker at a time.
//!
//! The compressed names are small and quick to compare with, but a caller that
//! wants to keep a name would have to copy it. A block is the 256 names from
//! one marker to the next, expanded when one of them is first asked for; a
//! table of which all is asked for then holds its names twice, and no more.

use std::sync::OnceLock;

use super::{BUFFER, MARKED, SymbolTable, narrow};
use crate::kallsyms::Symbol;

/// The expanded names from one marker to the next.
struct Block {
    /// For each symbol its type letter and its name.
    text: Box<str>,
    /// Where in `text` each symbol's name ends.
    ends: Box<[u32]>,
}

impl Block {
    fn expand(table: &SymbolTable, marker: usize) -> Self {
        let first = marker * MARKED;
        let symbols = first..table.len().min(first + MARKED);
        let mut text = Vec::with_capacity(symbols.len() * 32);
        let mut offset = table.markers[marker] as usize;
        let mut buffer = [0; BUFFER];
        let ends = symbols.map(|_| {
            let len = table
                .tokens
                .expand(table.codes_from(&mut offset), &mut buffer);
            text.extend_from_slice(&buffer[..len]);
            narrow(text.len())
        });
        let ends = ends.collect();
        Self {
            // Every name of a table was checked when the table was made.
            text: String::from_utf8(text).unwrap_or_default().into(),
            ends,
        }
    }

    /// The type letter and the name of the symbol at this place of the block.
    #[inline]
    fn get(&self, place: usize) -> (u8, &str) {
        let end = self.ends[place] as usize;
        let start = place.checked_sub(1).map_or(0, |place| self.ends[place]) as usize;
        let kind = self.text.as_bytes().get(start).copied();
        let name = self.text.get(start + 1..end);
        (kind.unwrap_or_default(), name.unwrap_or_default())
    }
}

/// The blocks of a table, none of which is there at first.
#[derive(Default)]
pub(super) struct Blocks(OnceLock<Box<[OnceLock<Block>]>>);

impl Blocks {
    pub(super) fn heap_bytes(&self) -> usize {
        let blocks = self.0.get().map(|blocks| &**blocks).unwrap_or_default();
        let names = |block: &Block| block.text.len() + size_of_val(&*block.ends);
        size_of_val(blocks)
            + blocks
                .iter()
                .filter_map(OnceLock::get)
                .map(names)
                .sum::<usize>()
    }
}

impl SymbolTable {
    /// The symbol `index`, with its name for as long as the table lives.
    ///
    /// The first call for one of 256 symbols expands the names of all of them,
    /// which takes about 10 us; on any thread, of which one does it. They then
    /// occupy five bytes a symbol more than the names themselves. To look at
    /// each symbol once, [`SymbolTable::walk`] and [`SymbolTable::name`] do
    /// without.
    #[must_use]
    pub fn symbol(&self, index: usize) -> Symbol<'_> {
        let blocks = self.blocks.0.get_or_init(|| {
            let blocks = self.markers.iter().map(|_| OnceLock::new());
            blocks.collect()
        });
        let marker = index / MARKED;
        let block = blocks[marker].get_or_init(|| Block::expand(self, marker));
        let (kind, name) = block.get(index % MARKED);
        Symbol {
            address: self.address(index),
            kind,
            name,
            module: None,
        }
    }

    /// Every symbol in address order, see [`SymbolTable::symbol`].
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Symbol<'_>> {
        (0..self.len()).map(|index| self.symbol(index))
    }
}
