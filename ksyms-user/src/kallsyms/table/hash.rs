//! A hash that tokens can be put together from.
//!
//! The hash of a name c0 c1 .. cn is c0 + c1 B + .. + cn B^n modulo 2^64. A
//! token of k bytes before a text multiplies the text's hash by B^k and adds
//! the token's own; so a compressed table is hashed without being expanded, in
//! about half the steps that its bytes would take. And because B is small and
//! zeros after the end add nothing, a plain name is hashed eight bytes at a
//! time.

/// The base: odd, so that no byte is shifted out, and larger than any ASCII
/// character, so that different names of up to eight of them have different
/// hashes. Not more than 202, or four bytes would not fit in 32 bits.
const BASE: u64 = 199;

/// BASE^8.
const WORD: u64 = BASE.pow(8);

/// The hash of eight bytes, the first of them lowest.
///
/// Halves that lie side by side in a word are put together for all pairs at
/// once: bytes to values below 2^16, those to values below 2^32, and those to
/// the hash.
const fn of_word(word: u64) -> u64 {
    const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
    const PAIRS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = (word & BYTES) + BASE * (word >> 8 & BYTES);
    let fours = (pairs & PAIRS) + BASE.pow(2) * (pairs >> 16 & PAIRS);
    (fours & 0xffff_ffff).wrapping_add(BASE.pow(4).wrapping_mul(fours >> 32))
}

/// The hash of a text that is given as words, zeros after its end.
#[inline]
pub(super) fn of(words: impl DoubleEndedIterator<Item = u64>) -> u64 {
    words.rev().fold(0, |hash: u64, word| {
        hash.wrapping_mul(WORD).wrapping_add(of_word(word))
    })
}

/// What a token does to the hash of the text after it.
#[derive(Clone, Copy)]
pub(super) struct Step {
    power: u64,
    sum: u64,
}

impl Step {
    /// What an empty token does: nothing.
    pub(super) const NONE: Self = Self { power: 1, sum: 0 };

    pub(super) fn before(token: &[u8]) -> Self {
        token
            .iter()
            .rev()
            .fold(Self::NONE, |Self { power, sum }, &byte| Self {
                power: power.wrapping_mul(BASE),
                sum: sum.wrapping_mul(BASE).wrapping_add(byte.into()),
            })
    }

    #[inline]
    pub(super) const fn apply(self, hash: u64) -> u64 {
        hash.wrapping_mul(self.power).wrapping_add(self.sum)
    }
}

/// What each byte adds to the sum of a text.
///
/// The sum does not tell one order of the bytes from another, but it is had of
/// a compressed name by adding up its tokens', in any order: several times
/// faster than a hash, and enough to tell that a name is none of a few.
static LETTERS: [u32; 256] = {
    let mut letters = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let letter = (mix(mix(byte as u64 + 1)) >> 32) as u32;
        letters[byte] = letter;
        byte += 1;
    }
    letters
};

/// The sum of a text, see [`LETTERS`].
#[inline]
pub(super) fn sum(text: &[u8]) -> u32 {
    text.iter().fold(0, |sum: u32, &byte| {
        sum.wrapping_add(LETTERS[usize::from(byte)])
    })
}

/// Spreads a hash over all 64 bits: where in a hash table it goes is said by
/// the high ones, and short names are in the low ones only.
pub(super) const fn mix(hash: u64) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}
