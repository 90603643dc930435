//! From many names to their symbols, the fastest way there is.

use std::{hint::black_box, sync::atomic::Ordering::Relaxed};

use super::{
    MARKED, SymbolTable, hash,
    index::{Found, Index},
    name_at, narrow,
    tokens::Query,
};

/// How [`SymbolTable::resolve_batch`] went about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// A binary search for each name, within a batch if one is open: for few
    /// names, before there is an index of names.
    Search,
    /// One pass over the table, to look up each of its names in a hash table of
    /// those that are sought: for more of them.
    Pass,
    /// The index of names: when it is there, and for so many names that
    /// building it pays.
    Index,
}

/// Up to how many names are searched for rather than passed over. Measured on
/// 155,000 symbols: a pass takes 1.6 ms, a search by markers 7 us.
pub(super) const SEARCHES: usize = 200;

/// The same in an open batch, where a search takes 0.9 us.
const BATCH_SEARCHES: usize = 2_000;

/// From how many names on the index is built: that takes 5 ms more than a
/// pass, but a name then 0.1 us rather than 0.3 us.
const INDEXED: usize = 25_000;

/// How many batches are resolved by passes before the index is built: it takes as
/// long as so many of them.
const PASSES: u32 = 4;

/// Names that are looked up at once, so that their cache misses overlap.
const TOGETHER: usize = 32;

/// The symbols of one name in address order, from [`SymbolTable::resolve`].
#[derive(Clone, Debug)]
pub struct Matches<'t> {
    symbols: Symbols<'t>,
}

#[derive(Clone, Debug)]
enum Symbols<'t> {
    One(std::option::IntoIter<u32>),
    Several(std::slice::Iter<'t, u32>),
}

impl Iterator for Matches<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let symbol = match &mut self.symbols {
            Symbols::One(symbol) => symbol.next(),
            Symbols::Several(symbols) => symbols.next().copied(),
        };
        symbol.map(|symbol| symbol as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.symbols {
            Symbols::One(symbol) => symbol.size_hint(),
            Symbols::Several(symbols) => symbols.size_hint(),
        }
    }
}

impl ExactSizeIterator for Matches<'_> {}

/// The symbols of many names, from [`SymbolTable::resolve_batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    plan: Plan,
    /// Where the symbols of each name end.
    ends: Vec<u32>,
    symbols: Vec<u32>,
}

impl Resolved {
    fn new(plan: Plan, names: usize) -> Self {
        Self {
            plan,
            ends: Vec::with_capacity(names),
            symbols: Vec::with_capacity(names),
        }
    }

    fn push(&mut self, found: Found<'_>) {
        match found {
            Found::None => {}
            Found::One(symbol) => self.symbols.push(symbol),
            Found::Several(symbols) => self.symbols.extend_from_slice(symbols),
        }
        self.ends.push(narrow(self.symbols.len()));
    }

    /// How it was done.
    #[must_use]
    pub const fn plan(&self) -> Plan {
        self.plan
    }

    /// How many names were asked for.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no name was asked for.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The symbols of the name at `query`, in address order; none if no symbol
    /// has it, or if there was no such query.
    #[must_use]
    pub fn get(&self, query: usize) -> &[u32] {
        let end = |query: usize| self.ends.get(query).copied().unwrap_or_default() as usize;
        let start = query.checked_sub(1).map_or(0, end);
        self.symbols.get(start..end(query)).unwrap_or_default()
    }

    /// The symbols of each name, in the order of the names.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> {
        (0..self.len()).map(|query| self.get(query))
    }
}

impl SymbolTable {
    /// Every symbol of exactly this name, in address order.
    ///
    /// The first call, on any thread, builds an index, 16 bytes a symbol; each
    /// call then costs a hash of the name and looking at about two slots and
    /// one name. Call [`SymbolTable::prepare`] to choose when that is. Names
    /// that are found again and again are kept expanded in the end, see
    /// [`SymbolTable::symbol`]: to compare with them takes half the time.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Matches<'_> {
        let index = self.index();
        let query = Query::new(name.as_bytes());
        let hash = query.hash();
        let place = index.probe(index.start(hash), hash);
        let is = |symbol, at| self.is_named(symbol, at, &query);
        Matches {
            symbols: match index.find(place, hash, is) {
                Found::None => Symbols::One(None.into_iter()),
                Found::One(symbol) => Symbols::One(Some(symbol).into_iter()),
                Found::Several(symbols) => Symbols::Several(symbols.iter()),
            },
        }
    }

    /// Builds the index of names, if there is none.
    pub fn prepare(&self) {
        self.index();
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::build(self))
    }

    /// How [`SymbolTable::resolve_batch`] would resolve `names` names now.
    ///
    /// Depends on what is there: the index of names ([`SymbolTable::prepare`]),
    /// an open batch ([`SymbolTable::batch_start`]), whether an earlier search has
    /// seen to the order of names, and on how many batches were resolved by a
    /// pass: after some, the index is built.
    #[must_use]
    pub fn plan(&self, names: usize) -> Plan {
        let searches = if self.order.get().is_none() {
            0
        } else if self.batches.slot().load().is_some() {
            BATCH_SEARCHES
        } else {
            SEARCHES
        };
        if self.index.get().is_some() || names >= INDEXED {
            Plan::Index
        } else if names <= searches {
            Plan::Search
        } else if self.passes.load(Relaxed) < PASSES {
            Plan::Pass
        } else {
            Plan::Index
        }
    }

    /// Every symbol of each of `names`, which may repeat.
    ///
    /// Goes about it in the way that costs least, see [`Plan`]; all of them
    /// find the same.
    #[must_use]
    pub fn resolve_batch(&self, names: &[&str]) -> Resolved {
        let plan = self.plan(names.len());
        if plan == Plan::Pass {
            self.passes.fetch_add(1, Relaxed);
        }
        self.resolve_by(plan, names)
    }

    /// [`SymbolTable::resolve_batch`] in a way of the caller's choosing.
    #[must_use]
    pub fn resolve_by(&self, plan: Plan, names: &[&str]) -> Resolved {
        match plan {
            Plan::Search => self.resolve_by_search(names),
            Plan::Pass => self.resolve_by_pass(names),
            Plan::Index => self.resolve_by_index(names),
        }
    }

    fn resolve_by_search(&self, names: &[&str]) -> Resolved {
        let mut resolved = Resolved::new(Plan::Search, names.len());
        for name in names {
            let places = self.range(super::Step::Sequence, name);
            let symbols: Vec<_> = places.map(|place| narrow(self.placed(place))).collect();
            resolved.push(Found::Several(&symbols));
        }
        resolved
    }

    /// Each step of a lookup for several names at once: none of them waits
    /// for what the others load from memory.
    fn resolve_by_index(&self, names: &[&str]) -> Resolved {
        let index = self.index();
        let mut resolved = Resolved::new(Plan::Index, names.len());
        for names in names.chunks(TOGETHER) {
            let mut hashes = [0; TOGETHER];
            for (hash, name) in hashes.iter_mut().zip(names) {
                *hash = Query::new(name.as_bytes()).hash();
            }
            let starts = hashes.map(|hash| index.start(hash));
            black_box(starts.map(|start| index.slot(start)));
            let mut places = starts;
            for (place, hash) in places.iter_mut().zip(hashes) {
                *place = index.probe(*place, hash);
            }
            // The first byte of each name: with it comes the rest.
            black_box(places.map(|place| self.names.get(index.slot(place).offset()).copied()));
            for ((name, hash), place) in names.iter().zip(hashes).zip(places) {
                let query = Query::new(name.as_bytes());
                resolved.push(index.find(place, hash, |_, at| {
                    self.tokens.compare(&query, self.codes_at(at)).is_eq()
                }));
            }
        }
        resolved
    }

    fn resolve_by_pass(&self, names: &[&str]) -> Resolved {
        let candidates = self.candidates(&Queries::new(names));
        let mut found: Vec<(u32, u32)> = Vec::with_capacity(candidates.len());
        for candidates in candidates.chunks(TOGETHER) {
            // The queries are far apart: load several at once.
            for &(query, ..) in candidates {
                black_box(names[query as usize].as_bytes().first().copied());
            }
            for &(query, symbol, at) in candidates {
                let name = Query::new(names[query as usize].as_bytes());
                let codes = self.codes_at(at as usize);
                if self.tokens.compare(&name, codes).is_eq() {
                    found.push((query, symbol));
                }
            }
        }
        // By query; the symbols of each are in order already.
        let mut ends = vec![0; names.len()];
        for &(query, _) in &found {
            ends[query as usize] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            // Where the query's symbols begin, until they are there.
            (*count, end) = (end, end + *count);
        }
        let mut symbols = vec![0; found.len()];
        for (query, symbol) in found {
            let end = &mut ends[query as usize];
            symbols[*end as usize] = symbol;
            *end += 1;
        }
        Resolved {
            plan: Plan::Pass,
            ends,
            symbols,
        }
    }

    /// One pass over the table, from marker to marker.
    fn candidates(&self, queries: &Queries) -> Vec<Candidate> {
        let mut candidates = Vec::with_capacity(queries.chains.len());
        let mut sums = Vec::new();
        let mut symbols = 0..narrow(self.len());
        for (marker, &start) in self.markers.iter().enumerate() {
            let marked = start as usize;
            let next = self.markers.get(marker + 1);
            let end = next.map_or(self.names.len(), |&next| next as usize);
            let names = &self.names[marked..end];
            self.tokens.sums(names, &mut sums);
            let mut offset = 0;
            for symbol in symbols.by_ref().take(MARKED) {
                let at = offset;
                let (start, end) = name_at(names, offset).unwrap_or_default();
                offset = end;
                let others = sums[end].wrapping_sub(sums[start + 1]);
                if queries.may_have(self.tokens.sum(names[start], others)) {
                    let hash = self.tokens.hash(&names[start..], end - start);
                    let at = narrow(marked + at);
                    let queries = queries.candidates(hash);
                    candidates.extend(queries.map(|query| (query, symbol, at)));
                }
            }
        }
        candidates
    }
}

/// A query, a symbol that has its hash, and where the name of that is.
type Candidate = (u32, u32, u32);

#[expect(
    clippy::cast_possible_truncation,
    reason = "as few bits as number what is in memory"
)]
const fn high_bits(hash: u64, shift: u32) -> usize {
    (hash >> shift) as usize
}

/// A hash table of the names that are sought.
struct Queries {
    /// A bit for each sum that is there, 16 to 32 bits a name: nearly all
    /// symbols are told here that they are not sought.
    filter: Box<[u64]>,
    filter_shift: u32,
    /// The query that the chain of a bucket begins with, and for each query
    /// its hash and the next in the chain; [`Queries::NONE`] at its end.
    heads: Box<[u32]>,
    heads_shift: u32,
    chains: Box<[(u64, u32)]>,
}

impl Queries {
    const NONE: u32 = u32::MAX;

    fn new(names: &[&str]) -> Self {
        let buckets = names.len().next_power_of_two().max(2);
        let bits = (16 * buckets).max(64);
        let mut queries = Self {
            filter: vec![0; bits / 64].into(),
            filter_shift: 64 - bits.trailing_zeros(),
            heads: vec![Self::NONE; buckets].into(),
            heads_shift: 64 - buckets.trailing_zeros(),
            chains: vec![(0, Self::NONE); names.len()].into(),
        };
        for (query, name) in names.iter().enumerate() {
            let name = Query::new(name.as_bytes());
            let hash = name.hash();
            let bit = queries.bit(name.sum());
            queries.filter[bit / 64] |= 1 << (bit % 64);
            let head = &mut queries.heads[high_bits(hash, queries.heads_shift)];
            queries.chains[query] = (hash, *head);
            *head = narrow(query);
        }
        queries
    }

    fn bit(&self, sum: u32) -> usize {
        high_bits(hash::mix(sum.into()), self.filter_shift)
    }

    /// Whether a query may have this sum.
    #[inline]
    fn may_have(&self, sum: u32) -> bool {
        let bit = self.bit(sum);
        self.filter[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// The queries that have this (mixed) hash.
    #[inline]
    fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> {
        let mut query = self.heads[high_bits(hash, self.heads_shift)];
        std::iter::from_fn(move || {
            while query != Self::NONE {
                let this = query;
                let (found, next) = self.chains[this as usize];
                query = next;
                if found == hash {
                    return Some(this);
                }
            }
            None
        })
    }
}
