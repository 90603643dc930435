//! What is looked up, and what must be found.

use std::{collections::HashMap, fmt, ops::ControlFlow};

use crate::{
    kallsyms::{Symbol, SymbolTable},
    selftest::absent,
};

/// Functions that every kernel has and calls all the time; some have had two
/// names.
const HOT: [&str; 16] = [
    "vfs_read",
    "tcp_v4_rcv",
    "schedule",
    "kmem_cache_alloc",
    "kmem_cache_alloc_noprof",
    "do_sys_openat2",
    "ip_rcv",
    "kfree",
    "mutex_lock",
    "vfs_write",
    "tcp_sendmsg",
    "__alloc_skb",
    "handle_mm_fault",
    "wake_up_process",
    "ksys_read",
    "kmalloc_trace",
];

/// How many of them there are in a set.
const HOT_NAMES: usize = 8;

/// Numbers that look random and are the same in every run (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new() -> Self {
        Self(2026)
    }

    /// A number below `end`, which must not be 0.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the high half of the product is less than `end`"
    )]
    pub(super) const fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits as u128 * end as u128) >> 64) as usize
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// Texts one after the other, so that reading them in turn costs no cache miss
/// that would be taken for one of a lookup.
#[derive(Default)]
pub(super) struct Texts {
    text: String,
    ends: Vec<usize>,
}

impl Texts {
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = &self.text[start..end];
            start = end;
            text
        })
    }
}

impl<'a> FromIterator<&'a str> for Texts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(iter: I) -> Self {
        let mut texts = Self::default();
        iter.into_iter().for_each(|text| texts.push(text));
        texts
    }
}

/// The symbols of a table, expanded, by number.
pub(super) struct Listing {
    pub(super) names: Texts,
    pub(super) addresses: Vec<u64>,
    kinds: Vec<u8>,
}

impl Listing {
    pub(super) fn of(table: &SymbolTable) -> Self {
        let mut listing = Self {
            names: Texts::default(),
            addresses: Vec::with_capacity(table.len()),
            kinds: Vec::with_capacity(table.len()),
        };
        let _: ControlFlow<()> = table.walk(|_, symbol| {
            listing.names.push(symbol.name);
            listing.addresses.push(symbol.address);
            listing.kinds.push(symbol.kind);
            ControlFlow::Continue(())
        });
        listing
    }

    /// The first symbol of each name.
    pub(super) fn first(&self) -> HashMap<&str, usize> {
        let mut first = HashMap::with_capacity(self.addresses.len());
        for (symbol, name) in self.names.iter().enumerate() {
            first.entry(name).or_insert(symbol);
        }
        first
    }

    fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        let rest = self.addresses.iter().zip(&self.kinds);
        self.names
            .iter()
            .zip(rest)
            .map(|(name, (&address, &kind))| Symbol {
                address,
                kind,
                name,
                module: None,
            })
    }
}

/// Names to look up: some often used ones, and all in random order; and for
/// each one that is not there.
pub(super) struct Names {
    hot: Texts,
    hot_misses: Texts,
    all: Texts,
    all_misses: Texts,
}

impl Names {
    /// Draws from the keys of `known`; `all` are those, each as often as
    /// symbols have it.
    pub(super) fn draw<V>(mut all: Vec<&str>, known: &HashMap<&str, V>) -> Self {
        let mut random = Random::new();
        random.shuffle(&mut all);
        let mut hot = Vec::with_capacity(HOT_NAMES);
        let often = HOT.into_iter().filter(|name| known.contains_key(name));
        for name in often.chain(all.iter().copied()) {
            if hot.len() < HOT_NAMES && !hot.contains(&name) {
                hot.push(name);
            }
        }
        let misses = |names: &[&str]| {
            let mut misses = Texts::default();
            for name in names {
                misses.push(&absent(name, known));
            }
            misses
        };
        Self {
            hot_misses: misses(&hot),
            hot: hot.into_iter().collect(),
            all_misses: misses(&all),
            all: all.into_iter().collect(),
        }
    }

    /// The often used ones.
    pub(super) fn hot(&self) -> impl Iterator<Item = &str> {
        self.hot.iter()
    }

    /// The four sets, each name with its `answer`.
    pub(super) fn sets(&self, answer: impl Fn(&str) -> u64) -> [Set<'_>; 4] {
        let set = |name, kind, texts: &'_ Texts| Set {
            name,
            kind,
            answers: texts.iter().map(&answer).collect(),
            names: Vec::new(),
        };
        let mut sets = [
            set("hot", "hit", &self.hot),
            set("hot", "miss", &self.hot_misses),
            set("all", "hit", &self.all),
            set("all", "miss", &self.all_misses),
        ];
        let texts = [&self.hot, &self.hot_misses, &self.all, &self.all_misses];
        for (set, texts) in sets.iter_mut().zip(texts) {
            set.names = texts.iter().collect();
        }
        sets
    }
}

/// Names, and what a lookup of each must answer; 0 for one that is not there.
pub(super) struct Set<'a> {
    /// `hot` or `all`.
    pub(super) name: &'static str,
    /// `hit` or `miss`.
    pub(super) kind: &'static str,
    pub(super) names: Vec<&'a str>,
    pub(super) answers: Vec<u64>,
}

impl Set<'_> {
    /// The name of the row of `lookup`.
    pub(super) fn row(&self, lookup: &str) -> String {
        format!("{lookup}/{}/{}", self.name, self.kind)
    }
}

/// An address in a symbol; printed as `name+0x1/0x2`.
pub(super) struct Place<'a> {
    pub(super) address: u64,
    /// The first symbol there.
    pub(super) name: &'a str,
    offset: u64,
    size: u64,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}/{:#x}", self.name, self.offset, self.size)
    }
}

/// An address in the first page of each function, in random order.
pub(super) fn places(listing: &Listing) -> Vec<Place<'_>> {
    const PAGE: u64 = 4096;
    let mut random = Random::new();
    let symbols: Vec<_> = listing.symbols().collect();
    let mut places = Vec::new();
    let groups = symbols.chunk_by(|a, b| a.address == b.address);
    for (group, next) in groups.clone().zip(groups.skip(1)) {
        if !group.iter().all(Symbol::is_text) {
            continue;
        }
        let size = next[0].address - group[0].address;
        let offset = random.below(size.min(PAGE) as usize) as u64;
        places.push(Place {
            address: group[0].address + offset,
            name: group[0].name,
            offset,
            size,
        });
    }
    random.shuffle(&mut places);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shuffled_alike_each_time() {
        let all: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
        let known: HashMap<&str, u64> = all.iter().map(|name| (&**name, 1)).collect();
        let draw = || Names::draw(all.iter().map(|name| &**name).collect(), &known);
        let (one, other) = (draw(), draw());
        let answer = |name: &str| known.get(name).copied().unwrap_or_default();
        let [hot, hot_miss, hit, miss] = one.sets(answer);
        assert_eq!(hit.names, other.sets(answer)[2].names);
        assert_ne!(hit.names, all);
        let mut sorted = hit.names.clone();
        sorted.sort_unstable();
        let mut expected: Vec<&str> = all.iter().map(|name| &**name).collect();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!((hot.names.len(), hot_miss.names.len()), (8, 8));
        assert!(
            hit.answers
                .iter()
                .chain(&hot.answers)
                .all(|&answer| answer == 1)
        );
        assert!(miss.answers.iter().all(|&answer| answer == 0));
    }
}
