//! How many buckets there are.

use std::{fmt, str::FromStr};

/// The number of buckets of a registry: a power of two, from 1 to 65,536.
///
/// As text, as `--buckets` has it, from 64; fewer are for measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buckets {
    bits: u32,
}

/// A number of buckets that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` buckets cannot be had: give a power of two from {least} to {}",
    Buckets::MAX
)]
pub struct BucketsError {
    /// What was asked for.
    pub given: String,
    /// The least that can be.
    pub least: Buckets,
}

impl Buckets {
    /// As many as kprobes have (kernel/kprobes.c, `KPROBE_TABLE_SIZE`), in 512
    /// bytes.
    pub const KPROBES: Self = Self { bits: 6 };
    /// As many as there can be: 65,536, in 512 KiB.
    pub const MAX: Self = Self { bits: 16 };

    const MIN: Self = Self { bits: 0 };

    /// `count` buckets.
    ///
    /// # Errors
    ///
    /// [`BucketsError`] if `count` is not a power of two from 1 to 65,536.
    pub fn new(count: u32) -> Result<Self, BucketsError> {
        Self::within(Self::MIN, count).ok_or_else(|| BucketsError {
            given: count.to_string(),
            least: Self::MIN,
        })
    }

    fn within(least: Self, count: u32) -> Option<Self> {
        let bits = count.is_power_of_two().then(|| count.ilog2())?;
        (least.bits..=Self::MAX.bits)
            .contains(&bits)
            .then_some(Self { bits })
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> u32 {
        1 << self.bits
    }

    /// The binary logarithm of how many: bits of the hash that choose one.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }
}

impl Default for Buckets {
    /// 4,096, in 32 KiB.
    fn default() -> Self {
        Self { bits: 12 }
    }
}

impl fmt::Display for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count().fmt(f)
    }
}

impl FromStr for Buckets {
    type Err = BucketsError;

    fn from_str(text: &str) -> Result<Self, BucketsError> {
        let count = text.parse().ok();
        count
            .and_then(|count| Self::within(Self::KPROBES, count))
            .ok_or_else(|| BucketsError {
                given: text.to_owned(),
                least: Self::KPROBES,
            })
    }
}
