//! Why an ELF file did not yield symbols.

use crate::kallsyms::{ParseError, TableError};

/// An ELF file that does not say which symbols a kernel has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {kind}; {}", kind.advice())]
pub struct ElfError {
    /// Where in the file, in bytes from its start.
    pub offset: u64,
    /// What is wrong there.
    pub kind: ElfErrorKind,
}

/// What is wrong with an ELF file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfErrorKind {
    /// The file does not begin as ELF files do.
    #[error("this is no ELF file")]
    NotElf,
    /// The file is what the boot loader loads (Documentation/arch/x86/boot.rst).
    #[error("this is a compressed kernel, a bzImage")]
    Compressed,
    /// The file is not for a 64-bit machine: `EI_CLASS`.
    #[error("ELF class {0} is not that of a 64-bit kernel")]
    Class(u8),
    /// The file is not little endian: `EI_DATA`.
    #[error("ELF data encoding {0} is not little endian")]
    Encoding(u8),
    /// The file is neither an executable nor one that can be relocated as a
    /// whole: `e_type`.
    #[error("ELF type {0} is not that of a linked kernel")]
    Type(u16),
    /// A part of the file is not all there, or not of the form it should have.
    #[error("{0} is malformed, or ends past the end of the file")]
    Damaged(&'static str),
    /// There is no .symtab.
    #[error("the file has no .symtab: it was stripped")]
    Stripped,
    /// .symtab does not say where its names are.
    #[error(".symtab has no table of strings")]
    NoStrings,
    /// A name is past the end of the strings, has no end, or cannot be one.
    #[error("symbol {index} has no name that can be read")]
    SymbolName {
        /// The symbol's place in .symtab, counted from 0.
        index: usize,
    },
    /// A symbol is in a section that is not there.
    #[error("symbol {index} is in section {section}, which is not there")]
    SymbolSection {
        /// The symbol's place in .symtab, counted from 0.
        index: usize,
        /// The section's number.
        section: u16,
    },
    /// .symtab has no symbol that a kernel would list.
    #[error(".symtab names neither functions nor data")]
    NoSymbols,
    /// A table is at an address that no section has, or ends past its section.
    #[error("{name}, {len} bytes at address {address:#x}, is not within a section's bytes")]
    Unmapped {
        /// The symbol that names the table.
        name: &'static str,
        /// Its address.
        address: u64,
        /// Its least length, in bytes.
        len: usize,
    },
    /// The tables are there, but are no symbol table.
    #[error("the kallsyms tables are damaged")]
    Table(#[source] TableError),
    /// The tables have neither `_stext` nor `_text` where .symtab has it,
    /// whatever way their addresses are read.
    #[error("the kallsyms tables and .symtab are at odds about _stext and _text")]
    Anchor,
    /// The symbols of .symtab are no table of symbols.
    #[error("the symbols of .symtab cannot be listed")]
    Text(#[source] ParseError),
}

impl ElfErrorKind {
    const fn advice(&self) -> &'static str {
        match self {
            Self::Compressed => {
                "what scripts/extract-vmlinux takes out of it is stripped: \
                 name the System.map of this build, or the vmlinux of its debug package"
            }
            Self::Stripped | Self::NoStrings | Self::NoSymbols => {
                "name the vmlinux of the kernel's debug package (linux-image-VERSION-dbg, \
                 kernel-debuginfo), or its System.map"
            }
            Self::NotElf | Self::Class(_) | Self::Encoding(_) | Self::Type(_) => {
                "name the vmlinux of a 64-bit little-endian kernel, or its System.map"
            }
            _ => "the file is damaged or was cut off: copy it again, or name a System.map",
        }
    }
}
