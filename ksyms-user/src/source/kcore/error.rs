//! What can be wrong with a kernel's own structures, as read.

use std::io;

use crate::kallsyms::TableError;

/// Memory of the kernel that does not hold what it should.
///
/// The kernel goes on while it is read, so that even a sound one can show a
/// list torn in the middle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KcoreError {
    /// A header or note of the file is not what it should be.
    #[error("{what} at offset {offset:#x}")]
    Header {
        /// What is wrong.
        what: &'static str,
        /// Where in the file, in bytes.
        offset: u64,
    },
    /// The VMCOREINFO note lacks a line that it needs beside others it has.
    #[error("VMCOREINFO has no usable line {0}")]
    Info(&'static str),
    /// Memory cannot be read.
    #[error("{what}: {len} bytes at {address:#x} cannot be read")]
    Read {
        /// What should be there.
        what: &'static str,
        /// The address.
        address: u64,
        /// How many bytes were asked for.
        len: usize,
        /// The errno; `EFAULT` for an address that no segment has.
        source: io::Error,
    },
    /// Memory holds what cannot be.
    #[error("{what}: {value:#x} at {address:#x}")]
    Implausible {
        /// What is wrong.
        what: &'static str,
        /// The address it was read from.
        address: u64,
        /// What was read.
        value: u64,
    },
    /// A list was another one after it had been read.
    #[error("{0} changed while they were read")]
    Changed(&'static str),
    /// The parts of the symbol table do not fit together.
    #[error("the kernel's symbol table is not one")]
    Table(#[from] TableError),
    /// The table has no such symbol, or none that is what it should be:
    /// variables are left out without `CONFIG_KALLSYMS_ALL`.
    #[error("the kernel has no symbol {0}")]
    Symbol(&'static str),
    /// The type information is malformed.
    #[error("BTF: {what} at offset {offset:#x}")]
    Btf {
        /// What is wrong.
        what: &'static str,
        /// Where, in bytes from its start.
        offset: usize,
    },
    /// The type information does not have a structure or member.
    #[error("BTF has no {member} in struct {name}")]
    Layout {
        /// The structure.
        name: &'static str,
        /// The member.
        member: &'static str,
    },
}
