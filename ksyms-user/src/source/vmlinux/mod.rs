//! Symbols from a vmlinux: the kernel as it was linked, an ELF file.

mod error;
mod map;
mod nm;
mod table;

use std::{fs::File, path::Path};

pub use error::{ElfError, ElfErrorKind};
use object::{
    LittleEndian as LE, elf,
    read::elf::{FileHeader as _, SectionHeader as _, Sym as _},
};

use super::SourceError;
use crate::kallsyms::{SymbolTable, Symbols};

/// Where in a bzImage its magic number is (Documentation/arch/x86/boot.rst).
const BZIMAGE_MAGIC_AT: usize = 0x202;
const BZIMAGE_MAGIC: &[u8] = b"HdrS";

/// The symbols of a vmlinux.
///
/// Addresses are those that the kernel was linked for: a running kernel is
/// elsewhere by a fixed distance, unless it was booted with `nokaslr`. Modules
/// are not in it.
#[derive(Debug)]
pub enum ElfSymbols {
    /// The kernel's own table, from its `kallsyms_*` parts (those of kernel 5.0
    /// and later).
    Table(SymbolTable),
    /// What scripts/kallsyms.c would have made a table of, from .symtab: for a
    /// kernel without `CONFIG_KALLSYMS`.
    Text(Symbols),
}

impl ElfSymbols {
    /// Takes the symbols from the bytes of an ELF file.
    ///
    /// Allocates what the table or the symbols need, which is of the order of
    /// their size in the file, whatever sizes it claims.
    ///
    /// # Errors
    ///
    /// [`ElfError`] says what is wrong and at which offset.
    pub fn parse(data: &[u8]) -> Result<Self, ElfError> {
        let elf = Elf::parse(data)?;
        Ok(match table::read(&elf)? {
            Some(table) => Self::Table(table),
            None => Self::Text(nm::read(&elf)?),
        })
    }
}

/// How much of a file tells whether it is a kernel image.
pub(super) const IMAGE_HEAD_BYTES: u64 = 518;

/// Whether a file that begins like this is one for [`vmlinux`] rather than a
/// text: an ELF file, or a bzImage, whose error names the file to use instead.
#[must_use]
pub(super) fn is_kernel_image(head: &[u8]) -> bool {
    head.starts_with(&elf::ELFMAG) || is_bzimage(head)
}

fn is_bzimage(head: &[u8]) -> bool {
    head.get(BZIMAGE_MAGIC_AT..)
        .is_some_and(|rest| rest.starts_with(BZIMAGE_MAGIC))
}

/// Reads the symbols of a vmlinux, from its kallsyms tables where it has them
/// and else from .symtab; see [`ElfSymbols`].
///
/// The file is mapped, so that of hundreds of megabytes only the parts in
/// question are read. Who cuts it short meanwhile ends this process.
///
/// # Errors
///
/// [`SourceError::Elf`] for a file that is no kernel with symbols, and
/// [`SourceError::Io`] with what open(2) and mmap(2) say.
pub fn vmlinux(path: impl AsRef<Path>) -> Result<ElfSymbols, SourceError> {
    let path = path.as_ref();
    let fail = |call| SourceError::io(call, path);
    let file = File::open(path).map_err(fail("open"))?;
    let data = map::map(&file).map_err(fail("mmap"))?;
    ElfSymbols::parse(&data).map_err(|source| SourceError::Elf {
        path: path.into(),
        source,
    })
}

const fn fail<T>(offset: u64, kind: ElfErrorKind) -> Result<T, ElfError> {
    Err(ElfError { offset, kind })
}

/// The parts of an ELF file that say where symbols are.
struct Elf<'d> {
    data: &'d [u8],
    sections: &'d [elf::SectionHeader64<LE>],
    symtab: &'d elf::SectionHeader64<LE>,
    symbols: &'d [elf::Sym64<LE>],
    strings: &'d [u8],
}

/// A symbol with a name, defined in this file.
struct Named<'d> {
    /// Its place in .symtab, from 0.
    index: usize,
    symbol: &'d elf::Sym64<LE>,
    name: &'d [u8],
}

impl<'d> Elf<'d> {
    fn parse(data: &'d [u8]) -> Result<Self, ElfError> {
        use ElfErrorKind as Kind;
        let damaged = |offset, what| {
            move |_| ElfError {
                offset,
                kind: Kind::Damaged(what),
            }
        };
        if is_bzimage(data) && !data.starts_with(&elf::ELFMAG) {
            return fail(BZIMAGE_MAGIC_AT as u64, Kind::Compressed);
        }
        match data {
            [0x7f, b'E', b'L', b'F', class, encoding, ..] => {
                if *class != elf::ELFCLASS64 {
                    return fail(4, Kind::Class(*class));
                }
                if *encoding != elf::ELFDATA2LSB {
                    return fail(5, Kind::Encoding(*encoding));
                }
            }
            _ => return fail(0, Kind::NotElf),
        }
        let header = elf::FileHeader64::<LE>::parse(data).map_err(damaged(0, "the ELF header"))?;
        let kind = header.e_type(LE);
        if !matches!(kind, elf::ET_EXEC | elf::ET_DYN) {
            return fail(16, Kind::Type(kind));
        }
        let sections = header
            .section_headers(LE, data)
            .map_err(damaged(header.e_shoff(LE), "the table of sections"))?;
        let Some(symtab) = sections
            .iter()
            .find(|section| section.sh_type(LE) == elf::SHT_SYMTAB)
        else {
            return fail(header.e_shoff(LE), Kind::Stripped);
        };
        let symbols = symtab
            .data_as_array(LE, data)
            .map_err(damaged(symtab.sh_offset(LE), ".symtab"))?;
        let Some(strings) = sections
            .get(symtab.sh_link(LE) as usize)
            .filter(|section| section.sh_type(LE) == elf::SHT_STRTAB)
        else {
            return fail(symtab.sh_offset(LE), Kind::NoStrings);
        };
        Ok(Self {
            data,
            sections,
            symtab,
            symbols,
            strings: strings
                .data(LE, data)
                .map_err(damaged(strings.sh_offset(LE), ".strtab"))?,
        })
    }

    /// Where in the file symbol `index` is.
    fn offset_of(&self, index: usize) -> u64 {
        self.symtab.sh_offset(LE) + (index * size_of::<elf::Sym64<LE>>()) as u64
    }

    /// The symbols that this file defines, less those of sections and source
    /// files, and less those whose names are longer than 511 bytes:
    /// scripts/kallsyms.c, `read_symbol()`, leaves them out too.
    fn named(&self) -> impl Iterator<Item = Result<Named<'d>, ElfError>> {
        let defined = |symbol: &elf::Sym64<LE>| {
            symbol.st_shndx(LE) != elf::SHN_UNDEF
                && !matches!(symbol.st_type(), elf::STT_SECTION | elf::STT_FILE)
        };
        let symbols = self.symbols.iter().enumerate().skip(1);
        symbols
            .filter(move |(_, symbol)| defined(symbol))
            .filter_map(|(index, symbol)| {
                self.name(index, symbol)
                    .map(|name| {
                        name.map(|name| Named {
                            index,
                            symbol,
                            name,
                        })
                    })
                    .transpose()
            })
    }

    /// The name of symbol `index`; `None` if it is too long.
    fn name(&self, index: usize, symbol: &elf::Sym64<LE>) -> Result<Option<&'d [u8]>, ElfError> {
        /// `KSYM_NAME_LEN` (include/linux/kallsyms.h, since 6.1).
        const NAME_AND_NUL: usize = 512;
        let start = symbol.st_name(LE) as usize;
        let rest = self.strings.get(start..).unwrap_or_default();
        match rest.iter().take(NAME_AND_NUL).position(|&byte| byte == 0) {
            Some(len) => Ok(Some(&rest[..len])),
            None if rest.len() >= NAME_AND_NUL => Ok(None),
            None => fail(self.offset_of(index), ElfErrorKind::SymbolName { index }),
        }
    }
}

#[cfg(test)]
mod tests;
