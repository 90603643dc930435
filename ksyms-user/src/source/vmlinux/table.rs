//! The kernel's own table, from where .symtab says that its parts are.

use std::{collections::HashMap, ops::ControlFlow};

use object::{
    LittleEndian as LE, elf,
    read::elf::{SectionHeader as _, Sym as _},
};

use super::{Elf, ElfError, ElfErrorKind, fail};
use crate::kallsyms::{Addresses, SymbolTable, TableErrorKind, TableParts};

/// The most that 256 tokens can take: the index has 16 bits, and the last one
/// is as long as a name and its type letter.
const TOKENS_MAX: usize = (1 << 16) + 513;

/// Where .symtab says that something is.
#[derive(Clone, Copy)]
struct Place {
    name: &'static str,
    address: u64,
    /// Where in the file .symtab says so.
    offset: u64,
}

/// The parts of a table, and what to compare it with.
const SOUGHT: [&str; 11] = [
    "kallsyms_names",
    "kallsyms_num_syms",
    "kallsyms_token_table",
    "kallsyms_token_index",
    "kallsyms_seqs_of_names",
    "kallsyms_markers",
    "kallsyms_addresses",
    "kallsyms_offsets",
    "kallsyms_relative_base",
    "_stext",
    "_text",
];

/// Those of them that .symtab has.
struct Places(HashMap<&'static str, Place>);

impl Places {
    fn find(elf: &Elf<'_>) -> Result<Self, ElfError> {
        let mut places = HashMap::new();
        for named in elf.named() {
            let named = named?;
            let mut sought = SOUGHT.into_iter();
            if let Some(name) = sought.find(|name| name.as_bytes() == named.name) {
                let place = Place {
                    name,
                    address: named.symbol.st_value(LE),
                    offset: elf.offset_of(named.index),
                };
                places.insert(name, place);
            }
        }
        Ok(Self(places))
    }

    fn get(&self, name: &str) -> Option<Place> {
        self.0.get(name).copied()
    }
}

/// The table of a kernel that has one.
pub(super) fn read(elf: &Elf<'_>) -> Result<Option<SymbolTable>, ElfError> {
    let places = Places::find(elf)?;
    let addresses = places.get("kallsyms_addresses");
    let (Some(names), Some(num_syms), Some(token_table), Some(token_index), Some(_)) = (
        places.get("kallsyms_names"),
        places.get("kallsyms_num_syms"),
        places.get("kallsyms_token_table"),
        places.get("kallsyms_token_index"),
        addresses.or(places.get("kallsyms_offsets")),
    ) else {
        return Ok(None);
    };
    let count = u32::from_le_bytes(elf.chunks(num_syms, 1)?[0]) as usize;
    let bytes = elf.bytes(names)?;
    let fault = |kind| ElfError {
        offset: elf.file_offset(bytes),
        kind,
    };
    let end = TableParts::names_end(bytes, count).map_err(|e| fault(ElfErrorKind::Table(e)))?;
    let tokens = elf.bytes(token_table)?;
    let token_index = elf.chunks(token_index, 256)?;
    let order = places.get("kallsyms_seqs_of_names");
    let order = order
        .map(|place| elf.chunks::<3>(place, count))
        .transpose()?;
    let markers = places.get("kallsyms_markers");
    let markers = markers
        .map(|place| elf.chunks(place, count.div_ceil(256)))
        .transpose()?;

    let mut unfit = None;
    for addresses in encodings(elf, &places, count)? {
        let parts = TableParts {
            names: bytes[..end].to_vec(),
            count,
            token_table: tokens[..tokens.len().min(TOKENS_MAX)].to_vec(),
            token_index: token_index
                .iter()
                .copied()
                .map(u16::from_le_bytes)
                .collect(),
            seqs_of_names: order.map(|order| order.as_flattened().to_vec()),
            markers: markers.map(|all| all.iter().copied().map(u32::from_le_bytes).collect()),
            addresses,
        };
        match SymbolTable::from_parts(parts) {
            Ok(table) if is_anchored(&table, &places) => return Ok(Some(table)),
            Ok(_) => unfit = Some(ElfErrorKind::Anchor),
            Err(error) if matches!(error.kind, TableErrorKind::AddressOrder { .. }) => {
                unfit.get_or_insert(ElfErrorKind::Table(error));
            }
            Err(error) => return Err(fault(ElfErrorKind::Table(error))),
        }
    }
    Err(fault(unfit.unwrap_or(ElfErrorKind::Anchor)))
}

/// The ways to read the addresses of `count` symbols, one of which is right.
fn encodings(elf: &Elf<'_>, places: &Places, count: usize) -> Result<Vec<Addresses>, ElfError> {
    if let Some(place) = places.get("kallsyms_addresses") {
        let addresses = elf.chunks(place, count)?;
        let addresses = addresses.iter().copied().map(u64::from_le_bytes);
        return Ok(vec![Addresses::Absolute(addresses.collect())]);
    }
    let Some(place) = places.get("kallsyms_offsets") else {
        return Ok(Vec::new());
    };
    let offsets = elf.chunks(place, count)?;
    let offsets: Vec<_> = offsets.iter().copied().map(i32::from_le_bytes).collect();
    let Some(base) = places.get("kallsyms_relative_base") else {
        return Ok(vec![Addresses::PlaceRelative {
            start: place.address,
            offsets,
        }]);
    };
    let written = u64::from_le_bytes(elf.chunks(base, 1)?[0]);
    let base = match (written, places.get("_text")) {
        // Left to a relocation, as arm64 does since 4.20 (arch/arm64/Makefile,
        // --no-apply-dynamic-relocs); scripts/kallsyms.c makes it `_text`.
        (0, Some(text)) => text.address,
        (base, _) => base,
    };
    // No symbol says which: CONFIG_KALLSYMS_ABSOLUTE_PERCPU is that of x86 with
    // SMP until 6.15.
    let relative = |absolute_percpu, offsets| Addresses::Relative {
        base,
        offsets,
        absolute_percpu,
    };
    Ok(vec![
        relative(true, offsets.clone()),
        relative(false, offsets),
    ])
}

/// Whether the table has `_stext`, or else `_text`, where .symtab has it.
fn is_anchored(table: &SymbolTable, places: &Places) -> bool {
    let anchors = ["_stext", "_text"].map(|name| places.get(name));
    let anchor = anchors.into_iter().flatten().find_map(|place| {
        let address = table.walk(|_, symbol| {
            if symbol.name == place.name {
                ControlFlow::Break(symbol.address)
            } else {
                ControlFlow::Continue(())
            }
        });
        Some(address.break_value()? == place.address)
    });
    anchor == Some(true)
}

impl<'d> Elf<'d> {
    /// The bytes from a place on, up to the end of its section.
    fn bytes(&self, place: Place) -> Result<&'d [u8], ElfError> {
        let section = self.sections.iter().find_map(|section| {
            let at = place.address.checked_sub(section.sh_addr(LE))?;
            let allocated = section.sh_flags(LE) & u64::from(elf::SHF_ALLOC) != 0;
            let has_bytes = section.sh_type(LE) != elf::SHT_NOBITS;
            (allocated && has_bytes && at < section.sh_size(LE)).then_some((section, at))
        });
        let Some((section, at)) = section else {
            return place.unmapped(1);
        };
        let bytes = section.data(LE, self.data).map_err(|_| ElfError {
            offset: section.sh_offset(LE),
            kind: ElfErrorKind::Damaged("the section of a kallsyms table"),
        })?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match bytes.get(at..) {
            Some(bytes @ [_, ..]) => Ok(bytes),
            _ => place.unmapped(1),
        }
    }

    /// `count` numbers of `N` bytes each, from a place on.
    fn chunks<const N: usize>(
        &self,
        place: Place,
        count: usize,
    ) -> Result<&'d [[u8; N]], ElfError> {
        let (chunks, _) = self.bytes(place)?.as_chunks();
        match chunks.get(..count) {
            Some(chunks) => Ok(chunks),
            None => place.unmapped(count.saturating_mul(N)),
        }
    }

    /// Where in the file `bytes` of it are.
    fn file_offset(&self, bytes: &[u8]) -> u64 {
        (bytes.as_ptr().addr() - self.data.as_ptr().addr()) as u64
    }
}

impl Place {
    fn unmapped<T>(self, len: usize) -> Result<T, ElfError> {
        let kind = ElfErrorKind::Unmapped {
            name: self.name,
            address: self.address,
            len,
        };
        fail(self.offset, kind)
    }
}
