//! Where symbols are.

use std::mem::replace;

use super::{SymbolTable, TableErrorKind};

/// The addresses of a table, in the encodings that kernels have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// `kallsyms_offsets` and `kallsyms_relative_base`
    /// (`CONFIG_KALLSYMS_BASE_RELATIVE`).
    Relative {
        /// `kallsyms_relative_base`.
        base: u64,
        /// One a symbol, in bytes.
        offsets: Vec<i32>,
        /// `CONFIG_KALLSYMS_ABSOLUTE_PERCPU`: negative offsets mean
        /// `base - 1 - offset`, others are absolute. Without it all offsets are
        /// unsigned and counted from `base` (kernel/kallsyms.c,
        /// `kallsyms_sym_address()`).
        absolute_percpu: bool,
    },
    /// `kallsyms_offsets` from kernel 7.0 on: each symbol is at the address of
    /// its own entry, four bytes each, plus the entry.
    PlaceRelative {
        /// The address of the first entry.
        start: u64,
        /// One a symbol, in bytes.
        offsets: Vec<i32>,
    },
    /// `kallsyms_addresses` of kernels without
    /// `CONFIG_KALLSYMS_BASE_RELATIVE`, and for symbols that lie more than
    /// 2 GiB apart.
    Absolute(Vec<u64>),
}

impl Addresses {
    /// How many addresses there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Relative { offsets, .. } | Self::PlaceRelative { offsets, .. } => offsets.len(),
            Self::Absolute(addresses) => addresses.len(),
        }
    }

    /// Whether there is no address.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address at `index` (kernel/kallsyms.c, `kallsyms_sym_address()`).
    pub(crate) fn get(&self, index: usize) -> u64 {
        match self {
            Self::Relative {
                base,
                offsets,
                absolute_percpu,
            } => relative(*base, offsets[index], *absolute_percpu),
            Self::PlaceRelative { start, offsets } => place_relative(*start, index, offsets[index]),
            Self::Absolute(addresses) => addresses[index],
        }
    }

    /// Checks that there are `count`, in order.
    pub(super) fn check(&self, count: usize) -> Result<(), TableErrorKind> {
        if self.len() != count {
            return Err(TableErrorKind::AddressCount {
                expected: count,
                found: self.len(),
            });
        }
        let disorder = match self {
            Self::Relative {
                base,
                offsets,
                absolute_percpu,
            } => disorder(
                offsets
                    .iter()
                    .map(|&offset| relative(*base, offset, *absolute_percpu)),
            ),
            Self::PlaceRelative { start, offsets } => disorder(
                (0..)
                    .zip(offsets)
                    .map(|(index, &offset)| place_relative(*start, index, offset)),
            ),
            Self::Absolute(addresses) => disorder(addresses.iter().copied()),
        };
        match disorder {
            Some(index) => Err(TableErrorKind::AddressOrder { index }),
            None => Ok(()),
        }
    }

    /// The most compact form of `addresses`, which must be in order.
    ///
    /// The kernel's base is its `_text`. Here it is the lowest address that is
    /// not as small as those of per-CPU symbols.
    pub(super) fn encode(addresses: &[u64]) -> Self {
        let base = addresses
            .iter()
            .copied()
            .find(|&address| i32::try_from(address).is_err())
            .unwrap_or_default();
        let offset = |&address: &u64| {
            i32::try_from(address).ok().or_else(|| {
                let above = i32::try_from(address.checked_sub(base)?).ok()?;
                Some(-1 - above)
            })
        };
        addresses
            .iter()
            .map(offset)
            .collect::<Option<_>>()
            .map_or_else(
                || Self::Absolute(addresses.to_vec()),
                |offsets| Self::Relative {
                    base,
                    offsets,
                    absolute_percpu: true,
                },
            )
    }

    pub(super) const fn heap_bytes(&self) -> usize {
        match self {
            Self::Relative { offsets, .. } | Self::PlaceRelative { offsets, .. } => {
                offsets.capacity() * size_of::<i32>()
            }
            Self::Absolute(addresses) => addresses.capacity() * size_of::<u64>(),
        }
    }
}

/// The first address that is lower than the one before it.
fn disorder(mut addresses: impl Iterator<Item = u64>) -> Option<usize> {
    let mut before = 0;
    addresses.position(|address| address < replace(&mut before, address))
}

const fn relative(base: u64, offset: i32, absolute_percpu: bool) -> u64 {
    if !absolute_percpu {
        base.wrapping_add(offset.cast_unsigned() as u64)
    } else if offset >= 0 {
        (offset as i64).cast_unsigned()
    } else {
        base.wrapping_sub(1)
            .wrapping_sub((offset as i64).cast_unsigned())
    }
}

const fn place_relative(start: u64, index: usize, offset: i32) -> u64 {
    start
        .wrapping_add(4 * index as u64)
        .wrapping_add((offset as i64).cast_unsigned())
}

/// The symbol that an address is in, from [`SymbolTable::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The symbol; of several at one address the first, as in the kernel.
    pub index: usize,
    /// How far into the symbol the address is, in bytes.
    pub offset: u64,
    /// The distance to the next symbol that is elsewhere, in bytes; `None` for
    /// the last, whose end the table does not say.
    pub size: Option<u64>,
}

impl SymbolTable {
    /// The symbol that `address` is in; `None` below the first symbol.
    ///
    /// As in kernel/kallsyms.c, `get_symbol_pos()`: the last symbol that does
    /// not begin after `address`, the first of its aliases, and the next symbol
    /// elsewhere as its end. An address past the last symbol is in that one.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Place> {
        let (mut low, mut high) = (0, self.len());
        if address < self.address(0) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.address(middle) <= address {
                low = middle;
            } else {
                high = middle;
            }
        }
        let start = self.address(low);
        while low > 0 && self.address(low - 1) == start {
            low -= 1;
        }
        Some(Place {
            index: low,
            offset: address - start,
            size: (high < self.len()).then(|| self.address(high) - start),
        })
    }

    /// [`SymbolTable::at`], with the name: to be printed as the kernel does in
    /// its backtraces (`%pS`), `tcp_v4_rcv+0x12/0x5f0`.
    ///
    /// The table has the core kernel's symbols alone, so that an address in a
    /// module is in the last of them;
    /// [`Symbols::describe`](crate::kallsyms::Symbols::describe) knows modules.
    #[must_use]
    pub fn describe(&self, address: u64) -> Option<Described> {
        let place = self.at(address)?;
        let mut buffer = super::NameBuffer::default();
        Some(Described {
            name: self.name(place.index, &mut buffer).into(),
            module: None,
            offset: place.offset,
            size: place.size,
        })
    }
}

/// An address as a name and an offset, from [`SymbolTable::describe`] and
/// [`Symbols::describe`](crate::kallsyms::Symbols::describe).
///
/// Printed as `tcp_v4_rcv+0x12/0x5f0`, or `nf_nat_init+0x4/0x80 [nf_nat]`;
/// without the size where it is not known; with `{:#}` without offset and size
/// (`%ps`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The symbol's name.
    pub name: Box<str>,
    /// The symbol's module; `None` for the core kernel.
    pub module: Option<Box<str>>,
    /// How far into the symbol the address is, in bytes.
    pub offset: u64,
    /// The symbol's size in bytes, see [`Place::size`].
    pub size: Option<u64>,
}

impl std::fmt::Display for Described {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        if !f.alternate() {
            write!(f, "+{:#x}", self.offset)?;
            if let Some(size) = self.size {
                write!(f, "/{size:#x}")?;
            }
        }
        match &self.module {
            Some(module) => write!(f, " [{module}]"),
            None => Ok(()),
        }
    }
}
