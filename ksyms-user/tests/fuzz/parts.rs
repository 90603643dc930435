//! The parts of a table as one string of bytes, any of which is some parts.

use ksyms::kallsyms::{Addresses, TableParts};

pub(crate) fn pack(parts: &TableParts) -> Vec<u8> {
    let order = parts.seqs_of_names.clone().unwrap_or_default();
    let markers = parts
        .markers
        .iter()
        .flatten()
        .flat_map(|marker| marker.to_le_bytes());
    let markers: Vec<_> = markers.collect();
    let words = |words: &[i32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (encoding, base, addresses): (u8, u64, Vec<u8>) = match &parts.addresses {
        Addresses::Relative {
            base,
            offsets,
            absolute_percpu,
        } => (u8::from(*absolute_percpu), *base, words(offsets)),
        Addresses::PlaceRelative { start, offsets } => (2, *start, words(offsets)),
        Addresses::Absolute(addresses) => {
            let bytes = addresses.iter().flat_map(|address| address.to_le_bytes());
            (3, 0, bytes.collect())
        }
    };
    let mut bytes = vec![
        encoding,
        u8::from(parts.seqs_of_names.is_some()),
        u8::from(parts.markers.is_some()),
    ];
    bytes.extend(base.to_le_bytes());
    bytes.extend(
        u32::try_from(parts.count)
            .expect("a small table")
            .to_le_bytes(),
    );
    for part in [&parts.names, &parts.token_table, &order, &markers] {
        bytes.extend(
            u32::try_from(part.len())
                .expect("a small table")
                .to_le_bytes(),
        );
    }
    bytes.extend(
        parts
            .token_index
            .iter()
            .flat_map(|start| start.to_le_bytes()),
    );
    for part in [
        &parts.names,
        &parts.token_table,
        &order,
        &markers,
        &addresses,
    ] {
        bytes.extend(part);
    }
    bytes
}

/// What is left of the bytes, where there are too few of them.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, len: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, width: usize) -> u64 {
        let bytes = self.take(width).iter().rev();
        bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn length(&mut self) -> usize {
        usize::try_from(self.number(4)).expect("32 bits")
    }
}

pub(crate) fn unpack(bytes: &[u8]) -> TableParts {
    let mut rest = Rest(bytes);
    let [encoding, has_order, has_markers] = [(); 3].map(|()| rest.number(1));
    let base = rest.number(8);
    let count = rest.length();
    let lengths = [(); 4].map(|()| rest.length());
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(u32::from_le_bytes)
            .collect()
    };
    let index = rest.take(512).as_chunks().0.iter().copied();
    let token_index = index.map(u16::from_le_bytes).collect();
    let [names, token_table, order, markers] = lengths.map(|length| rest.take(length));
    let offsets = || words(rest.0).into_iter().map(u32::cast_signed).collect();
    TableParts {
        names: names.into(),
        count,
        token_table: token_table.into(),
        token_index,
        seqs_of_names: (has_order & 1 != 0).then(|| order.into()),
        markers: (has_markers & 1 != 0).then(|| words(markers)),
        addresses: match encoding {
            0 | 1 => Addresses::Relative {
                base,
                offsets: offsets(),
                absolute_percpu: encoding == 1,
            },
            2 => Addresses::PlaceRelative {
                start: base,
                offsets: offsets(),
            },
            _ => {
                let addresses = rest.0.as_chunks().0.iter().copied();
                Addresses::Absolute(addresses.map(u64::from_le_bytes).collect())
            }
        },
    }
}
