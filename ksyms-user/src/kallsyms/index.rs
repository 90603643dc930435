//! From a name to its places in a table.

use std::hash::{BuildHasher, RandomState};

/// No entry: the end of a chain.
const NONE: u32 = u32::MAX;

/// A chained hash index over names that live elsewhere.
///
/// `heads` has a power of two of buckets, at least one a name; `next` links
/// the entries of a bucket in table order. The names are compared by the
/// caller, so that the index need not borrow them.
pub(super) struct NameIndex {
    hasher: RandomState,
    heads: Box<[u32]>,
    next: Box<[u32]>,
}

impl NameIndex {
    pub(super) fn build<'n>(
        names: impl DoubleEndedIterator<Item = &'n str> + ExactSizeIterator,
    ) -> Self {
        let len = names.len();
        let mut index = Self {
            hasher: RandomState::new(),
            heads: vec![NONE; len.next_power_of_two()].into(),
            next: vec![NONE; len].into(),
        };
        // Backwards, because each entry goes to the head of its chain.
        for (entry, name) in names.enumerate().rev() {
            let bucket = index.bucket(name);
            index.next[entry] = index.heads[bucket];
            index.heads[bucket] = u32::try_from(entry).unwrap_or(NONE);
        }
        index
    }

    /// The entries whose name may be `name`, in table order.
    pub(super) fn candidates(&self, name: &str) -> impl Iterator<Item = usize> {
        let entry = |index: u32| (index != NONE).then_some(index as usize);
        std::iter::successors(entry(self.heads[self.bucket(name)]), move |&at| {
            entry(self.next[at])
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits are the bucket; where usize is 32 bits wide there are no more than 2^32 of them"
    )]
    fn bucket(&self, name: &str) -> usize {
        self.hasher.hash_one(name) as usize & (self.heads.len() - 1)
    }
}
