//! Where kprobes are forbidden.

use super::{SourceError, files::Filesystem};
use crate::kallsyms::{Fault, ParseError, ParseErrorKind, address, excerpt, hex};

const FILE: &str = "kprobes/blacklist";
const FORMAT: &str = "0xSTART-0xEND NAME";

/// The address ranges on which the kernel refuses a kprobe, with EINVAL
/// (kernel/kprobes.c, `within_kprobe_blacklist()`).
///
/// They concern kprobes (perf and trace events), not kprobe.multi and fentry,
/// which rest on ftrace alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blacklist {
    /// Half-open, sorted by start, disjoint.
    ranges: Vec<(u64, u64)>,
}

impl Blacklist {
    /// Reads kprobes/blacklist from debugfs, from a private mount of it if it
    /// is not mounted.
    ///
    /// `None` is not an empty list: it says that nobody can tell, since the
    /// kernel has no debugfs or no kprobes, or shows zeros for addresses.
    ///
    /// # Errors
    ///
    /// [`SourceError::NotPermitted`], [`SourceError::LockedDown`],
    /// [`SourceError::Malformed`], or [`SourceError::Io`].
    pub fn read() -> Result<Option<Self>, SourceError> {
        let debugfs = match Filesystem::DEBUGFS.open() {
            Ok(debugfs) => debugfs,
            Err(failure) if failure.is_absent() => return Ok(None),
            Err(failure) => return Err(SourceError::kernel(failure)),
        };
        match debugfs.read(FILE.as_ref()) {
            Ok(text) => Self::parse(&text).map_err(|source| SourceError::Malformed {
                path: debugfs.path(FILE.as_ref()),
                source,
            }),
            Err(failure) if failure.is_absent() => Ok(None),
            Err(failure) => Err(SourceError::kernel(failure)),
        }
    }

    /// Parses the text of kprobes/blacklist: lines of `0xSTART-0xEND NAME`,
    /// the end not included (kernel/kprobes.c, `kprobe_blacklist_seq_show()`).
    ///
    /// `None` when all addresses are hidden, which they are where those of
    /// /proc/kallsyms are.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first line that is not of this form.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, ParseError> {
        let mut ranges = Vec::new();
        for (index, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
            ranges.push(range(line).map_err(|fault| fault.at(index + 1, FORMAT))?);
        }
        if !ranges.is_empty() && ranges.iter().all(|range| *range == (0, 0)) {
            return Ok(None);
        }
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let overlaps = next.0 <= last.1;
            if overlaps {
                last.1 = last.1.max(next.1);
            }
            overlaps
        });
        Ok(Some(Self { ranges }))
    }

    /// Whether a kprobe at `address` is refused.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        after > 0 && address < self.ranges[after - 1].1
    }

    /// Whether nothing is forbidden.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// `0xSTART-0xEND`, which the name and the line's end follow.
fn range(line: &[u8]) -> Result<(u64, u64), Fault> {
    if line.last() != Some(&b'\n') {
        return Err(ParseErrorKind::Truncated.into());
    }
    line.strip_prefix(b"0x")
        .and_then(|line| {
            let dash = line.iter().position(|&byte| byte == b'-')?;
            let end = line[dash + 1..].strip_prefix(b"0x")?;
            Some((hex(&line[..dash])?, address(end).ok()?.0))
        })
        .ok_or_else(|| ParseErrorKind::BadAddress(excerpt(line)).into())
}
