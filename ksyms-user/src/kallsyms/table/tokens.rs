//! The 256 tokens that names are made of.

use std::{cmp::Ordering, iter, mem::replace};

use super::{MAX_NAME, TableErrorKind, hash, narrow};

/// Added to what is in place of a code where a name has none.
const NONE: usize = 256;

/// How many codes most names have at most.
const USUAL: usize = 16;

/// How many bytes of a token are at hand without a look at the table.
const HEAD: usize = 8;

/// A token's place in the table, and what comparing and hashing need of it.
#[derive(Clone, Copy, Default)]
struct Token {
    /// The first eight bytes, little endian, zeros after the end.
    head: u64,
    /// Ones where `head` is of the token.
    mask: u64,
    start: u32,
    len: u32,
}

impl Token {
    fn new(start: usize, text: &[u8]) -> Self {
        let head = &text[..text.len().min(HEAD)];
        Self {
            head: word(head),
            mask: mask(text.len()),
            start: narrow(start),
            len: narrow(text.len()),
        }
    }
}

/// The token table, checked: every code has a text.
pub(super) struct Tokens {
    /// The texts, each followed by a NUL.
    text: Box<[u8]>,
    all: Box<[Token; 256]>,
    /// The same for a name's first token, less its first byte, the type letter.
    firsts: Box<[Token; 256]>,
    /// What each token does to a hash, see [`hash`], and what none does.
    steps: Box<[hash::Step; 2 * NONE]>,
    /// The same for a name's first token.
    first_steps: Box<[hash::Step; 256]>,
    /// The sum of each token, see [`hash::sum`].
    sums: Box<[u32; 256]>,
    /// The same for a name's first token.
    first_sums: Box<[u32; 256]>,
    longest: usize,
    all_ascii: bool,
    any_empty: bool,
}

impl Tokens {
    /// Takes `kallsyms_token_table` and `kallsyms_token_index`.
    pub(super) fn new(mut text: Vec<u8>, index: &[u16]) -> Result<Self, TableErrorKind> {
        if index.len() != 256 {
            return Err(TableErrorKind::TokenIndexLen(index.len()));
        }
        let mut tokens = Box::new([Token::default(); 256]);
        let mut firsts = tokens.clone();
        let mut steps = Box::new([hash::Step::NONE; 2 * NONE]);
        let mut first_steps = Box::new([hash::Step::NONE; 256]);
        let mut sums = Box::new([0; 256]);
        let mut first_sums = Box::new([0; 256]);
        let (mut longest, mut end, mut any_empty, mut all_ascii) = (0, 0, false, true);
        for (code, &start) in index.iter().enumerate() {
            let offset = usize::from(start);
            let rest = text.get(offset..).filter(|rest| !rest.is_empty()).ok_or(
                TableErrorKind::TokenOutside {
                    token: code,
                    offset,
                    len: text.len(),
                },
            )?;
            // No token is longer than a name and its type letter.
            let len = rest
                .iter()
                .take(MAX_NAME + 2)
                .position(|&byte| byte == 0)
                .ok_or(TableErrorKind::TokenUnterminated {
                    token: code,
                    offset,
                })?;
            let token = &rest[..len];
            let rest = token.get(1..).unwrap_or_default();
            tokens[code] = Token::new(offset, token);
            firsts[code] = Token::new(offset + 1, rest);
            steps[code] = hash::Step::before(token);
            first_steps[code] = hash::Step::before(rest);
            sums[code] = hash::sum(token);
            first_sums[code] = hash::sum(rest);
            longest = longest.max(len);
            end = end.max(offset + len + 1);
            any_empty |= len == 0;
            all_ascii &= token.is_ascii();
        }
        text.truncate(end);
        Ok(Self {
            text: text.into(),
            all: tokens,
            firsts,
            steps,
            first_steps,
            sums,
            first_sums,
            longest,
            all_ascii,
            any_empty,
        })
    }

    /// Whether every token is ASCII, so that every name is.
    pub(super) const fn all_ascii(&self) -> bool {
        self.all_ascii
    }

    /// `kallsyms_token_table`.
    pub(super) fn table(&self) -> &[u8] {
        &self.text
    }

    /// `kallsyms_token_index`.
    pub(super) fn index(&self) -> Vec<u16> {
        let start = |token: &Token| u16::try_from(token.start).unwrap_or(u16::MAX);
        self.all.iter().map(start).collect()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.text.len()
            + size_of_val(&*self.all)
            + size_of_val(&*self.firsts)
            + size_of_val(&*self.steps)
            + size_of_val(&*self.first_steps)
            + size_of_val(&*self.sums)
            + size_of_val(&*self.first_sums)
    }

    /// The text of a token.
    pub(super) fn text(&self, code: u8) -> &[u8] {
        let token = self.all[usize::from(code)];
        &self.text[token.start as usize..][..token.len as usize]
    }

    fn len(&self, code: u8) -> usize {
        self.all[usize::from(code)].len as usize
    }

    /// Names of two codes to this many are what names must be, whatever the
    /// codes are.
    pub(super) fn short(&self) -> usize {
        if self.any_empty {
            return 0;
        }
        (MAX_NAME + 1) / self.longest.max(1)
    }

    /// Whether `name` is what names must be: a type letter and 1 to 511 bytes,
    /// of tokens that are not empty.
    pub(super) fn check(&self, name: &[u8]) -> Result<(), Unfit> {
        if self.any_empty && name.iter().any(|&code| self.len(code) == 0) {
            return Err(Unfit::Empty);
        }
        match name {
            [] => return Err(Unfit::Empty),
            &[code] if self.len(code) < 2 => return Err(Unfit::Empty),
            _ => {}
        }
        let len = |&code: &u8| self.len(code);
        if name.iter().map(len).sum::<usize>() > MAX_NAME + 1 {
            return Err(Unfit::TooLong);
        }
        Ok(())
    }

    /// Writes the type letter and the name to the front of `buffer`; returns
    /// how many bytes that are.
    pub(super) fn expand(&self, name: &[u8], buffer: &mut [u8; BUFFER]) -> usize {
        let mut end = 0;
        for &code in name {
            let token = self.all[usize::from(code)];
            let len = token.len as usize;
            // A whole word, of which the next token overwrites what is too much.
            let Some(word) = buffer.get_mut(end..end + HEAD) else {
                break;
            };
            word.copy_from_slice(&token.head.to_le_bytes());
            if len > HEAD {
                let tail = &self.text[token.start as usize..][HEAD..len];
                if let Some(rest) = buffer.get_mut(end + HEAD..end + len) {
                    rest.copy_from_slice(tail);
                }
            }
            end += len;
        }
        end.min(BUFFER)
    }

    /// As the kernel does it: byte by byte, through each token's NUL
    /// (kernel/kallsyms.c, `kallsyms_expand_symbol()`). Returns the name, less
    /// its type letter.
    pub(super) fn expand_by_bytes<'b>(
        &self,
        name: &[u8],
        buffer: &'b mut [u8; BUFFER],
    ) -> &'b [u8] {
        let (mut end, mut skipped_first) = (0, false);
        for &code in name {
            for &byte in self.text(code) {
                if !skipped_first {
                    skipped_first = true;
                } else if let Some(to) = buffer.get_mut(end) {
                    *to = byte;
                    end += 1;
                }
            }
        }
        &buffer[..end]
    }

    /// Orders `query` against `name`, less its type letter, up to the first
    /// token that differs.
    #[inline]
    pub(super) fn compare(&self, query: &Query<'_>, name: &[u8]) -> Ordering {
        let [first, others @ ..] = name else {
            return Ordering::Greater;
        };
        let mut at = 0;
        let first = self.firsts[usize::from(*first)];
        let others = others.iter().map(|&code| self.all[usize::from(code)]);
        for token in iter::once(first).chain(others) {
            let word = query.word(at);
            let differ = (word ^ token.head) & token.mask;
            if differ != 0 {
                // The zeros after a query are less than what a name has there.
                let byte = differ.trailing_zeros() / 8 * 8;
                return (word >> byte & 0xff).cmp(&(token.head >> byte & 0xff));
            }
            let len = token.len as usize;
            if len > HEAD {
                let tail = &self.text[token.start as usize..][HEAD..len];
                let rest = query.bytes.get(at + HEAD..).unwrap_or_default();
                let order = rest[..rest.len().min(tail.len())].cmp(tail);
                if order.is_ne() {
                    return order;
                }
            }
            at += len;
        }
        query.bytes.len().cmp(&at)
    }

    /// Orders the name `a` against the name `b`, less their type letters. Few
    /// are expanded for that: names near each other in the order mostly begin
    /// with the same codes, and differ soon after.
    #[inline]
    pub(super) fn order(&self, a: &[u8], b: &[u8], buffers: &mut [[u8; BUFFER]; 2]) -> Ordering {
        let same = same_codes(a, b);
        let (Some((&code_a, rest_a)), Some((&code_b, rest_b))) =
            (a[same..].split_first(), b[same..].split_first())
        else {
            return a.len().cmp(&b.len());
        };
        let tokens = if same == 0 { &self.firsts } else { &self.all };
        let token_a = &tokens[usize::from(code_a)];
        let token_b = &tokens[usize::from(code_b)];
        let (mut word_a, mut word_b) = (token_a.head, token_b.head);
        if (word_a ^ word_b) & token_a.mask & token_b.mask == 0 {
            word_a = self.word(token_a, rest_a);
            word_b = self.word(token_b, rest_b);
        }
        if word_a != word_b {
            // The first byte is the lowest.
            return word_a.swap_bytes().cmp(&word_b.swap_bytes());
        }
        let [buffer_a, buffer_b] = buffers;
        let (len_a, len_b) = (self.expand(a, buffer_a), self.expand(b, buffer_b));
        buffer_a[1..len_a.max(1)].cmp(&buffer_b[1..len_b.max(1)])
    }

    /// The first eight bytes of a token and the codes after it.
    #[inline]
    fn word(&self, token: &Token, codes: &[u8]) -> u64 {
        let (mut word, mut len) = (token.head, token.len as usize);
        for &code in codes {
            if len >= HEAD {
                break;
            }
            let token = &self.all[usize::from(code)];
            word |= token.head << (8 * len);
            len += token.len as usize;
        }
        word
    }

    /// For each code whether a name that begins with it may begin with
    /// `prefix`.
    pub(super) fn may_begin(&self, prefix: &[u8]) -> [bool; 256] {
        self.firsts.map(|token| {
            let text = &self.text[token.start as usize..][..token.len as usize];
            let both = text.len().min(prefix.len());
            text[..both] == prefix[..both]
        })
    }

    /// Whether `name`, less its type letter, begins with `prefix`.
    #[inline]
    pub(super) fn begins(&self, name: &[u8], prefix: &Query<'_>) -> bool {
        let [first, others @ ..] = name else {
            return false;
        };
        let mut at = 0;
        let first = &self.firsts[usize::from(*first)];
        let others = others.iter().map(|&code| &self.all[usize::from(code)]);
        for token in iter::once(first).chain(others) {
            let Some(rest) = prefix.bytes.get(at..).filter(|rest| !rest.is_empty()) else {
                return true;
            };
            if (prefix.word(at) ^ token.head) & token.mask & mask(rest.len()) != 0 {
                return false;
            }
            let len = token.len as usize;
            if len > HEAD && rest.len() > HEAD {
                let both = HEAD..len.min(rest.len());
                if self.text[token.start as usize..][both.clone()] != rest[both] {
                    return false;
                }
            }
            at += len;
        }
        prefix.bytes.len() <= at
    }

    /// Whether two names are the same, less their type letters.
    pub(super) fn same(&self, a: &[u8], b: &[u8]) -> bool {
        a == b || self.bytes(a).eq(self.bytes(b))
    }

    fn bytes<'n>(&'n self, name: &'n [u8]) -> impl Iterator<Item = &'n u8> {
        name.iter().flat_map(|&code| self.text(code)).skip(1)
    }

    /// The hash of the name that `codes` begin with, `len` codes, less its type
    /// letter, without expanding it: that of its expansion, [`Query::hash`].
    #[inline]
    pub(super) fn hash(&self, codes: &[u8], len: usize) -> u64 {
        // Most names: always as many steps, so that none is mispredicted.
        if let Some(codes) = codes.first_chunk::<USUAL>()
            && len <= USUAL
        {
            let mut hash = 0;
            for at in (1..USUAL).rev() {
                let code = if at < len {
                    usize::from(codes[at])
                } else {
                    NONE
                };
                hash = self.steps[code].apply(hash);
            }
            return hash::mix(self.first_steps[usize::from(codes[0])].apply(hash));
        }
        let [first, others @ ..] = &codes[..len] else {
            return 0;
        };
        let hash = others
            .iter()
            .rev()
            .fold(0, |hash, &code| self.steps[usize::from(code)].apply(hash));
        hash::mix(self.first_steps[usize::from(*first)].apply(hash))
    }

    /// The sums of all that comes before each code, and before the end, see
    /// [`hash::sum`]; as if lengths were codes.
    ///
    /// One addition a code, and no branch that depends on where names end.
    pub(super) fn sums(&self, names: &[u8], sums: &mut Vec<u32>) {
        sums.clear();
        let mut all: u32 = 0;
        sums.extend(names.iter().map(|&code| {
            let next = all.wrapping_add(self.sums[usize::from(code)]);
            replace(&mut all, next)
        }));
        sums.push(all);
    }

    /// The sum of the name that begins with `first`, less its type letter, of
    /// which the other codes have the sum `others`.
    #[inline]
    pub(super) fn sum(&self, first: u8, others: u32) -> u32 {
        self.first_sums[usize::from(first)].wrapping_add(others)
    }
}

/// How many codes two names begin with both.
#[inline]
fn same_codes(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let mut same = 0;
    while let (Some(a), Some(b)) = (
        a[same..].first_chunk::<HEAD>(),
        b[same..].first_chunk::<HEAD>(),
    ) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return same + differ.trailing_zeros() as usize / 8;
        }
        same += HEAD;
    }
    while same < len && a[same] == b[same] {
        same += 1;
    }
    same
}

/// Why a name is none.
pub(super) enum Unfit {
    Empty,
    TooLong,
}

/// Room for a type letter, a name, and the word that may be written past it.
pub(super) const BUFFER: usize = (MAX_NAME + 1).next_multiple_of(HEAD) + HEAD;

/// A name to look for.
#[derive(Clone, Copy)]
pub(super) struct Query<'q> {
    bytes: &'q [u8],
    /// The last eight bytes; of a shorter name all, and zeros before them.
    last: u64,
}

impl<'q> Query<'q> {
    #[inline]
    pub(super) fn new(bytes: &'q [u8]) -> Self {
        let last = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => word(bytes)
                .checked_shl(8 * narrow(HEAD - bytes.len()))
                .unwrap_or(0),
        };
        Self { bytes, last }
    }

    pub(super) const fn bytes(&self) -> &'q [u8] {
        self.bytes
    }

    /// The sum of the name, see [`hash::sum`].
    #[inline]
    pub(super) fn sum(&self) -> u32 {
        hash::sum(self.bytes)
    }

    /// The hash of the name, mixed.
    #[inline]
    pub(super) fn hash(&self) -> u64 {
        let (whole, _) = self.bytes.as_chunks();
        let rest = self.word(whole.len() * HEAD);
        let whole = whole.iter().map(|word| u64::from_le_bytes(*word));
        hash::mix(hash::of(whole.chain(iter::once(rest))))
    }

    /// The eight bytes at `at`, little endian, zeros after the end.
    #[inline]
    fn word(&self, at: usize) -> u64 {
        if let Some(word) = self.bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            return u64::from_le_bytes(*word);
        }
        // Fewer than eight are left; two shifts, since for none of them it is
        // by all 64 bits.
        let left = self.bytes.len().saturating_sub(at);
        self.last >> 1 >> (63 - 8 * left)
    }
}

/// Ones where a word is of the first `len` bytes.
fn mask(len: usize) -> u64 {
    !u64::MAX.checked_shl(8 * narrow(len)).unwrap_or(0)
}

/// Up to eight bytes, little endian, zeros after their end.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}
