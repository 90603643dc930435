//! The kernel's symbol table, taken whole.

use super::{
    KcoreError, Memory, VmcoreInfo,
    memory::{bytes, u32_at, u64_at},
    variables::{self, Matcher, STEXT, Variables},
};
use crate::kallsyms::{Addresses, NameBuffer, SymbolTable, TableError, TableErrorKind, TableParts};

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

/// Whether the kernel tells where its tables are.
pub(super) fn is_told(info: &VmcoreInfo) -> bool {
    info.symbol(TABLES[0]).is_some()
}

/// Reads the table, and finds the variables on the way.
pub(super) fn read(
    memory: &impl Memory,
    info: &VmcoreInfo,
) -> Result<(SymbolTable, Variables), KcoreError> {
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
    let token_index = bytes(
        memory,
        "kallsyms_token_index",
        at("kallsyms_token_index")?,
        512,
    )?;
    let token_index: Vec<u16> = token_index
        .as_chunks()
        .0
        .iter()
        .map(|&start| u16::from_ne_bytes(start))
        .collect();
    let token_table = up_to_next("kallsyms_token_table", MAX_TOKENS)?;
    let mut names = up_to_next("kallsyms_names", MAX_NAMES)?;
    let addresses = read_addresses(memory, info, count)?;
    let matcher = Matcher::new(&variables::NAMES, &token_table, &token_index);
    let (end, mut variables) = scan(&names, &matcher, &addresses, count)?;
    names.truncate(end);
    let seqs_of_names = variables
        .get("kallsyms_seqs_of_names")
        .map(|address| bytes(memory, "kallsyms_seqs_of_names", address, 3 * count))
        .transpose()?;
    let table = SymbolTable::from_parts(TableParts {
        names,
        count,
        token_table,
        token_index,
        seqs_of_names,
        markers: None,
        addresses,
    })?;
    let stext = at(STEXT)?;
    check_stext(&table, stext)?;
    variables.add(STEXT, stext);
    Ok((table, variables))
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

/// Where the names end, and the variables among the symbols.
///
/// They have to be found before there is a table: `kallsyms_seqs_of_names`
/// belongs to it, but VMCOREINFO does not tell of it.
fn scan(
    names: &[u8],
    matcher: &Matcher<'_>,
    addresses: &Addresses,
    count: usize,
) -> Result<(usize, Variables), KcoreError> {
    let mut variables = Variables::default();
    let mut offset = 0;
    for index in 0..count {
        let (start, len) = match names.get(offset..) {
            Some(&[len @ ..0x80, ..]) => (offset + 1, usize::from(len)),
            Some(&[low, high, ..]) => {
                (offset + 2, usize::from(low & 0x7f) | usize::from(high) << 7)
            }
            _ => (offset, usize::MAX),
        };
        let end = start.saturating_add(len);
        let codes = names.get(start..end).ok_or_else(|| {
            TableError::from(TableErrorKind::NameTruncated {
                index,
                offset,
                len: names.len(),
            })
        })?;
        if let Some(name) = matcher.find(codes) {
            variables.add(name, addresses.get(index));
        }
        offset = end;
    }
    Ok((offset, variables))
}

/// Whether the symbol `_stext` is where VMCOREINFO has it: proof that the
/// addresses were read in the encoding they are in.
fn check_stext(table: &SymbolTable, stext: u64) -> Result<(), KcoreError> {
    let mut buffer = NameBuffer::default();
    let first = table.at(stext).map_or(table.len(), |place| place.index);
    (first..table.len())
        .take_while(|&index| table.address(index) == stext)
        .any(|index| table.name(index, &mut buffer) == STEXT)
        .then_some(())
        .ok_or(KcoreError::Symbol(STEXT))
}

/// A length that has been found to be small.
fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
