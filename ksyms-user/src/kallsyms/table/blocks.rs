//! Names that stay expanded, those of one marker at a time.
//!
//! The compressed names are small and quick to compare with, but a caller that
//! wants to keep a name would have to copy it. A block is the 256 names from
//! one marker to the next, expanded when one of them is first asked for; a
//! table of which all is asked for then holds its names twice, and no more.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use super::{BUFFER, MARKED, SymbolTable, narrow, tokens::Query};
use crate::kallsyms::Symbol;

/// How often [`SymbolTable::resolve`] finds a name of a block before it expands
/// it: about when the time saved since would have paid for that.
const OFTEN: u32 = 1_000;

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

/// Where the block of a marker is, once there is one.
#[derive(Default)]
struct Place {
    block: OnceLock<Block>,
    /// How often a name of it was found before. Threads may overwrite each
    /// other's: it is then found more often.
    found: AtomicU32,
}

/// The blocks of a table, none of which is there at first.
#[derive(Default)]
pub(super) struct Blocks(OnceLock<Box<[Place]>>);

impl Blocks {
    #[inline]
    fn get(&self, marker: usize) -> Option<&Block> {
        self.0.get()?.get(marker)?.block.get()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let places = self.0.get().map(|places| &**places).unwrap_or_default();
        let blocks = places.iter().filter_map(|place| place.block.get());
        let names = blocks.map(|block| block.text.len() + size_of_val(&*block.ends));
        size_of_val(places) + names.sum::<usize>()
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
        let (kind, name) = self.block(index / MARKED).get(index % MARKED);
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

    fn place(&self, marker: usize) -> &Place {
        let places = || self.markers.iter().map(|_| Place::default()).collect();
        &self.blocks.0.get_or_init(places)[marker]
    }

    fn block(&self, marker: usize) -> &Block {
        let block = &self.place(marker).block;
        block.get_or_init(|| Block::expand(self, marker))
    }

    /// Whether symbol `index`, whose name is at `offset`, has the name that is
    /// sought: said by its expanded name if there is one, and there soon is for
    /// those that are sought again and again.
    #[inline]
    pub(super) fn is_named(&self, index: usize, offset: usize, query: &Query<'_>) -> bool {
        let marker = index / MARKED;
        if let Some(block) = self.blocks.get(marker) {
            return block.get(index % MARKED).1.as_bytes() == query.bytes();
        }
        let same = self.tokens.compare(query, self.codes_at(offset)).is_eq();
        if same {
            let found = &self.place(marker).found;
            let times = found.load(Relaxed) + 1;
            found.store(times, Relaxed);
            if times >= OFTEN {
                self.block(marker);
            }
        }
        same
    }
}
