//! What scripts/kallsyms.c would list, from .symtab.
//!
//! The kernel's build runs `nm -n vmlinux`, filters that (scripts/mksysmap) and
//! makes a table of the rest (scripts/kallsyms.c). This does the same for a
//! kernel built with `CONFIG_KALLSYMS_ALL`; the filters are those of 6.4 and
//! later (commits 94ff2f63d6a3 and 19a17d7fa28f), when they had all come together.

use object::{
    LittleEndian as LE, elf,
    read::elf::{SectionHeader as _, Sym as _},
};

use super::{Elf, ElfError, ElfErrorKind, Named, fail};
use crate::kallsyms::{Builder, Lines as _, Symbol, SymbolLines, Symbols};

/// Names that begin so are left out.
const IGNORED_PREFIXES: &[&str] = &[
    // Mapping symbols, and local labels.
    "$",
    ".L",
    // arm64: EFI stub, early code, hypervisor.
    "__efistub_",
    "__pi_$",
    "__pi_.L",
    "__kvm_nvhe_$",
    "__kvm_nvhe_.L",
    // clang's CFI.
    "__kcfi_typeid_",
    "__kvm_nvhe___kcfi_typeid_",
    "__pi___kcfi_typeid_",
    // What EXPORT_SYMBOL() and MODULE_DEVICE_TABLE() leave behind.
    "__crc_",
    "__kstrtab_",
    "__kstrtabns_",
    "__mod_device_table__",
];

/// Names that end so are left out: stubs of 32-bit arm.
const IGNORED_SUFFIXES: &[&str] = &["_from_arm", "_from_thumb", "_veneer"];

/// Names with this in them are left out: stubs of powerpc.
const IGNORED_PARTS: &[&str] = &[".long_branch.", ".plt_branch."];

/// Names that are left out: marks of the linker, and the table itself.
const IGNORED: &[&str] = &[
    "L0",
    "_SDA_BASE_",
    "_SDA2_BASE_",
    "kallsyms_addresses",
    "kallsyms_offsets",
    "kallsyms_relative_base",
    "kallsyms_num_syms",
    "kallsyms_names",
    "kallsyms_markers",
    "kallsyms_seqs_of_names",
    "kallsyms_token_table",
    "kallsyms_token_index",
];

fn is_ignored(name: &str) -> bool {
    // Far jumps that lld makes for arm and mips.
    let is_thunk = name
        .strip_prefix("__")
        .and_then(|name| name.split_once("Thunk_"))
        .is_some_and(|(cpu, _)| cpu.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    is_thunk
        || IGNORED_PREFIXES.iter().any(|part| name.starts_with(part))
        || IGNORED_SUFFIXES.iter().any(|part| name.ends_with(part))
        || IGNORED_PARTS.iter().any(|part| name.contains(part))
        || IGNORED.contains(&name)
}

/// A line of nm(1).
#[derive(Clone, Copy)]
struct Line<'d> {
    address: u64,
    kind: u8,
    name: &'d str,
}

impl Line<'_> {
    /// The order of lines; among aliases, the name that the kernel would show
    /// comes first (scripts/kallsyms.c, `compare_symbols()`).
    fn key(&self) -> (u64, bool, bool, usize, &str) {
        let underscores = self.name.len() - self.name.trim_start_matches('_').len();
        (
            self.address,
            self.kind == b'W',
            self.is_of_linker_script(),
            underscores,
            self.name,
        )
    }

    /// scripts/kallsyms.c, `may_be_linker_script_provide_symbol()`.
    fn is_of_linker_script(&self) -> bool {
        let name = self.name;
        name.len() >= 8
            && name.starts_with("__")
            && (["__start_", "__stop_", "__end_"]
                .iter()
                .any(|part| name.starts_with(part))
                || name.ends_with("_start")
                || name.ends_with("_end"))
    }
}

/// The symbols of .symtab.
pub(super) fn read(elf: &Elf<'_>) -> Result<Symbols, ElfError> {
    let sections: Vec<u8> = elf.sections.iter().map(section_letter).collect();
    let mut lines = Vec::new();
    for named in elf.named() {
        let Named {
            index,
            symbol,
            name,
        } = named?;
        let Some(kind) = letter(symbol, &sections).or_else(|section| {
            fail(
                elf.offset_of(index),
                ElfErrorKind::SymbolSection { index, section },
            )
        })?
        else {
            continue;
        };
        let name = match str::from_utf8(name) {
            Ok(name) if !name.is_empty() && !name.bytes().any(|byte| byte <= b' ') => name,
            _ => return fail(elf.offset_of(index), ElfErrorKind::SymbolName { index }),
        };
        if !is_ignored(name) {
            lines.push(Line {
                address: symbol.st_value(LE),
                kind,
                name,
            });
        }
    }
    make_per_cpu_absolute(&mut lines);
    lines.sort_unstable_by(|a, b| a.key().cmp(&b.key()));
    let fault = |kind| ElfError {
        offset: elf.symtab.sh_offset(LE),
        kind,
    };
    if lines.is_empty() {
        return Err(fault(ElfErrorKind::NoSymbols));
    }
    let mut symbols = Builder::with_room_for(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let symbol = Symbol {
            address: line.address,
            kind: line.kind,
            name: line.name,
            module: None,
        };
        symbols
            .push(&symbol)
            .map_err(|unfit| fault(ElfErrorKind::Text(unfit.at(index + 1, SymbolLines::FORMAT))))?;
    }
    Ok(Symbols::new(None, symbols))
}

/// The letter that nm(1) has for a symbol, if it is one that kernels list; else
/// the number of its section, which is not there.
///
/// As binutils' bfd/syms.c, `bfd_decode_symclass()`. Left out are the letters
/// that scripts/mksysmap and `is_ignored_symbol()` leave out: absolute ones
/// (which of x86 are constants), those for debuggers, and unique globals.
fn letter(symbol: &elf::Sym64<LE>, sections: &[u8]) -> Result<Option<u8>, u16> {
    let letter = match (symbol.st_shndx(LE), symbol.st_bind(), symbol.st_type()) {
        (elf::SHN_COMMON, ..) => b'C',
        (_, _, elf::STT_GNU_IFUNC) => b'i',
        (_, elf::STB_WEAK, elf::STT_OBJECT) => b'V',
        (_, elf::STB_WEAK, _) => b'W',
        (elf::SHN_ABS, ..) | (_, elf::STB_GNU_UNIQUE, _) => return Ok(None),
        (section, bind, _) => match sections.get(usize::from(section)).ok_or(section)? {
            b'n' => return Ok(None),
            letter if bind == elf::STB_LOCAL => *letter,
            letter => letter.to_ascii_uppercase(),
        },
    };
    Ok(Some(letter))
}

/// The letter of a section's local symbols (bfd/syms.c,
/// `decode_section_type()`); `n` for what is not loaded.
fn section_letter(section: &elf::SectionHeader64<LE>) -> u8 {
    let has = |flag| section.sh_flags(LE) & u64::from(flag) != 0;
    if !has(elf::SHF_ALLOC) {
        b'n'
    } else if has(elf::SHF_EXECINSTR) {
        b't'
    } else if section.sh_type(LE) == elf::SHT_NOBITS {
        b'b'
    } else if has(elf::SHF_WRITE) {
        b'd'
    } else {
        b'r'
    }
}

/// Makes per-CPU symbols absolute where they are counted from 0, as on x86 with
/// SMP until 6.15 (scripts/kallsyms.c, `make_percpus_absolute()`).
fn make_per_cpu_absolute(lines: &mut [Line<'_>]) {
    let address = |name| {
        lines
            .iter()
            .find(|line| line.name == name)
            .map(|line| line.address)
    };
    if let (Some(0), Some(end)) = (address("__per_cpu_start"), address("__per_cpu_end")) {
        for line in lines.iter_mut().filter(|line| line.address <= end) {
            line.kind = b'A';
        }
    }
}
