//! Which probe an address belongs to: the one record of what is attached.
//!
//! A [`Registry`] leads from a function's address to its slot, by a hash table
//! like that of kprobes, but with chains that lie flat in one array, and with
//! 4,096 buckets in 32 KiB where kprobes have 64 in all kernels so far
//! (kernel/kprobes.c, `KPROBE_HASH_BITS`; 4,096 were proposed in 2014). The
//! layout is [`ksyms_ebpf::registry`]'s, so eBPF programs search the same
//! bytes.
//!
//! ```
//! use ksyms::registry::{Buckets, Registry};
//!
//! let registry = Registry::build(&[0xffff_ffff_8100_0a30], Buckets::default())?;
//! assert_eq!(registry.lookup(0xffff_ffff_8100_0a30), Some(0));
//! // What the registers of a kprobe show behind ENDBR and int3.
//! assert_eq!(registry.lookup_hit(0xffff_ffff_8100_0a35), Some(0));
//! assert_eq!(registry.lookup_hit(0xffff_ffff_8100_0a36), None);
//! # Ok::<(), ksyms::registry::RegistryError>(())
//! ```

mod buckets;
mod stats;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, ops::Range};

pub use buckets::{Buckets, BucketsError};
use ksyms_ebpf::registry::{LINE, bucket, chain_len, chain_start, head, is_reported, line};
pub use stats::Stats;

/// Addresses that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// An address is given twice.
    #[error(
        "address {address:#018x} is given twice, for slots {first} and {second}: a function has one probe, however many names it has, so give each address once"
    )]
    Duplicate {
        /// The address.
        address: u64,
        /// The lower of its slots.
        first: u32,
        /// The other one.
        second: u32,
    },
    /// There are more addresses than slots have numbers.
    #[error("{0} functions are more than can be numbered, 4294967295: choose fewer")]
    TooMany(usize),
}

/// A hash table from function addresses to slots. Immutable: what is attached
/// changes as a whole.
///
/// Occupies 8 bytes a bucket and 12 a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    buckets: Buckets,
    heads: Box<[u64]>,
    addresses: Box<[u64]>,
    slots: Box<[u32]>,
}

/// A [`Registry`]'s three arrays as bytes, each integer in native endianness:
/// what array maps are filled with. The layout is told in
/// [`ksyms_ebpf::registry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryBytes {
    /// 8 bytes a bucket.
    pub heads: Vec<u8>,
    /// 8 bytes a function.
    pub addresses: Vec<u8>,
    /// 4 bytes a function.
    pub slots: Vec<u8>,
}

impl Registry {
    /// Registers `addresses`; the slot of each is its index there.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Duplicate`] names the first address of the lowest bucket
    /// that is there twice; [`RegistryError::TooMany`].
    pub fn build(addresses: &[u64], buckets: Buckets) -> Result<Self, RegistryError> {
        check_count(addresses.len())?;
        let mut entries: Vec<_> = (0_u32..)
            .zip(addresses)
            .map(|(slot, &address)| (bucket(address, buckets.bits()), Reverse(address), slot))
            .collect();
        entries.sort_unstable();

        let mut heads = vec![0; buckets.count() as usize];
        let mut start = 0;
        for chain in entries.chunk_by(|one, next| one.0 == next.0) {
            for pair in chain.windows(2) {
                if pair[0].1 == pair[1].1 {
                    return Err(RegistryError::Duplicate {
                        address: pair[0].1.0,
                        first: pair[0].2,
                        second: pair[1].2,
                    });
                }
            }
            let len = chain.iter().map(|_| 1).sum();
            heads[chain[0].0 as usize] = head(start, len);
            start += len;
        }
        Ok(Self {
            buckets,
            heads: heads.into(),
            addresses: entries.iter().map(|entry| entry.1.0).collect(),
            slots: entries.iter().map(|entry| entry.2).collect(),
        })
    }

    /// The slot of the function at `address`.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<u32> {
        self.lookup_counted(address).0
    }

    /// [`Registry::lookup`], and how many entries were compared.
    #[must_use]
    pub fn lookup_counted(&self, address: u64) -> (Option<u32>, u32) {
        let (place, comparisons) = self.search(address, address);
        let slot = place.filter(|&place| self.addresses[place] == address);
        (slot.map(|place| self.slots[place]), comparisons)
    }

    /// The slot of the function whose probe was hit, where the kernel says that
    /// this was at `ip`: the function's address, or what
    /// [`is_reported`] lists.
    ///
    /// The distances are not tried one after the other. Functions do not
    /// overlap, so a hit at `ip` is of the nearest one that starts at or below
    /// it: that one it is, at one of these distances, or none. An exact match
    /// is the nearest there can be; and of two functions 4 bytes apart the
    /// upper one gets `+ 4`, where the lower one, which ends there, has no
    /// ENDBR in front of anything.
    ///
    /// That holds for what is registered: a neighbour that is not cannot be
    /// told from its predecessor, but has no probe to be hit either.
    #[must_use]
    pub fn lookup_hit(&self, ip: u64) -> Option<u32> {
        let in_line = |&place: &usize| self.addresses[place] >= line(ip);
        let place = match self.search(ip, ip).0.filter(in_line) {
            Some(place) => place,
            // Nothing starts in this line, so it may be what starts before it.
            None => self.search(ip.checked_sub(LINE)?, ip).0?,
        };
        is_reported(ip - self.addresses[place]).then(|| self.slots[place])
    }

    /// The place of the highest address that is in `neighbour`'s bucket and not
    /// above `address`, and how many entries were compared.
    fn search(&self, neighbour: u64, address: u64) -> (Option<usize>, u32) {
        let chain = chain(self.heads[bucket(neighbour, self.buckets.bits()) as usize]);
        let mut comparisons = 0;
        for place in chain {
            comparisons += 1;
            if self.addresses[place] <= address {
                return (Some(place), comparisons);
            }
        }
        (None, comparisons)
    }

    /// How many buckets there are.
    #[must_use]
    pub const fn buckets(&self) -> Buckets {
        self.buckets
    }

    /// A head a bucket: where its chain starts and how long it is.
    #[must_use]
    pub const fn heads(&self) -> &[u64] {
        &self.heads
    }

    /// All addresses, chain after chain, each from the highest down.
    #[must_use]
    pub const fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// The slot of the address in the same place of [`Registry::addresses`].
    #[must_use]
    pub const fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The arrays as bytes, for maps.
    #[must_use]
    pub fn to_bytes(&self) -> RegistryBytes {
        RegistryBytes {
            heads: self.heads.iter().flat_map(|v| v.to_ne_bytes()).collect(),
            addresses: self
                .addresses
                .iter()
                .flat_map(|v| v.to_ne_bytes())
                .collect(),
            slots: self.slots.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        }
    }

    /// How well the addresses are spread, and what a lookup costs for it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.heads)
    }
}

/// The places of the entries of a chain.
fn chain(head: u64) -> Range<usize> {
    let start = chain_start(head) as usize;
    start..start + chain_len(head) as usize
}

/// Slots are `u32`, and their count is one too.
fn check_count(addresses: usize) -> Result<(), RegistryError> {
    match u32::try_from(addresses) {
        Ok(_) => Ok(()),
        Err(_) => Err(RegistryError::TooMany(addresses)),
    }
}
