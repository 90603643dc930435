//! From a name to its symbols, the four ways that kernels have or may have.

use std::{cmp::Ordering, mem::replace, ops::Range};

use super::{
    SymbolTable, TableErrorKind, narrow,
    tokens::{BUFFER, Query},
};
use crate::kallsyms::partition;

/// How a lookup by name goes about it. All find the same.
///
/// Each is a binary search over the symbols in name order, 17 to 18 names
/// deep; they differ in what looking at one name costs. The first is what
/// kernels since 6.2 do, the others are the steps of a series of 2026 that
/// changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Find the name by walking from the nearest of the markers, 128 names on
    /// average; expand it into a buffer; compare.
    Expand,
    /// Find it the same way; compare it token by token as far as it is equal,
    /// without a buffer.
    Tokens,
    /// Compare by tokens; find the name by the index that a batch has
    /// ([`SymbolTable::batch_start`]), or by markers outside of one.
    Batch,
    /// The same, with the three bytes of a sequence number put together at
    /// once rather than in a loop.
    Sequence,
}

impl Step {
    /// All of them, in the order of the series.
    pub const ALL: [Self; 4] = [Self::Expand, Self::Tokens, Self::Batch, Self::Sequence];
}

/// Names that are compared while all of them are on their way from memory.
const TOGETHER: usize = 32;

/// The sequence number at `place`, as kernel/kallsyms.c, `get_symbol_seq()`.
fn sequence_by_loop(order: &[u8], place: usize) -> usize {
    let mut sequence = 0;
    for &byte in &order[3 * place..3 * place + 3] {
        sequence = sequence << 8 | usize::from(byte);
    }
    sequence
}

/// The same, in one go.
fn sequence(order: &[u8], place: usize) -> usize {
    match order[3 * place..] {
        [high, middle, low, ..] => {
            usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)
        }
        _ => 0,
    }
}

/// One way to look for a name.
struct Search<C, S> {
    /// How many names there are.
    count: usize,
    /// The symbol at a place in name order.
    symbol: S,
    /// The order of the name that is sought against that of a symbol.
    compare: C,
}

impl<C: Fn(usize) -> Ordering, S: Fn(usize) -> usize> Search<C, S> {
    /// Any place that has the name (kernel/kallsyms.c,
    /// `kallsyms_lookup_names()`).
    fn any(&self) -> Option<usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match (self.compare)((self.symbol)(middle)) {
                Ordering::Greater => low = middle + 1,
                Ordering::Less => high = middle,
                Ordering::Equal => return Some(middle),
            }
        }
        None
    }

    fn has_name(&self, place: usize) -> bool {
        (self.compare)((self.symbol)(place)).is_eq()
    }

    /// The first symbol of the name.
    fn first(&self) -> Option<usize> {
        let any = self.any()?;
        Some((self.symbol)(self.first_from(any)))
    }

    fn first_from(&self, mut place: usize) -> usize {
        while place > 0 && self.has_name(place - 1) {
            place -= 1;
        }
        place
    }

    /// All places that have the name; empty if none has.
    fn range(&self) -> Range<usize> {
        let Some(any) = self.any() else {
            return 0..0;
        };
        let mut end = any + 1;
        while end < self.count && self.has_name(end) {
            end += 1;
        }
        self.first_from(any)..end
    }
}

/// Runs `$call` on the search for `$name` that `$step` says.
macro_rules! search {
    ($table:ident, $step:ident, $name:ident, $call:ident) => {{
        let order = $table.order();
        let query = Query::new($name.as_bytes());
        let by_markers = |index| {
            let codes = $table.codes_at($table.marked_offset(index));
            $table.tokens.compare(&query, codes)
        };
        macro_rules! run {
            ($sequence:expr, $compare:expr) => {
                Search {
                    count: $table.count,
                    symbol: |place| $sequence(order, place),
                    compare: $compare,
                }
                .$call()
            };
        }
        match $step {
            Step::Expand => run!(sequence_by_loop, |index| {
                let codes = $table.codes_at($table.marked_offset(index));
                let mut buffer = [0; BUFFER];
                $name
                    .as_bytes()
                    .cmp($table.tokens.expand_by_bytes(codes, &mut buffer))
            }),
            Step::Tokens => run!(sequence_by_loop, by_markers),
            Step::Batch | Step::Sequence => {
                let index = $table.batches.slot().load();
                match (index.as_deref(), $step) {
                    (None, Step::Batch) => run!(sequence_by_loop, by_markers),
                    (None, _) => run!(sequence, by_markers),
                    (Some(offsets), step) => {
                        let by_index = |index: usize| {
                            let codes = $table.codes_at(offsets.0[index] as usize);
                            $table.tokens.compare(&query, codes)
                        };
                        if step == Step::Batch {
                            run!(sequence_by_loop, by_index)
                        } else {
                            run!(sequence, by_index)
                        }
                    }
                }
            }
        }
    }};
}

impl SymbolTable {
    /// The first symbol of exactly this name, in name order: of several with
    /// one name that at the lowest address, as the kernel's
    /// `kallsyms_lookup_name()`.
    #[must_use]
    pub fn first(&self, step: Step, name: &str) -> Option<usize> {
        search!(self, step, name, first)
    }

    /// The places in name order of all symbols of exactly this name; empty if
    /// there is none. What symbol is at a place, [`SymbolTable::placed`] says.
    #[must_use]
    pub fn range(&self, step: Step, name: &str) -> Range<usize> {
        search!(self, step, name, range)
    }

    /// The symbol at a place in name order: by bytes of the name, then by
    /// address. Places are counted from 0; there is one for each symbol.
    #[must_use]
    pub fn placed(&self, place: usize) -> usize {
        sequence(self.order(), place)
    }

    /// All symbols whose names begin with `prefix`, in name order: what a glob
    /// can match are those of the letters before its first `*`, `?` or `[`.
    ///
    /// Two binary searches in the order of names once that is known to be
    /// right, which does not look at the other names. To find that out takes ten
    /// times as long as to look at the first token of each name; so before, that
    /// is done, unless they are many.
    #[must_use]
    pub fn prefixed(&self, prefix: &str) -> impl ExactSizeIterator<Item = usize> + use<'_> {
        let found = match self.order.get() {
            Some(_) => None,
            None => self.few_prefixed(prefix.as_bytes()),
        };
        match found {
            Some(symbols) => Prefixed::Few(symbols.into_iter()),
            None => Prefixed::Placed(self.prefixed_places(prefix.as_bytes()), self.order()),
        }
    }

    /// The same by a pass over the table; `None` if there are more of them than
    /// is worthwhile to sort.
    pub(super) fn few_prefixed(&self, prefix: &[u8]) -> Option<Vec<u32>> {
        let few = self.count / 64;
        let may_begin = self.tokens.may_begin(prefix);
        let prefix = Query::new(prefix);
        let mut found = Vec::new();
        let mut offset = 0;
        for symbol in 0..self.count {
            let codes = self.codes_from(&mut offset);
            if may_begin[usize::from(codes[0])] && self.tokens.begins(codes, &prefix) {
                if found.len() == few {
                    return None;
                }
                found.push((narrow(symbol), codes));
            }
        }
        let mut buffers = [[0; BUFFER]; 2];
        // Those of one name stay in the order of their addresses.
        found.sort_by(|a, b| self.tokens.order(a.1, b.1, &mut buffers));
        Some(found.into_iter().map(|(symbol, _)| symbol).collect())
    }

    /// The places of the same in name order.
    fn prefixed_places(&self, prefix: &[u8]) -> Range<usize> {
        let compare = |place, ends: fn(&[u8], &[u8]) -> Ordering| {
            let mut buffer = [0; BUFFER];
            let codes = self.codes_at(self.offset(self.placed(place)));
            let len = self.tokens.expand(codes, &mut buffer);
            let name = &buffer[1..len.max(1)];
            ends(prefix, name)
        };
        let start = partition(0..self.count, |place| compare(place, Ord::cmp).is_gt());
        let end = partition(start..self.count, |place| {
            compare(place, |prefix, name| {
                prefix.cmp(&name[..prefix.len().min(name.len())])
            })
            .is_ge()
        });
        start..end
    }

    /// Where the name of symbol `index` is, by the index of a batch if there is
    /// one.
    pub(super) fn offset(&self, index: usize) -> usize {
        match self.batches.slot().load().as_deref() {
            Some(offsets) => offsets.0[index] as usize,
            None => self.marked_offset(index),
        }
    }

    /// The symbols in name order, three bytes each: the kernel's, or one
    /// computed by the first call.
    ///
    /// The kernel's is not that of the names where clang's LTO built it, which
    /// sorts them up to `.llvm.` (kernel/kallsyms.c, `cleanup_symbol_name()`).
    pub(super) fn order(&self) -> &[u8] {
        let order = self.order.get_or_init(|| match &self.given_order {
            Some(order) if self.is_sorted(order) => None,
            _ => Some(self.sorted()),
        });
        let given = || self.given_order.as_deref();
        order.as_deref().or_else(given).unwrap_or_default()
    }

    /// The order of names that was computed, if there was need to.
    pub(super) fn own_order(&self) -> Option<&[u8]> {
        self.order.get()?.as_deref()
    }

    /// The symbols in order of their names, three bytes each.
    ///
    /// Sorted by 16 bytes of name at a time, so that names need not be kept
    /// expanded: few share more than 16 bytes with another.
    fn sorted(&self) -> Box<[u8]> {
        let offsets = self.offsets().0;
        let mut keyed: Vec<(u128, u32)> = (0..self.count).map(|index| (0, narrow(index))).collect();
        let mut groups = vec![(0..self.count, 1)];
        let mut buffer = [0; BUFFER];
        while let Some((group, depth)) = groups.pop() {
            let names = &mut keyed[group.clone()];
            for (key, index) in &mut *names {
                let codes = self.codes_at(offsets[*index as usize] as usize);
                let end = self.tokens.expand(codes, &mut buffer).min(depth + 16);
                let mut bytes = [0; 16];
                let part = buffer.get(depth..end).unwrap_or_default();
                bytes[..part.len()].copy_from_slice(part);
                *key = u128::from_be_bytes(bytes);
            }
            names.sort_unstable();
            let mut start = group.start;
            for same in names.chunk_by(|a, b| a.0 == b.0) {
                // Names hold no NUL: one as last byte is that of an end.
                if same.len() > 1 && same[0].0 & 0xff != 0 {
                    groups.push((start..start + same.len(), depth + 16));
                }
                start += same.len();
            }
        }
        keyed
            .iter()
            .flat_map(|(_, index)| index.to_be_bytes().into_iter().skip(1))
            .collect()
    }

    /// Whether the names are in this order, and symbols of one name in that of
    /// their addresses.
    ///
    /// All neighbours are compared: a search that misses has seen too few
    /// names to know that it was not led astray.
    fn is_sorted(&self, order: &[u8]) -> bool {
        let offsets = self.offsets().0;
        let mut buffers = [[0; BUFFER]; 2];
        let mut before: (usize, &[u8]) = (0, &[]);
        let (places, _) = order.as_chunks::<3>();
        places.chunks(TOGETHER).all(|places| {
            // The names are anywhere in memory: go to several at once.
            let mut symbols: [(usize, &[u8]); TOGETHER] = [(0, &[]); TOGETHER];
            for (symbol, &[high, middle, low]) in symbols.iter_mut().zip(places) {
                let index = u32::from_be_bytes([0, high, middle, low]) as usize;
                *symbol = (index, self.codes_at(offsets[index] as usize));
            }
            symbols[..places.len()].iter().all(|&symbol| {
                let last = replace(&mut before, symbol);
                match self.tokens.order(last.1, symbol.1, &mut buffers) {
                    Ordering::Less => true,
                    Ordering::Equal => last.0 < symbol.0,
                    Ordering::Greater => false,
                }
            })
        })
    }
}

/// Symbols in name order.
enum Prefixed<'t> {
    Few(std::vec::IntoIter<u32>),
    /// Places of this order.
    Placed(Range<usize>, &'t [u8]),
}

impl Iterator for Prefixed<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        match self {
            Self::Few(symbols) => symbols.next().map(|symbol| symbol as usize),
            Self::Placed(places, order) => places.next().map(|place| sequence(order, place)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(symbols) => symbols.size_hint(),
            Self::Placed(places, _) => places.size_hint(),
        }
    }
}

impl ExactSizeIterator for Prefixed<'_> {}

/// Checks that `order` has as many places as there are symbols, and no symbol
/// past the last.
pub(super) fn check_order(order: &[u8], count: usize) -> Result<(), TableErrorKind> {
    if order.len() != 3 * count {
        return Err(TableErrorKind::SequenceLen {
            expected: 3 * count,
            found: order.len(),
        });
    }
    let (places, _) = order.as_chunks::<3>();
    let index =
        |&[high, middle, low]: &[u8; 3]| u32::from_be_bytes([0, high, middle, low]) as usize;
    match places
        .iter()
        .map(index)
        .enumerate()
        .find(|&(_, index)| index >= count)
    {
        Some((place, index)) => Err(TableErrorKind::Sequence { place, index }),
        None => Ok(()),
    }
}
