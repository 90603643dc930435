//! A file in memory, without reading it: the one place in [`crate::source`]
//! that needs `unsafe`.

use std::{fs::File, io};

use memmap2::Mmap;

/// Maps a whole file, for reading only; an empty one, or one that has no size,
/// is empty.
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    #[expect(unsafe_code, reason = "no crate maps files without it")]
    // SAFETY: the mapping is read-only and private, and what it holds is looked
    // at as integers and bytes, each checked when it is read. That nobody
    // writes to the file meanwhile cannot be enforced, here as in every linker
    // and debugger: whoever may write to it can make the answers wrong, and
    // whoever cuts it short ends this process with SIGBUS.
    let map = unsafe { Mmap::map(file) };
    map
}
