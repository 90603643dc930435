/// Parts that are no symbol table, or symbols that cannot become one.
///
/// Offsets are in bytes from the start of the part that the message names;
/// symbols, tokens and markers are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {}", kind.advice())]
pub struct TableError {
    /// What is wrong.
    pub kind: TableErrorKind,
}

impl From<TableErrorKind> for TableError {
    #[cold]
    fn from(kind: TableErrorKind) -> Self {
        Self { kind }
    }
}

/// What is wrong with the parts of a table, or with symbols to be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableErrorKind {
    /// The count is 0.
    #[error("the table holds no symbol")]
    Empty,
    /// Sequence numbers have 24 bits, so there are at most 2^24 symbols.
    #[error("{0} symbols are more than the 16777216 that a table can number")]
    TooManySymbols(usize),
    /// Offsets into the names have 32 bits.
    #[error("{0} bytes of names are more than a table can address")]
    NamesTooLarge(usize),
    /// The token index does not have 256 entries.
    #[error("the token index has {0} entries, not 256")]
    TokenIndexLen(usize),
    /// A token begins past the end of the token table.
    #[error("token {token} begins at offset {offset} of a token table of {len} bytes")]
    TokenOutside {
        /// The token's number.
        token: usize,
        /// Where it should begin.
        offset: usize,
        /// The length of the token table, in bytes.
        len: usize,
    },
    /// No NUL ends a token.
    #[error("token {token}, at offset {offset} of the token table, has no NUL at its end")]
    TokenUnterminated {
        /// The token's number.
        token: usize,
        /// Where it begins.
        offset: usize,
    },
    /// The names end within a symbol, or before all were seen.
    #[error("the names end, at offset {len}, within symbol {index}, which begins at {offset}")]
    NameTruncated {
        /// The symbol.
        index: usize,
        /// Where its length byte is, or should be.
        offset: usize,
        /// The length of the names, in bytes.
        len: usize,
    },
    /// A symbol has no name, or uses a token that is empty.
    #[error("symbol {index}, at offset {offset} of the names, has an empty name or token")]
    NameEmpty {
        /// The symbol.
        index: usize,
        /// Where its length byte is.
        offset: usize,
    },
    /// A name is longer than the kernel's longest, 511 bytes.
    #[error("symbol {index} has a name longer than 511 bytes")]
    NameTooLong {
        /// The symbol.
        index: usize,
    },
    /// A name is not UTF-8.
    #[error("the name of symbol {index} is not UTF-8")]
    NotUtf8 {
        /// The symbol.
        index: usize,
    },
    /// A name to be encoded holds a NUL, which ends tokens.
    #[error("the name or type of symbol {index} holds a NUL")]
    HoldsNul {
        /// The symbol.
        index: usize,
    },
    /// More than padding follows the last name.
    #[error("{count} symbols end at offset {end} of {len} bytes of names")]
    TrailingNames {
        /// How many symbols there should be.
        count: usize,
        /// Where the last one ends.
        end: usize,
        /// The length of the names, in bytes.
        len: usize,
    },
    /// There is not one address a symbol.
    #[error("{found} addresses belong to {expected} symbols")]
    AddressCount {
        /// How many symbols there are.
        expected: usize,
        /// How many addresses.
        found: usize,
    },
    /// An address is lower than the one before it.
    #[error("the address of symbol {index} is lower than that of the symbol before it")]
    AddressOrder {
        /// The symbol.
        index: usize,
    },
    /// There is not one marker for each 256 symbols.
    #[error("{found} markers belong to a table that has {expected}")]
    MarkerCount {
        /// How many markers the symbols have.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A marker is not where its symbol is.
    #[error("marker {marker} says offset {found}, but its symbol is at {expected}")]
    Marker {
        /// The marker.
        marker: usize,
        /// Where the symbol is.
        expected: u32,
        /// What the marker says.
        found: u32,
    },
    /// There are not three bytes of sequence a symbol.
    #[error("{found} bytes of sequence belong to symbols that have {expected}")]
    SequenceLen {
        /// Three bytes for each symbol.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A sequence number is past the last symbol.
    #[error("place {place} in name order is symbol {index}, which is past the last")]
    Sequence {
        /// The place in name order.
        place: usize,
        /// The sequence number there.
        index: usize,
    },
}

impl TableErrorKind {
    const fn advice(&self) -> &'static str {
        match self {
            Self::HoldsNul { .. } | Self::NameTooLong { .. } | Self::TooManySymbols(_) => {
                "keep these symbols as text"
            }
            _ => "read the kernel's tables again, or use its text, /proc/kallsyms",
        }
    }
}
