//! Compressing names, as scripts/kallsyms.c does in effect.
//!
//! Every character that occurs keeps its code. The codes that are left go, one
//! after the other, to the pair of codes that is adjacent most often at the
//! time, which is then replaced everywhere. Where the kernel's build looks
//! through all names for each pair, here the places of each pair are kept.

use super::{Addresses, MAX_NAME, SymbolTable, TableError, TableErrorKind, TableParts, narrow};
use crate::kallsyms::Symbol;

/// The code that ends a name while compressing, and in the table stands for
/// nothing.
const END: u8 = 0;

impl SymbolTable {
    /// Compresses symbols, which must come in address order.
    ///
    /// A table has no modules, as the kernel's own is of its core only:
    /// [`Symbol::module`] is not kept.
    ///
    /// Takes about ten times the size of the names while it works. The result
    /// is within 1 % of the size of the kernel's own.
    ///
    /// # Errors
    ///
    /// [`TableErrorKind::AddressOrder`] when they are not in order,
    /// [`TableErrorKind::NameTooLong`] and [`TableErrorKind::HoldsNul`] for
    /// names that no kernel has, [`TableErrorKind::Empty`] when there is none.
    pub fn encode<'s>(symbols: impl IntoIterator<Item = Symbol<'s>>) -> Result<Self, TableError> {
        let mut text = vec![END];
        let mut addresses = Vec::new();
        for (index, symbol) in symbols.into_iter().enumerate() {
            let name = symbol.name.as_bytes();
            if name.len() > MAX_NAME {
                return Err(TableErrorKind::NameTooLong { index }.into());
            }
            if symbol.kind == END || name.contains(&END) {
                return Err(TableErrorKind::HoldsNul { index }.into());
            }
            text.push(symbol.kind);
            text.extend_from_slice(name);
            text.push(END);
            addresses.push(symbol.address);
        }
        if u32::try_from(text.len()).is_err() {
            return Err(TableErrorKind::NamesTooLarge(text.len()).into());
        }
        let mut pairs = Pairs::new(text);
        pairs.replace_all();
        Self::from_parts(TableParts {
            names: pairs.names(),
            count: addresses.len(),
            token_table: pairs.token_table(),
            token_index: pairs.token_index(),
            seqs_of_names: None,
            markers: None,
            addresses: Addresses::encode(&addresses),
        })
    }
}

/// Two adjacent codes.
type Pair = (u8, u8);

const fn number((left, right): Pair) -> usize {
    (left as usize) << 8 | right as usize
}

/// Names that are being compressed in place.
///
/// A code stays where the first character was that it stands for, and what it
/// stands for says where the next code is.
struct Pairs {
    /// [`END`], and each name followed by one. A code at the place of its first
    /// character, `END` at those that no code begins at any more.
    codes: Vec<u8>,
    /// The same codes, each at the place of its last character.
    ends: Vec<u8>,
    /// How often each pair is adjacent.
    counts: Vec<u32>,
    /// Where each pair is, and where it was before one of the two became part
    /// of another; only those of the kinds that are frequent enough.
    places: Vec<Vec<u32>>,
    /// What each code stands for; empty for those that are not in use.
    tokens: Vec<Vec<u8>>,
}

impl Pairs {
    fn new(text: Vec<u8>) -> Self {
        let mut tokens = vec![Vec::new(); 256];
        let mut counts = vec![0; 1 << 16];
        for (&left, &right) in text.iter().zip(&text[1..]) {
            tokens[usize::from(left)] = vec![left];
            counts[number((left, right))] += 1;
        }
        tokens[usize::from(END)].clear();
        let mut places: Vec<_> = counts
            .iter()
            .map(|&count| Vec::with_capacity(count as usize))
            .collect();
        for (place, pair) in text.windows(2).enumerate() {
            if pair[0] != END && pair[1] != END {
                places[number((pair[0], pair[1]))].push(narrow(place));
            }
        }
        Self {
            ends: text.clone(),
            codes: text,
            counts,
            places,
            tokens,
        }
    }

    fn replace_all(&mut self) {
        // No name may hold them, so no pair does.
        for code in 0..=u8::MAX {
            self.counts[number((END, code))] = 0;
            self.counts[number((code, END))] = 0;
        }
        let mut table_len = 2 * self.tokens.len();
        for code in (1..=u8::MAX).rev() {
            if !self.tokens[usize::from(code)].is_empty() {
                continue;
            }
            let Some(pair) = self.best() else {
                break;
            };
            let token = [pair.0, pair.1].map(|code| &*self.tokens[usize::from(code)]);
            // The index has 16 bits for where a token begins.
            table_len += token[0].len() + token[1].len();
            if table_len > usize::from(u16::MAX) {
                break;
            }
            self.replace(pair, code);
        }
    }

    /// The pair that is adjacent most often, and more than once.
    fn best(&self) -> Option<Pair> {
        let most = *self.counts.iter().max()?;
        let number = self.counts.iter().position(|&count| count == most)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the two bytes of a number below 2^16"
        )]
        (most > 1).then_some(((number >> 8) as u8, number as u8))
    }

    fn replace(&mut self, pair: Pair, code: u8) {
        let (left, right) = pair;
        let token = [left, right]
            .map(|code| &*self.tokens[usize::from(code)])
            .concat();
        let (left_len, len) = (self.tokens[usize::from(left)].len(), token.len());
        self.tokens[usize::from(code)] = token;
        for place in std::mem::take(&mut self.places[number(pair)]) {
            let start = place as usize;
            let middle = start + left_len;
            if self.codes[start] != left || self.codes[middle] != right {
                continue;
            }
            let end = start + len;
            let (before, after) = (self.ends[start - 1], self.codes[end]);
            self.codes[start] = code;
            self.codes[middle] = END;
            self.ends[end - 1] = code;
            if before != END {
                let start = start - self.tokens[usize::from(before)].len();
                self.counts[number((before, left))] -= 1;
                self.add((before, code), start);
            }
            if after != END {
                self.counts[number((right, after))] -= 1;
                self.add((code, after), start);
            }
        }
        self.counts[number(pair)] = 0;
    }

    fn add(&mut self, pair: Pair, place: usize) {
        self.counts[number(pair)] += 1;
        self.places[number(pair)].push(narrow(place));
    }

    /// Each name's length and codes, as in `kallsyms_names`.
    fn names(&self) -> Vec<u8> {
        let mut names = Vec::with_capacity(self.codes.len() / 2);
        let mut at = 1;
        while at < self.codes.len() {
            let length = names.len();
            names.push(0);
            while self.codes[at] != END {
                names.push(self.codes[at]);
                at += self.tokens[usize::from(self.codes[at])].len();
            }
            at += 1;
            // At most 512 codes: 7 bits here, the rest in a second byte.
            let len = names.len() - length - 1;
            #[expect(clippy::cast_possible_truncation, reason = "cut to 7 bits")]
            if len < 0x80 {
                names[length] = len as u8;
            } else {
                names[length] = 0x80 | len as u8;
                names.insert(length + 1, (len >> 7) as u8);
            }
        }
        names
    }

    fn token_table(&self) -> Vec<u8> {
        self.tokens
            .iter()
            .flat_map(|token| token.iter().copied().chain([END]))
            .collect()
    }

    fn token_index(&self) -> Vec<u16> {
        let mut offset = 0;
        // The empty ones at the front have the text of the first that is not.
        let last = self
            .tokens
            .iter()
            .take_while(|token| token.is_empty())
            .count();
        let mut last = u16::try_from(last).unwrap_or(u16::MAX);
        self.tokens
            .iter()
            .map(|token| {
                // Codes that are not in use have the text of another.
                if !token.is_empty() {
                    last = u16::try_from(offset).unwrap_or(u16::MAX);
                }
                offset += token.len() + 1;
                last
            })
            .collect()
    }
}
