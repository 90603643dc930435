//! From the hash of a name to its symbols.

use super::{SymbolTable, name_at, narrow};

/// A slot of the index, empty if 0: where the name is, which symbol has it,
/// and a fingerprint, all in one word, so that a lookup needs no further memory
/// before the name itself.
///
/// | bits | |
/// |---|---|
/// | 0 to 31 | 1 + the offset of the name's length byte |
/// | 32 to 55 | the symbol; of several, where they begin in [`Index::shared`] |
/// | 56 | whether there are several |
/// | 57 to 63 | fingerprint |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u64);

impl Slot {
    pub(super) const EMPTY: Self = Self(0);

    const SEVERAL: u64 = 1 << 56;

    const fn new(offset: usize, symbol: u32, hash: u64) -> Self {
        Self((offset as u64 + 1) | (symbol as u64) << 32 | fingerprint(hash))
    }

    /// Whether the name may be one of this (mixed) hash.
    const fn may_be(self, hash: u64) -> bool {
        self.0 >> 57 == fingerprint(hash) >> 57
    }

    pub(super) const fn offset(self) -> usize {
        ((self.0 & 0xffff_ffff) as usize).wrapping_sub(1)
    }

    const fn symbol(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    const fn is_several(self) -> bool {
        self.0 & Self::SEVERAL != 0
    }
}

/// Bits of a mixed hash that do not say which slot it begins at.
const fn fingerprint(hash: u64) -> u64 {
    hash << 57
}

/// Open addressing, half full: 16 bytes a symbol.
pub(super) struct Index {
    slots: Box<[Slot]>,
    /// The symbols of names that several have, in address order. Each
    /// name's are preceded by their number.
    shared: Box<[u32]>,
}

impl Index {
    /// One pass over the table, hashing each name without expanding it.
    pub(super) fn build(table: &SymbolTable) -> Self {
        let slots = 2 * table.len();
        let mut index = Self {
            slots: vec![Slot::EMPTY; slots].into(),
            shared: Box::default(),
        };
        let mut repeats = Vec::new();
        let mut offset = 0;
        for symbol in 0..table.len() {
            let at = offset;
            let (start, end) = name_at(&table.names, offset).unwrap_or_default();
            offset = end;
            let hash = table.tokens.hash(&table.names[start..], end - start);
            match index.place_of(hash, |slot| {
                table
                    .tokens
                    .same(table.codes_at(slot.offset()), &table.names[start..end])
            }) {
                Ok(slot) => repeats.push((narrow(slot), narrow(symbol))),
                Err(slot) => index.slots[slot] = Slot::new(at, narrow(symbol), hash),
            }
        }
        index.share(repeats);
        index
    }

    /// Lists the symbols of each slot that has more than one.
    fn share(&mut self, mut repeats: Vec<(u32, u32)>) {
        repeats.sort_unstable();
        let mut shared = Vec::new();
        for repeats in repeats.chunk_by(|a, b| a.0 == b.0) {
            let slot = &mut self.slots[repeats[0].0 as usize];
            let start = narrow(shared.len());
            shared.push(narrow(repeats.len() + 1));
            shared.push(slot.symbol());
            shared.extend(repeats.iter().map(|&(_, symbol)| symbol));
            slot.0 = slot.0 & !(0xff_ffff << 32) | u64::from(start) << 32 | Slot::SEVERAL;
        }
        self.shared = shared.into();
    }

    /// The slot that `is` it, else the empty one where it would go.
    fn place_of(&self, hash: u64, is: impl Fn(Slot) -> bool) -> Result<usize, usize> {
        let mut at = self.probe(self.start(hash), hash);
        loop {
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                return Err(at);
            }
            if is(slot) {
                return Ok(at);
            }
            at = self.probe(self.next(at), hash);
        }
    }

    /// Where the search for a (mixed) hash begins.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the high half of the product is less than the number of slots"
    )]
    #[inline]
    pub(super) const fn start(&self, hash: u64) -> usize {
        ((hash as u128 * self.slots.len() as u128) >> 64) as usize
    }

    #[inline]
    const fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() {
            0
        } else {
            at + 1
        }
    }

    #[inline]
    pub(super) fn slot(&self, at: usize) -> Slot {
        self.slots[at]
    }

    /// The first slot that may be one of this (mixed) hash, or is empty, from
    /// this one on.
    #[inline]
    pub(super) fn probe(&self, mut at: usize, hash: u64) -> usize {
        loop {
            let slot = self.slots[at];
            if slot == Slot::EMPTY || slot.may_be(hash) {
                return at;
            }
            at = self.next(at);
        }
    }

    /// The symbols of the name of this (mixed) hash, from a slot on that was
    /// probed for; `is` says whether it is that of a symbol, of which it also
    /// gets where the name is.
    #[inline]
    pub(super) fn find(
        &self,
        mut at: usize,
        hash: u64,
        is: impl Fn(usize, usize) -> bool,
    ) -> Found<'_> {
        loop {
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                return Found::None;
            }
            let found = self.symbols(slot);
            let any = match found {
                Found::Several(&[symbol, ..]) | Found::One(symbol) => symbol as usize,
                _ => 0,
            };
            if is(any, slot.offset()) {
                return found;
            }
            at = self.probe(self.next(at), hash);
        }
    }

    #[inline]
    fn symbols(&self, slot: Slot) -> Found<'_> {
        if !slot.is_several() {
            return Found::One(slot.symbol());
        }
        let start = slot.symbol() as usize;
        let count = self.shared[start] as usize;
        Found::Several(&self.shared[start + 1..][..count])
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.shared)
    }
}

/// The symbols of a name.
#[derive(Clone, Copy)]
pub(super) enum Found<'i> {
    None,
    One(u32),
    Several(&'i [u32]),
}
