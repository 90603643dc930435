//! What a table should answer, by a decoding that has nothing in common with
//! its lookups.

use std::collections::HashMap;

use crate::kallsyms::{Addresses, TableParts};

/// The symbols of a table, by number.
pub(super) struct Expected {
    pub(super) names: Vec<String>,
    pub(super) kinds: Vec<u8>,
    pub(super) addresses: Vec<u64>,
}

impl Expected {
    /// Expands the parts one by one: the plainest reading of what the fields of
    /// [`TableParts`] are said to hold. Else what is wrong with them.
    pub(super) fn decode(parts: &TableParts) -> Result<Self, String> {
        let mut expected = Self {
            names: Vec::new(),
            kinds: Vec::new(),
            addresses: Vec::new(),
        };
        let mut names = parts.names.iter().copied();
        for number in 0..parts.count {
            let mut text = Vec::new();
            (|| {
                let mut len = usize::from(names.next()?);
                if len >= 0x80 {
                    len = len - 0x80 + 0x80 * usize::from(names.next()?);
                }
                for _ in 0..len {
                    let start = *parts.token_index.get(usize::from(names.next()?))?;
                    let token = parts.token_table.get(usize::from(start)..)?;
                    text.extend_from_slice(token.split(|&byte| byte == 0).next()?);
                }
                Some(())
            })()
            .ok_or_else(|| format!("symbol {number} is cut off"))?;
            let (&kind, name) = text
                .split_first()
                .ok_or_else(|| format!("symbol {number} is empty"))?;
            let name = str::from_utf8(name)
                .map_err(|error| format!("the name of symbol {number}: {error}"))?;
            expected.names.push(name.to_owned());
            expected.kinds.push(kind);
            let address = address(&parts.addresses, number)
                .ok_or_else(|| format!("symbol {number} has no address"))?;
            expected.addresses.push(address);
        }
        Ok(expected)
    }

    /// Address, type and name of a symbol.
    pub(super) fn get(&self, number: usize) -> Option<(u64, char, &str)> {
        let name = self.names.get(number)?;
        Some((self.addresses[number], char::from(self.kinds[number]), name))
    }

    /// The symbols of each name.
    pub(super) fn by_name(&self) -> HashMap<&str, Vec<usize>> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (number, name) in self.names.iter().enumerate() {
            by_name.entry(name).or_default().push(number);
        }
        by_name
    }

    /// The symbols in order of their names, and of their numbers where several
    /// have one.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|&number| self.names[number].as_bytes());
        order
    }

    /// Each address that is a symbol's, the first symbol there, and the next
    /// address that is one.
    pub(super) fn places(&self) -> Vec<(u64, usize, Option<u64>)> {
        let mut places: Vec<(u64, usize, Option<u64>)> = Vec::new();
        for (number, &address) in self.addresses.iter().enumerate() {
            match places.last_mut() {
                Some((last, ..)) if *last == address => {}
                last => {
                    if let Some((.., next)) = last {
                        *next = Some(address);
                    }
                    places.push((address, number, None));
                }
            }
        }
        places
    }
}

fn address(addresses: &Addresses, number: usize) -> Option<u64> {
    let wide = |offset: i32| i128::from(offset);
    let address = match addresses {
        Addresses::Relative {
            base,
            offsets,
            absolute_percpu,
        } => match (offsets.get(number)?, absolute_percpu) {
            (&absolute @ 0.., true) => wide(absolute),
            (&offset, true) => i128::from(*base) - 1 - wide(offset),
            (&offset, false) => i128::from(*base) + i128::from(offset.cast_unsigned()),
        },
        Addresses::PlaceRelative { start, offsets } => {
            i128::from(*start) + 4 * number as i128 + wide(*offsets.get(number)?)
        }
        Addresses::Absolute(addresses) => i128::from(*addresses.get(number)?),
    };
    // As the kernel adds: without what is past 64 bits.
    u64::try_from(address.rem_euclid(1 << 64)).ok()
}
