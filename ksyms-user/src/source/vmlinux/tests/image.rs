//! ELF files, made to be read: for the tests here and for tests/fuzz.

use object::{
    Endianness, elf,
    write::elf::{FileHeader, SectionHeader, Sym, Writer},
};

use super::{Addresses, TableParts};

pub(super) const TEXT: u64 = 0xffff_ffff_8100_0000;
pub(super) const RODATA: u64 = 0xffff_ffff_8200_0000;
/// Where the first table of a [`kernel`] is.
pub(super) const OFFSETS: u64 = RODATA + 24;

/// A section of a file to be made.
#[derive(Clone)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) data: Vec<u8>,
}

/// A symbol of a file to be made; sections are counted from 1, as in ELF.
#[derive(Clone)]
pub(super) struct Mark {
    pub(super) name: Vec<u8>,
    pub(super) section: u16,
    pub(super) bind: u8,
    pub(super) kind: u8,
    pub(super) address: u64,
}

impl Mark {
    pub(super) fn new(name: &str, section: u16, bind: u8, kind: u8, address: u64) -> Self {
        Self {
            name: name.into(),
            section,
            bind,
            kind,
            address,
        }
    }

    pub(super) fn global(name: &str, section: u16, address: u64) -> Self {
        Self::new(name, section, elf::STB_GLOBAL, elf::STT_NOTYPE, address)
    }
}

/// A file to be made.
#[derive(Clone, Default)]
pub(super) struct Image {
    pub(super) sections: Vec<Section>,
    pub(super) marks: Vec<Mark>,
}

impl Image {
    pub(super) fn section(
        &mut self,
        name: &'static str,
        kind: u32,
        flags: u32,
        address: u64,
        data: Vec<u8>,
    ) -> u16 {
        self.sections.push(Section {
            name,
            kind,
            flags,
            address,
            data,
        });
        u16::try_from(self.sections.len()).unwrap()
    }

    pub(super) fn mark(&mut self, mark: Mark) -> &mut Self {
        self.marks.push(mark);
        self
    }

    pub(super) fn write(&self) -> Vec<u8> {
        self.write_for(Endianness::Little, true, elf::ET_EXEC)
    }

    pub(super) fn write_for(&self, endian: Endianness, is_64: bool, e_type: u16) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(endian, is_64, &mut file);
        writer.reserve_file_header();
        let offsets: Vec<_> = self
            .sections
            .iter()
            .map(|section| writer.reserve(section.data.len(), 1))
            .collect();
        writer.reserve_null_section_index();
        let names: Vec<_> = self
            .sections
            .iter()
            .map(|section| {
                writer.reserve_section_index();
                writer.add_section_name(section.name.as_bytes())
            })
            .collect();
        let strings: Vec<_> = self
            .marks
            .iter()
            .map(|mark| (!mark.name.is_empty()).then(|| writer.add_string(&mark.name)))
            .collect();
        writer.reserve_null_symbol_index();
        for _ in &self.marks {
            writer.reserve_symbol_index(None);
        }
        writer.reserve_symtab_section_index();
        writer.reserve_strtab_section_index();
        writer.reserve_shstrtab_section_index();
        writer.reserve_symtab();
        writer.reserve_strtab();
        writer.reserve_shstrtab();
        writer.reserve_section_headers();

        let header = FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type,
            e_machine: elf::EM_X86_64,
            e_entry: 0,
            e_flags: 0,
        };
        writer.write_file_header(&header).unwrap();
        for section in &self.sections {
            writer.write(&section.data);
        }
        writer.write_null_symbol();
        for (mark, name) in self.marks.iter().zip(strings) {
            writer.write_symbol(&Sym {
                name,
                section: None,
                st_info: mark.bind << 4 | mark.kind,
                st_other: 0,
                st_shndx: mark.section,
                st_value: mark.address,
                st_size: 0,
            });
        }
        writer.write_strtab();
        writer.write_shstrtab();
        writer.write_null_section_header();
        for ((section, name), offset) in self.sections.iter().zip(names).zip(offsets) {
            writer.write_section_header(&SectionHeader {
                name: Some(name),
                sh_type: section.kind,
                sh_flags: section.flags.into(),
                sh_addr: section.address,
                sh_offset: offset as u64,
                sh_size: section.data.len() as u64,
                sh_link: 0,
                sh_info: 0,
                sh_addralign: 1,
                sh_entsize: 0,
            });
        }
        writer.write_symtab_section_header(1);
        writer.write_strtab_section_header();
        writer.write_shstrtab_section_header();
        file
    }
}

/// A kernel with these tables, whose place-relative addresses, if they are
/// that, begin at [`OFFSETS`].
pub(super) fn kernel(parts: &TableParts) -> Image {
    let mut image = Image::default();
    let mut rodata = vec![0xaa; 24];
    let mut marks = Vec::new();
    let mut table = |name: &str, bytes: &[u8]| {
        rodata.resize(rodata.len().next_multiple_of(8), 0);
        marks.push((name.to_owned(), rodata.len() as u64));
        rodata.extend_from_slice(bytes);
    };
    let words = |words: &[i32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<_>>()
    };
    match &parts.addresses {
        Addresses::Relative { base, offsets, .. } => {
            table("kallsyms_offsets", &words(offsets));
            table("kallsyms_relative_base", &base.to_le_bytes());
        }
        Addresses::PlaceRelative { start, offsets } => {
            assert_eq!(*start, OFFSETS);
            table("kallsyms_offsets", &words(offsets));
        }
        Addresses::Absolute(addresses) => {
            let bytes = addresses.iter().flat_map(|address| address.to_le_bytes());
            table("kallsyms_addresses", &bytes.collect::<Vec<_>>());
        }
    }
    table(
        "kallsyms_num_syms",
        &u32::try_from(parts.count).unwrap().to_le_bytes(),
    );
    table("kallsyms_names", &parts.names);
    if let Some(markers) = &parts.markers {
        let bytes = markers.iter().flat_map(|marker| marker.to_le_bytes());
        table("kallsyms_markers", &bytes.collect::<Vec<_>>());
    }
    table("kallsyms_token_table", &parts.token_table);
    let bytes = parts
        .token_index
        .iter()
        .flat_map(|start| start.to_le_bytes());
    table("kallsyms_token_index", &bytes.collect::<Vec<_>>());
    if let Some(order) = &parts.seqs_of_names {
        table("kallsyms_seqs_of_names", order);
    }
    rodata.extend_from_slice(&[0xbb; 100]);

    let alloc = elf::SHF_ALLOC;
    let text = image.section(
        ".text",
        elf::SHT_PROGBITS,
        alloc | elf::SHF_EXECINSTR,
        TEXT,
        vec![0x90; 64],
    );
    // At the addresses of the tables too, but not in the kernel's memory.
    image.section(
        ".debug_info",
        elf::SHT_PROGBITS,
        0,
        RODATA,
        vec![0xdd; 4096],
    );
    let section = image.section(".rodata", elf::SHT_PROGBITS, alloc, RODATA, rodata);
    image.mark(Mark::global("_stext", text, TEXT));
    image.mark(Mark::global("_text", text, TEXT));
    for (name, offset) in marks {
        image.mark(Mark::global(&name, section, RODATA + offset));
    }
    image
}
