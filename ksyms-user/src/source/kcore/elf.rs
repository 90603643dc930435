//! The headers of /proc/kcore (fs/proc/kcore.c, `read_kcore_iter()`).

use super::{KcoreError, memory::field};

pub(super) const HEADER_BYTES: usize = 64;

const SEGMENT_BYTES: usize = 56;

/// More than the notes of any kernel: those of VMCOREINFO end within a page.
const MAX_NOTES: u64 = 1 << 20;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

const LITTLE_OR_BIG: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };

/// Where the program headers are, from the first 64 bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl Header {
    pub(super) fn parse(header: &[u8]) -> Result<Self, KcoreError> {
        let wrong = |what, offset| KcoreError::Header { what, offset };
        if header.len() < HEADER_BYTES || !header.starts_with(b"\x7fELF") {
            return Err(wrong("no ELF header", 0));
        }
        if header[4] != 2 || header[5] != LITTLE_OR_BIG {
            return Err(wrong("an ELF file of another kind of machine", 4));
        }
        let half = |offset| u16::from_ne_bytes(field(header, offset).unwrap_or_default());
        if usize::from(half(54)) != SEGMENT_BYTES {
            return Err(wrong("program headers of an unknown size", 54));
        }
        Ok(Self {
            offset: u64::from_ne_bytes(field(header, 32).unwrap_or_default()),
            bytes: usize::from(half(56)) * SEGMENT_BYTES,
        })
    }
}

/// A range of virtual memory, and where the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    offset: u64,
    len: u64,
}

/// What the program headers say.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Sorted by address.
    loads: Vec<Segment>,
    notes: Option<Segment>,
}

impl Segments {
    /// Takes the program headers, which are at `offset` of the file.
    pub(super) fn parse(headers: &[u8], offset: u64) -> Result<Self, KcoreError> {
        let mut segments = Self::default();
        let mut at = offset;
        for header in headers.chunks_exact(SEGMENT_BYTES) {
            let long = |offset| u64::from_ne_bytes(field(header, offset).unwrap_or_default());
            let segment = Segment {
                offset: long(8),
                address: long(16),
                len: long(32),
            };
            match u32::from_ne_bytes(field(header, 0).unwrap_or_default()) {
                PT_LOAD => segments.loads.push(segment),
                PT_NOTE if segment.len > MAX_NOTES => {
                    return Err(KcoreError::Header {
                        what: "more than 1 MiB of notes",
                        offset: at,
                    });
                }
                PT_NOTE => segments.notes = Some(segment),
                _ => {}
            }
            at += SEGMENT_BYTES as u64;
        }
        segments.loads.sort_unstable_by_key(|load| load.address);
        Ok(segments)
    }

    /// Where in the file the notes are, and how many bytes.
    pub(super) fn notes(&self) -> Result<(u64, usize), KcoreError> {
        self.notes
            .and_then(|notes| Some((notes.offset, usize::try_from(notes.len).ok()?)))
            .ok_or(KcoreError::Header {
                what: "no notes among the program headers",
                offset: 0,
            })
    }

    /// Where in the file `len` bytes from `address` on are; `None` where no
    /// segment has all of them.
    pub(super) fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        let after = self.loads.partition_point(|load| load.address <= address);
        let load = self.loads[..after].last()?;
        let into = address - load.address;
        (into.checked_add(len as u64)? <= load.len)
            .then(|| load.offset.checked_add(into))
            .flatten()
    }
}

/// The text of the note VMCOREINFO among `notes`, which are at `offset` of the
/// file (since 4.19, commit 23c85094fe18).
pub(super) fn vmcoreinfo(notes: &[u8], offset: u64) -> Result<&[u8], KcoreError> {
    let mut at = 0;
    while at < notes.len() {
        let wrong = |what| KcoreError::Header {
            what,
            offset: offset.saturating_add(at as u64),
        };
        let word = |offset| {
            field(notes, at + offset)
                .and_then(|word| usize::try_from(u32::from_ne_bytes(word)).ok())
                .ok_or_else(|| wrong("a note that ends within its header"))
        };
        let (name_len, len) = (word(0)?, word(4)?);
        word(8)?;
        let part = |start: usize, len: usize| {
            notes
                .get(start..)
                .and_then(|rest| rest.get(..len))
                .ok_or_else(|| wrong("a note longer than the notes"))
        };
        let name = part(at + 12, name_len)?;
        let start = at + 12 + name_len.next_multiple_of(4);
        let text = part(start, len)?;
        if name.strip_suffix(b"\0").unwrap_or(name) == b"VMCOREINFO" {
            return Ok(text);
        }
        at = start + len.next_multiple_of(4);
    }
    Err(KcoreError::Header {
        what: "no note VMCOREINFO",
        offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(phoff: u64, count: u16) -> Vec<u8> {
        let mut header = b"\x7fELF\x02".to_vec();
        header.push(LITTLE_OR_BIG);
        header.resize(HEADER_BYTES, 0);
        header[32..40].copy_from_slice(&phoff.to_ne_bytes());
        header[54..56].copy_from_slice(&56_u16.to_ne_bytes());
        header[56..58].copy_from_slice(&count.to_ne_bytes());
        header
    }

    fn segment(kind: u32, offset: u64, address: u64, len: u64) -> Vec<u8> {
        let mut segment = u64::from(kind).to_le_bytes().to_vec();
        for word in [offset, address, 0, len, len, 0] {
            segment.extend(word.to_ne_bytes());
        }
        segment
    }

    fn note(name: &[u8], text: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len(), text.len(), 0] {
            note.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        for part in [name, text] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn headers() {
        let good = header(64, 3);
        let parsed = Header::parse(&good).unwrap();
        assert_eq!((parsed.offset, parsed.bytes), (64, 168));
        for (len, at, byte) in [
            (63, 0, 0x7f),
            (64, 0, 0),
            (64, 4, 1),
            (64, 5, 9),
            (64, 54, 9),
        ] {
            let mut bad = good[..len].to_vec();
            bad[at] = byte;
            let error = Header::parse(&bad).unwrap_err();
            assert!(matches!(error, KcoreError::Header { .. }), "{error}");
        }
    }

    #[test]
    fn segments_are_found_by_address() {
        let mut headers = segment(PT_NOTE, 0x1000, 0, 0x80);
        headers.extend(segment(PT_LOAD, 0x9000, 0xffff_0000, 0x1000));
        headers.extend(segment(PT_LOAD, 0x2000, 0x1000, 0x1000));
        headers.extend(segment(PT_LOAD, u64::MAX, 0x8000, u64::MAX));
        let segments = Segments::parse(&headers, 64).unwrap();
        assert_eq!(segments.notes().unwrap(), (0x1000, 0x80));
        for (address, len, offset) in [
            (0x1000, 0x1000, Some(0x2000)),
            (0x1ff0, 0x10, Some(0x2ff0)),
            (0x1ff0, 0x11, None),
            (0xfff, 1, None),
            (0xffff_0010, 1, Some(0x9010)),
            (0xffff_1000, 1, None),
            (0x8001, 1, None),
            (u64::MAX, usize::MAX, None),
        ] {
            assert_eq!(segments.offset_of(address, len), offset, "{address:#x}");
        }
        assert!(Segments::parse(&[], 64).unwrap().notes().is_err());
        let large = segment(PT_NOTE, 0, 0, 4 << 30);
        let error = Segments::parse(&large, 64).unwrap_err();
        assert_eq!(error.to_string(), "more than 1 MiB of notes at offset 0x40");
    }

    #[test]
    fn notes_are_walked() {
        let mut notes = note(b"CORE\0", b"status");
        notes.extend(note(b"VMCOREINFO\0", b"OSRELEASE=7\n"));
        assert_eq!(vmcoreinfo(&notes, 0).unwrap(), b"OSRELEASE=7\n");
        for len in 0..notes.len() {
            let error = vmcoreinfo(&notes[..len], 0x100).unwrap_err();
            assert!(matches!(error, KcoreError::Header { .. }), "{len}: {error}");
        }
        // 4 GiB of name or of text.
        for at in [0, 4] {
            let mut notes = notes.clone();
            notes[at..at + 4].fill(0xff);
            let error = vmcoreinfo(&notes, 0x100).unwrap_err();
            assert_eq!(
                error.to_string(),
                "a note longer than the notes at offset 0x100"
            );
        }
    }
}
