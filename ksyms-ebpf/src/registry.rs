//! The layout of the probe registry: address to slot, by hash, read alike by
//! user space, which builds it, and by eBPF programs.
//!
//! Three arrays of native-endian integers, fit for array maps:
//!
//! ```text
//! heads      u64  a bucket    low half: where its chain starts; high half: its entries
//! addresses  u64  an entry    the chains, bucket after bucket, each from the
//!                             highest address down
//! slots      u32  an entry    the slot of the address in the same place
//! ```
//!
//! An empty bucket's head is 0. Addresses lie apart from slots, so that eight
//! share a cache line while a chain is compared; and a program can count by an
//! entry's place alone, without reading its slot.
//!
//! # Searching
//!
//! The first address in the chain of [`bucket`] that is not above the one
//! asked for is the only one that can match: one comparison an entry, for a
//! miss too.
//!
//! The bucket is that of the [`LINE`] of 16 bytes an address is in, where
//! compilers let functions start. So what a kernel makes of an address (see
//! [`is_reported`]) is still in its bucket, and one search finds it. Only
//! functions that start elsewhere, hand-written or cold (7 % of those in a
//! 6.18), may be reported from the next line: when nothing starts in a line,
//! the one before is searched too.
//!
//! # A verifier's view
//!
//! A search is a bounded loop (5.3) with one way out besides its end. Each turn
//! leaves the verifier a branch to come back to, and it gives up at 8,192 of
//! them in a row (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`, kernel/bpf/verifier.c): loops
//! around the search count too. A program therefore has a longest chain that it
//! can search, and what fills its maps has to compare that with the registry's.

/// Bytes whose addresses share a bucket: how x86-64 kernels align functions
/// (`CONFIG_FUNCTION_ALIGNMENT`, since 6.2; before, what the compilers do).
pub const LINE: u64 = 16;

/// What the kernel multiplies by to hash 64 bits: 2^64 less its golden section
/// (`GOLDEN_RATIO_64`, include/linux/hash.h, since 4.7).
const GOLDEN_RATIO_64: u64 = 0x61c8_8646_80b5_83eb;

/// The first address of the line that `address` is in.
#[must_use]
pub const fn line(address: u64) -> u64 {
    address & !(LINE - 1)
}

/// The bucket, of 2^`bits`, that `address` is in.
///
/// That is the kernel's `hash_64(line, bits)` (include/linux/hash.h); so for
/// functions at the start of a line it is `hash_ptr(address, bits)`, by which
/// kprobes are found (kernel/kprobes.c, `get_kprobe()`).
///
/// It spreads functions as chance would: of 20,000 in 4,096 buckets one is
/// found with 3.45 comparisons, where chance gives 3.44 and `hash_ptr` 3.43.
/// The multiplier of kernels before 4.7, `0x9e37_ffff_fffc_0001`, leaves it at
/// 18, and the address's low bits alone at 35 (6.18's functions, at random).
///
/// # Panics
///
/// With overflow checks, if `bits` is above 63. More than 32 do not fit.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "only `bits` bits are left, at most 32"
)]
pub const fn bucket(address: u64, bits: u32) -> u32 {
    let hash = line(address).wrapping_mul(GOLDEN_RATIO_64);
    // In two steps: 64 is no shift, and with one bucket there are 0 bits.
    (hash >> 1 >> (63 - bits)) as u32
}

/// The head of a chain of `len` entries from `start` on.
#[must_use]
pub const fn head(start: u32, len: u32) -> u64 {
    start as u64 | (len as u64) << 32
}

/// Where the chain of `head` starts.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub const fn chain_start(head: u64) -> u32 {
    head as u32
}

/// How many entries the chain of `head` has.
#[must_use]
pub const fn chain_len(head: u64) -> u32 {
    (head >> 32) as u32
}

/// Whether an x86-64 kernel reports a hit of a function's probe at `distance`
/// bytes behind the function's address.
///
/// | bytes | behind the address is | who reports it |
/// |---|---|---|
/// | 0 | | `bpf_get_func_ip`, the address of a kprobe without IBT |
/// | 1 | int3 | the registers of a kprobe; where ftrace or a jump carries it, they imitate that (arch/x86/kernel/kprobes/{core,ftrace,opt}.c) |
/// | 4 | ENDBR | ftrace's records, the address of a kprobe (`arch_adjust_kprobe_addr()`) with `CONFIG_X86_KERNEL_IBT` (5.18) |
/// | 5 | the call of `__fentry__`; or ENDBR and int3 | the registers of kprobe.multi and fprobe; of a kprobe |
/// | 9 | ENDBR and the call | the registers of kprobe.multi and fprobe |
#[must_use]
pub const fn is_reported(distance: u64) -> bool {
    const DISTANCES: u64 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 9;
    distance < 64 && DISTANCES >> distance & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `hash_64()` of include/linux/hash.h, compiled from C.
    #[test]
    fn buckets_of_aligned_addresses_are_the_kernels() {
        for (address, six, twelve, sixteen) in [
            (0xffff_ffff_8100_0000, 1, 98, 1573),
            (0xffff_ffff_8100_0a30, 12, 783, 12_541),
            (0xffff_ffff_81e4_fbd0, 42, 2744, 43_908),
            (0xffff_ffff_c0a0_1230, 46, 2990, 47_853),
            (0x10, 7, 456, 7304),
        ] {
            assert_eq!(bucket(address, 6), six);
            assert_eq!(bucket(address, 12), twelve);
            assert_eq!(bucket(address, 16), sixteen);
            assert_eq!(bucket(address, 0), 0);
        }
    }

    #[test]
    fn a_line_is_in_one_bucket() {
        for distance in 0..LINE {
            let address = 0xffff_ffff_8123_4560;
            assert_eq!(line(address + distance), address);
            assert_eq!(bucket(address + distance, 12), bucket(address, 12));
        }
    }

    #[test]
    fn heads_hold_start_and_length() {
        for (start, len) in [(0, 0), (1, 2), (u32::MAX, 1), (0, u32::MAX)] {
            let head = head(start, len);
            assert_eq!((chain_start(head), chain_len(head)), (start, len));
        }
        assert_eq!(head(0, 0), 0);
    }

    #[test]
    fn five_distances_are_reported() {
        assert!((0..200).filter(|&d| is_reported(d)).eq([0, 1, 4, 5, 9]));
        assert!(!is_reported(u64::MAX));
    }
}
