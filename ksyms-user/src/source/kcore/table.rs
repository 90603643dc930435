//! The kernel's symbol table, taken whole.

use super::{
    KcoreError, Memory, VmcoreInfo,
    memory::{bytes, u32_at, u64_at},
};
use crate::kallsyms::{Addresses, NameBuffer, SymbolTable, TableParts};

/// What the tables are called that VMCOREINFO may tell of, since 6.0 (commit
/// 5fd8fea935a1).
const TABLES: [&str; 7] = [
    "kallsyms_names",
    "kallsyms_num_syms",
    "kallsyms_token_table",
    "kallsyms_token_index",
    "kallsyms_offsets",
    "kallsyms_relative_base",
    "kallsyms_addresses",
];

/// Sequence numbers have 24 bits, so there are no more symbols.
const MAX_SYMBOLS: u32 = 1 << 24;

/// Ten times the names of the largest kernels.
const MAX_NAMES: u64 = 64 << 20;

/// As far as the 16 bits of a token's place reach, and what may follow.
const MAX_TOKENS: u64 = 128 << 10;

/// How many symbols from the first of the tables on may be one of them.
const NEIGHBOURS: usize = 16;

/// Whether the kernel tells where its tables are.
pub(super) fn is_told(info: &VmcoreInfo) -> bool {
    info.symbol(TABLES[0]).is_some()
}

/// Reads the table.
pub(super) fn read(memory: &impl Memory, info: &VmcoreInfo) -> Result<SymbolTable, KcoreError> {
    let at = |name| info.symbol(name).ok_or(KcoreError::Info(name));
    // How long a table is, no one tells: at most up to the next one.
    let up_to_next = |name, limit| {
        let start = at(name)?;
        let next = TABLES
            .iter()
            .filter_map(|other| info.symbol(other))
            .filter(|&other| other > start)
            .min();
        match next.map(|next| next - start) {
            Some(len) if len <= limit => bytes(memory, name, start, usize_of(len)),
            len => Err(KcoreError::Implausible {
                what: "a table without end",
                address: start,
                value: len.unwrap_or_default(),
            }),
        }
    };
    let address = at("kallsyms_num_syms")?;
    let count = u32_at(memory, "kallsyms_num_syms", address)?;
    if count == 0 || count > MAX_SYMBOLS {
        return Err(KcoreError::Implausible {
            what: "a number of symbols that cannot be",
            address,
            value: count.into(),
        });
    }
    let count = count as usize;
    let raw_index = bytes(
        memory,
        "kallsyms_token_index",
        at("kallsyms_token_index")?,
        512,
    )?;
    let mut raw = Raw {
        names: up_to_next("kallsyms_names", MAX_NAMES)?,
        token_table: up_to_next("kallsyms_token_table", MAX_TOKENS)?,
        token_index: raw_index
            .as_chunks()
            .0
            .iter()
            .map(|&start| u16::from_ne_bytes(start))
            .collect(),
        addresses: read_addresses(memory, info, count)?,
        count,
    };
    let first_table = TABLES.iter().filter_map(|name| info.symbol(name)).min();
    let (seqs, names_end) = raw.find_near(first_table, "kallsyms_seqs_of_names")?;
    raw.names.truncate(names_end);
    let seqs_of_names = seqs
        .map(|address| bytes(memory, "kallsyms_seqs_of_names", address, 3 * count))
        .transpose()?;
    let table = SymbolTable::from_parts(TableParts {
        names: raw.names,
        count,
        token_table: raw.token_table,
        token_index: raw.token_index,
        seqs_of_names,
        markers: None,
        addresses: raw.addresses,
    })?;
    check_stext(&table, at("_stext")?)?;
    Ok(table)
}

fn read_addresses(
    memory: &impl Memory,
    info: &VmcoreInfo,
    count: usize,
) -> Result<Addresses, KcoreError> {
    let Some(start) = info.symbol("kallsyms_offsets") else {
        // Until 6.9 (commit 64e166099b69) addresses could be kept in full.
        let start = info
            .symbol("kallsyms_addresses")
            .ok_or(KcoreError::Info("kallsyms_offsets"))?;
        let raw = bytes(memory, "kallsyms_addresses", start, 8 * count)?;
        let addresses = raw.as_chunks().0.iter().map(|&at| u64::from_ne_bytes(at));
        return Ok(Addresses::Absolute(addresses.collect()));
    };
    let raw = bytes(memory, "kallsyms_offsets", start, 4 * count)?;
    let offsets: Vec<i32> = raw
        .as_chunks()
        .0
        .iter()
        .map(|&offset| i32::from_ne_bytes(offset))
        .collect();
    let Some(base) = info.symbol("kallsyms_relative_base") else {
        return Ok(Addresses::PlaceRelative { start, offsets });
    };
    Ok(Addresses::Relative {
        base: u64_at(memory, "kallsyms_relative_base", base)?,
        // With it, all symbols but the per-CPU ones, which come first, have
        // negative offsets. Without it an offset that looks negative would be
        // 2 GiB into the kernel, more than x86-64 and arm64 can link.
        absolute_percpu: offsets.last().is_some_and(|&offset| offset < 0),
        offsets,
    })
}

/// The parts, before they are a table.
struct Raw {
    names: Vec<u8>,
    token_table: Vec<u8>,
    token_index: Vec<u16>,
    addresses: Addresses,
    count: usize,
}

impl Raw {
    /// The address of the symbol `name`, if it is one of the first at or after
    /// `address`, and where the names end.
    ///
    /// The kernel's tables lie together, so that one that VMCOREINFO does not
    /// tell of is found without a look at the other names.
    fn find_near(
        &self,
        address: Option<u64>,
        name: &str,
    ) -> Result<(Option<u64>, usize), KcoreError> {
        let first = address.map_or(self.count, |address| self.first_from(address));
        let mut offset = TableParts::names_end(&self.names, first)?;
        let mut found = None;
        let last = self.count.min(first + NEIGHBOURS);
        for index in first..last {
            let end = offset + TableParts::names_end(&self.names[offset..], 1)?;
            if self.expand(&self.names[offset..end]).get(1..) == Some(name.as_bytes()) {
                found = Some(self.address(index));
            }
            offset = end;
        }
        let rest = TableParts::names_end(&self.names[offset..], self.count - last)?;
        Ok((found, offset + rest))
    }

    /// The first symbol that is not before `address`.
    fn first_from(&self, address: u64) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.address(middle) < address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn address(&self, index: usize) -> u64 {
        let signed = |offset: i32| i64::from(offset).cast_unsigned();
        match &self.addresses {
            Addresses::Relative {
                base,
                offsets,
                absolute_percpu,
            } => match offsets[index] {
                offset if !absolute_percpu => base.wrapping_add(offset.cast_unsigned().into()),
                offset if offset < 0 => base.wrapping_sub(1).wrapping_sub(signed(offset)),
                offset => signed(offset),
            },
            Addresses::PlaceRelative { start, offsets } => start
                .wrapping_add(4 * index as u64)
                .wrapping_add(signed(offsets[index])),
            Addresses::Absolute(addresses) => addresses[index],
        }
    }

    /// Type letter and name of a length and its codes; what it can of them, for
    /// the tokens are not yet known to be sound.
    fn expand(&self, name: &[u8]) -> Vec<u8> {
        let head = match name.first() {
            Some(0x80..) => 2,
            _ => 1,
        };
        name.iter()
            .skip(head)
            .filter_map(|&code| {
                let start = *self.token_index.get(usize::from(code))?;
                self.token_table.get(usize::from(start)..)
            })
            .flat_map(|token| token.iter().copied().take_while(|&byte| byte != 0))
            .take(512)
            .collect()
    }
}

/// Whether the symbol `_stext` is where VMCOREINFO has it: proof that the
/// addresses were read in the encoding they are in.
fn check_stext(table: &SymbolTable, stext: u64) -> Result<(), KcoreError> {
    let mut buffer = NameBuffer::default();
    let first = table.at(stext).map_or(table.len(), |place| place.index);
    (first..table.len())
        .take_while(|&index| table.address(index) == stext)
        .any(|index| table.name(index, &mut buffer) == "_stext")
        .then_some(())
        .ok_or(KcoreError::Symbol("_stext"))
}

/// A length that has been found to be small.
fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
