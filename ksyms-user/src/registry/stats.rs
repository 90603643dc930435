//! How well a registry spreads its addresses.

use std::fmt;

use ksyms_ebpf::registry::chain_len;

/// What a [`Registry`](super::Registry) looks like, and what a lookup in it
/// costs for that. As text, one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Addresses registered.
    pub addresses: usize,
    /// Buckets they are spread over.
    pub buckets: usize,
    /// Addresses a bucket, in the mean.
    pub load: f64,
    /// Addresses in the fullest bucket: the most that a lookup compares.
    pub longest_chain: u32,
    /// Addresses that are compared to find one that is there, in the mean over
    /// all of them; `None` where there are none.
    ///
    /// The n-th of its chain takes n. Kprobes, whose chains are not sorted,
    /// have the same mean.
    pub hit_comparisons: Option<f64>,
    /// Addresses that are compared to see that one is not there, in the mean
    /// over all buckets and, in each, all places in its chain where the address
    /// could be.
    ///
    /// A chain of n has n + 1 such places: before its first address, which
    /// takes no more than that one comparison, and so on; before the last and
    /// behind it take n. So a chain takes n / 2 + n / (n + 1) in the mean.
    /// Kprobes compare the whole chain: [`Stats::load`].
    pub miss_comparisons: f64,
    /// Bytes that heads, addresses and slots occupy.
    pub bytes: usize,
}

impl Stats {
    #[expect(
        clippy::cast_precision_loss,
        reason = "an f64 holds counts up to 2^53 exactly"
    )]
    pub(super) fn of(heads: &[u64]) -> Self {
        let chains = || heads.iter().map(|&head| chain_len(head));
        let addresses: usize = chains().map(|len| len as usize).sum();
        let buckets = heads.len() as f64;
        let hits: f64 = chains()
            .map(f64::from)
            .map(|len| len * (len + 1.0) / 2.0)
            .sum();
        let misses: f64 = chains()
            .map(f64::from)
            .map(|len| len / 2.0 + len / (len + 1.0))
            .sum();
        Self {
            addresses,
            buckets: heads.len(),
            load: addresses as f64 / buckets,
            longest_chain: chains().max().unwrap_or(0),
            hit_comparisons: (addresses > 0).then(|| hits / addresses as f64),
            miss_comparisons: misses / buckets,
            bytes: size_of_val(heads) + addresses * (size_of::<u64>() + size_of::<u32>()),
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} functions in {} buckets: load {:.2}, longest chain {}, mean comparisons ",
            self.addresses, self.buckets, self.load, self.longest_chain
        )?;
        if let Some(hit) = self.hit_comparisons {
            write!(f, "{hit:.2} of a hit, ")?;
        }
        let kib = self.bytes.div_ceil(1024);
        write!(f, "{:.2} of a miss; {kib} KiB", self.miss_comparisons)
    }
}
