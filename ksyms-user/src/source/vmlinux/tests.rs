mod image;

use std::{fs, ops::ControlFlow, process::Command};

use object::Endianness;

use image::{Image, Mark, OFFSETS, RODATA, TEXT, kernel as image};

use super::*;
use crate::kallsyms::{Addresses, Step, Symbol, TableErrorKind, TableParts};

impl Image {
    fn find(&mut self, name: &str) -> &mut Mark {
        let mut marks = self.marks.iter_mut();
        marks.find(|mark| mark.name == name.as_bytes()).unwrap()
    }

    fn without(&self, name: &str) -> Self {
        let mut image = self.clone();
        image.marks.retain(|mark| mark.name != name.as_bytes());
        image
    }
}

/// What the kernel of the tests has, in address order.
fn kernel_symbols(per_cpu: bool) -> Vec<(u64, u8, String)> {
    let mut symbols = Vec::new();
    if per_cpu {
        symbols.push((0, b'A', "fixed_percpu_data".to_owned()));
        symbols.push((0x6000, b'A', "cpu_tss_rw".to_owned()));
    }
    symbols.push((TEXT, b'T', "_stext".to_owned()));
    symbols.push((TEXT, b'T', "_text".to_owned()));
    for n in 0..700 {
        symbols.push((TEXT + 0x40 + 16 * n, b't', format!("do_work_{}", n % 600)));
    }
    symbols.push((RODATA, b'R', "long_".repeat(102)));
    symbols
}

fn encode(symbols: &[(u64, u8, String)]) -> SymbolTable {
    SymbolTable::encode(symbols.iter().map(|(address, kind, name)| Symbol {
        address: *address,
        kind: *kind,
        name,
        module: None,
    }))
    .unwrap()
}

fn decode(table: &SymbolTable) -> Vec<(u64, u8, String)> {
    let mut symbols = Vec::new();
    let end: ControlFlow<()> = table.walk(|_, symbol| {
        symbols.push((symbol.address, symbol.kind, symbol.name.to_owned()));
        ControlFlow::Continue(())
    });
    assert!(end.is_continue());
    symbols
}

fn table(data: &[u8]) -> SymbolTable {
    match ElfSymbols::parse(data).unwrap() {
        ElfSymbols::Table(table) => table,
        ElfSymbols::Text(text) => unreachable!("not from the tables: {text:?}"),
    }
}

fn text(data: &[u8]) -> Vec<(u64, char, String)> {
    match ElfSymbols::parse(data).unwrap() {
        ElfSymbols::Text(symbols) => symbols
            .iter()
            .map(|symbol| (symbol.address, symbol.kind.into(), symbol.name.to_owned()))
            .collect(),
        ElfSymbols::Table(table) => unreachable!("not from .symtab: {table:?}"),
    }
}

fn fault(data: &[u8]) -> ElfError {
    ElfSymbols::parse(data).unwrap_err()
}

/// The same addresses in every encoding that can have them.
fn encodings(symbols: &[(u64, u8, String)]) -> Vec<(&'static str, Addresses)> {
    let addresses: Vec<u64> = symbols.iter().map(|symbol| symbol.0).collect();
    let start = OFFSETS;
    let place = |(index, &address): (usize, &u64)| {
        let at = start + 4 * index as u64;
        i32::try_from(address.wrapping_sub(at).cast_signed()).ok()
    };
    let above = |&address: &u64| {
        Some(
            u32::try_from(address.checked_sub(TEXT)?)
                .ok()?
                .cast_signed(),
        )
    };
    let mut encodings = vec![("absolute", Addresses::Absolute(addresses.clone()))];
    let absolute_percpu = encode(symbols).to_parts().addresses;
    assert!(matches!(
        absolute_percpu,
        Addresses::Relative {
            base: TEXT,
            absolute_percpu: true,
            ..
        }
    ));
    encodings.push(("absolute per-CPU", absolute_percpu));
    if let Some(offsets) = addresses.iter().map(above).collect() {
        let relative = Addresses::Relative {
            base: TEXT,
            offsets,
            absolute_percpu: false,
        };
        encodings.push(("relative", relative));
    }
    if let Some(offsets) = addresses.iter().enumerate().map(place).collect() {
        encodings.push((
            "place-relative",
            Addresses::PlaceRelative { start, offsets },
        ));
    }
    encodings
}

#[test]
fn tables_in_every_encoding() {
    let mut seen = Vec::new();
    for per_cpu in [true, false] {
        let symbols = kernel_symbols(per_cpu);
        let encoded = encode(&symbols);
        assert_eq!(encoded.range(Step::Expand, "_stext").len(), 1);
        let parts = encoded.to_parts();
        assert!(parts.seqs_of_names.is_some() && parts.markers.is_some());
        for (name, addresses) in encodings(&symbols) {
            for optional in 0..4 {
                let mut parts = parts.clone();
                parts.addresses = addresses.clone();
                if optional & 1 != 0 {
                    parts.seqs_of_names = None;
                }
                if optional & 2 != 0 {
                    parts.markers = None;
                }
                let table = table(&image(&parts).write());
                assert_eq!(decode(&table), symbols, "{name} {optional}");
                assert_eq!(table.to_parts().addresses, addresses, "{name}");
                assert_eq!(table.resolve("do_work_1").count(), 2);
            }
            seen.push(name);
        }
    }
    for name in ["absolute", "absolute per-CPU", "relative", "place-relative"] {
        assert!(seen.contains(&name), "{name}: {seen:?}");
    }
}

/// Offsets of which none is negative read as small addresses, in order too:
/// only `_stext` tells.
#[test]
fn stext_tells_how_to_read_offsets() {
    let symbols = [(TEXT, b'T', "_stext".into()), (TEXT + 16, b'T', "f".into())];
    let mut parts = encode(&symbols).to_parts();
    parts.addresses = Addresses::Relative {
        base: TEXT,
        offsets: vec![0, 16],
        absolute_percpu: false,
    };
    let good = image(&parts);
    assert_eq!(decode(&table(&good.write())), symbols);

    let mut moved = good.clone();
    moved.find("_stext").address += 1;
    assert_eq!(fault(&moved.write()).kind, ElfErrorKind::Anchor);
    let nameless = good.without("_stext").without("_text");
    assert_eq!(fault(&nameless.write()).kind, ElfErrorKind::Anchor);
}

/// arm64's vmlinux has a zero for it, and a relocation.
#[test]
fn base_left_to_a_relocation() {
    let symbols = kernel_symbols(false);
    for (name, mut addresses) in encodings(&symbols) {
        let Addresses::Relative { base, .. } = &mut addresses else {
            continue;
        };
        *base = 0;
        let mut parts = encode(&symbols).to_parts();
        parts.addresses = addresses;
        assert_eq!(decode(&table(&image(&parts).write())), symbols, "{name}");
    }
}

fn good_image() -> Image {
    let encoded = encode(&kernel_symbols(true));
    assert_eq!(encoded.range(Step::Expand, "_stext").len(), 1);
    image(&encoded.to_parts())
}

/// A part that .symtab does not name: the symbols are those of .symtab.
#[test]
fn without_tables_from_symtab() {
    let image = good_image();
    for name in [
        "kallsyms_names",
        "kallsyms_num_syms",
        "kallsyms_token_table",
        "kallsyms_token_index",
        "kallsyms_offsets",
    ] {
        let expected = [(TEXT, 'T', "_stext".into()), (TEXT, 'T', "_text".into())];
        assert_eq!(text(&image.without(name).write()), expected, "{name}");
    }
}

#[test]
fn faults_of_tables_say_where() {
    let image = good_image();
    let data = image.write();
    for name in [
        "names",
        "num_syms",
        "token_table",
        "token_index",
        "offsets",
        "relative_base",
        "markers",
        "seqs_of_names",
    ] {
        let name = format!("kallsyms_{name}");
        let index = 1 + image
            .marks
            .iter()
            .position(|mark| mark.name == name.as_bytes())
            .unwrap();
        let symtab = Elf::parse(&data).unwrap().offset_of(index);
        for address in [0, 1, TEXT + 64, u64::MAX] {
            let mut image = image.clone();
            image.find(&name).address = address;
            let error = fault(&image.write());
            assert_eq!(error.offset, symtab, "{name}");
            assert!(
                matches!(&error.kind, ElfErrorKind::Unmapped { name: n, address: a, .. } if *n == name && *a == address),
                "{error}"
            );
            assert!(error.to_string().contains("System.map"), "{error}");
        }
    }
}

/// Where in a file the bytes of a table are.
fn place_of(image: &Image, data: &[u8], name: &str) -> usize {
    let address = image.clone().find(name).address;
    let rodata = image.sections.last().unwrap();
    let start = data
        .windows(rodata.data.len())
        .position(|window| window == rodata.data);
    start.unwrap() + usize::try_from(address - rodata.address).unwrap()
}

#[test]
fn damaged_tables() {
    let image = good_image();
    let data = image.write();
    let names = place_of(&image, &data, "kallsyms_names");
    let damaged = |name: &str, bytes: &[u8]| {
        let mut data = data.clone();
        let at = place_of(&image, &data, name);
        data[at..at + bytes.len()].copy_from_slice(bytes);
        fault(&data)
    };
    let table_fault = |error: ElfError| {
        assert_eq!(error.offset, names as u64);
        match error.kind {
            ElfErrorKind::Table(error) => error.kind,
            kind => unreachable!("{kind}"),
        }
    };
    // 4 Gi symbols, in a file of 30 KB.
    let kind = table_fault(damaged("kallsyms_num_syms", &[0xff; 4]));
    assert!(
        matches!(kind, TableErrorKind::NameTruncated { .. }),
        "{kind}"
    );
    let kind = table_fault(damaged("kallsyms_num_syms", &[0; 4]));
    assert_eq!(kind, TableErrorKind::Empty);
    // A name of 16 KB, and one of none.
    let kind = table_fault(damaged("kallsyms_names", &[0xff, 0xff]));
    assert!(
        !matches!(kind, TableErrorKind::AddressOrder { .. }),
        "{kind}"
    );
    let kind = table_fault(damaged("kallsyms_names", &[0]));
    assert_eq!(
        kind,
        TableErrorKind::NameEmpty {
            index: 0,
            offset: 0
        }
    );
    let kind = table_fault(damaged("kallsyms_token_index", &[0xff; 2]));
    assert!(
        matches!(
            kind,
            TableErrorKind::TokenOutside {
                token: 0,
                offset: 0xffff,
                ..
            }
        ),
        "{kind}"
    );
    let kind = table_fault(damaged("kallsyms_markers", &[1]));
    assert!(
        matches!(
            kind,
            TableErrorKind::Marker {
                marker: 0,
                found: 1,
                ..
            }
        ),
        "{kind}"
    );
    let kind = table_fault(damaged("kallsyms_seqs_of_names", &[0xff; 3]));
    assert!(
        matches!(
            kind,
            TableErrorKind::Sequence {
                place: 0,
                index: 0xff_ffff
            }
        ),
        "{kind}"
    );
    let kind = table_fault(damaged("kallsyms_offsets", &[0xff, 0xff, 0xff, 0x7f]));
    assert!(
        matches!(kind, TableErrorKind::AddressOrder { .. }),
        "{kind}"
    );
    assert_eq!(
        damaged("kallsyms_relative_base", &[1]).kind,
        ElfErrorKind::Anchor
    );
}

/// Wherever a file is cut off: its sections are described at its end.
#[test]
fn cut_off_anywhere() {
    let data = good_image().write();
    for len in (0..data.len()).rev().step_by(97).chain(0..200) {
        let error = fault(&data[..len]);
        let expected = match len {
            0..6 => ElfErrorKind::NotElf,
            6..64 => ElfErrorKind::Damaged("the ELF header"),
            _ => ElfErrorKind::Damaged("the table of sections"),
        };
        assert_eq!(error.kind, expected, "{len}");
    }
}

/// Every field of the header and of the sections at its extremes.
#[test]
fn extreme_fields_never_panic() {
    let data = good_image().write();
    let sections = usize::try_from(u64::from_le_bytes(data[40..48].try_into().unwrap())).unwrap();
    let mut errors = 0;
    for start in (0..64).chain(sections..data.len()) {
        for bytes in [&[0; 8][..], &[0xff; 8], &[0xff; 4], &[0x7f], &[1]] {
            let mut data = data.clone();
            let end = data.len().min(start + bytes.len());
            data[start..end].copy_from_slice(&bytes[..end - start]);
            errors += usize::from(ElfSymbols::parse(&data).is_err());
        }
    }
    assert!(errors > 500, "{errors}");
}

#[test]
fn other_files() {
    let image = good_image();
    for (data, offset, kind, advice) in [
        (
            b"ffffffff81000000 T _stext\n".to_vec(),
            0,
            ElfErrorKind::NotElf,
            "System.map",
        ),
        (
            image.write_for(Endianness::Little, false, elf::ET_EXEC),
            4,
            ElfErrorKind::Class(elf::ELFCLASS32),
            "64-bit little-endian",
        ),
        (
            image.write_for(Endianness::Big, true, elf::ET_EXEC),
            5,
            ElfErrorKind::Encoding(elf::ELFDATA2MSB),
            "64-bit little-endian",
        ),
        (
            image.write_for(Endianness::Little, true, elf::ET_REL),
            16,
            ElfErrorKind::Type(elf::ET_REL),
            "vmlinux",
        ),
        (
            image.write_for(Endianness::Little, true, elf::ET_CORE),
            16,
            ElfErrorKind::Type(elf::ET_CORE),
            "vmlinux",
        ),
    ] {
        let error = fault(&data);
        assert_eq!((error.offset, &error.kind), (offset, &kind));
        assert!(error.to_string().contains(advice), "{error}");
    }
    let mut data = vec![0; 0x1000];
    data[0x202..0x206].copy_from_slice(b"HdrS");
    let error = fault(&data);
    assert_eq!(error.kind, ElfErrorKind::Compressed);
    let message = error.to_string();
    assert!(
        message.contains("extract-vmlinux") && message.contains("System.map"),
        "{message}"
    );
}

#[test]
fn images_are_told_from_text() {
    let data = good_image().write();
    let mut bzimage = vec![b'M', b'Z'];
    bzimage.resize(0x202, 0);
    bzimage.extend_from_slice(b"HdrS");
    for (head, image) in [
        (&data[..], true),
        (&data[..4], true),
        (&data[..3], false),
        (&bzimage, true),
        (&bzimage[..0x205], false),
        (b"ffffffff81000000 T _stext\n", false),
        (b"", false),
    ] {
        assert_eq!(is_kernel_image(head), image);
    }
}

/// The fields of a section's header, by their place in it.
fn set_section_field(data: &mut [u8], section: usize, field: usize, value: u32) {
    let sections = usize::try_from(u64::from_le_bytes(data[40..48].try_into().unwrap())).unwrap();
    let at = sections + 64 * section + field;
    data[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn faults_of_symtab_say_where() {
    let image = good_image();
    let data = image.write();
    let symtab = Elf::parse(&data).unwrap().symtab.sh_offset(LE);
    let section = image.sections.len() + 1;

    let mut stripped = data.clone();
    set_section_field(&mut stripped, section, 4, elf::SHT_PROGBITS);
    let error = fault(&stripped);
    assert_eq!(error.kind, ElfErrorKind::Stripped);
    assert!(error.to_string().contains("debug package"), "{error}");

    for (value, kind) in [(0, ElfErrorKind::NoStrings), (999, ElfErrorKind::NoStrings)] {
        let mut data = data.clone();
        set_section_field(&mut data, section, 40, value);
        let error = fault(&data);
        assert_eq!((error.offset, error.kind), (symtab, kind));
    }
    // Past the end of the file, and of no whole number of symbols.
    for (field, value) in [(24, u32::MAX), (32, u32::MAX), (32, 25)] {
        let mut data = data.clone();
        set_section_field(&mut data, section, field, value);
        assert_eq!(fault(&data).kind, ElfErrorKind::Damaged(".symtab"));
    }
    let mut strings = data.clone();
    set_section_field(&mut strings, section + 1, 32, u32::MAX);
    assert_eq!(fault(&strings).kind, ElfErrorKind::Damaged(".strtab"));

    let mut names = data.clone();
    let second = usize::try_from(symtab).unwrap() + 2 * 24;
    names[second..second + 4].copy_from_slice(&[0xff; 4]);
    let error = fault(&names);
    assert_eq!(
        (error.offset, error.kind),
        (second as u64, ElfErrorKind::SymbolName { index: 2 })
    );

    let empty = Image {
        marks: Vec::new(),
        ..image.clone()
    };
    assert_eq!(fault(&empty.write()).kind, ElfErrorKind::NoSymbols);
    let mut lost = empty.clone();
    lost.mark(Mark::global("f", 77, 0x10));
    assert_eq!(
        fault(&lost.write()).kind,
        ElfErrorKind::SymbolSection {
            index: 1,
            section: 77
        }
    );
    for name in [&b"two words"[..], b"tab\there", b"caf\xe9", b"line\nfeed"] {
        let mut image = empty.clone();
        image.mark(Mark {
            name: name.into(),
            ..Mark::global("", 1, TEXT)
        });
        assert_eq!(
            fault(&image.write()).kind,
            ElfErrorKind::SymbolName { index: 1 }
        );
    }
}

/// As scripts/kallsyms.c and scripts/mksysmap choose and order them.
#[test]
fn symbols_of_symtab() {
    use elf::{
        STB_GLOBAL as GLOBAL, STB_LOCAL as LOCAL, STB_WEAK as WEAK, STT_FUNC as FUNC,
        STT_OBJECT as OBJECT,
    };
    let mut image = Image::default();
    let (alloc, write) = (elf::SHF_ALLOC, elf::SHF_WRITE);
    let data = || vec![0; 16];
    let code = image.section(
        ".init.text",
        elf::SHT_PROGBITS,
        alloc | elf::SHF_EXECINSTR,
        0x1000,
        data(),
    );
    let rodata = image.section(".rodata", elf::SHT_PROGBITS, alloc, 0x2000, data());
    let init = image.section(
        ".init.data",
        elf::SHT_PROGBITS,
        alloc | write,
        0x3000,
        data(),
    );
    let bss = image.section(".bss", elf::SHT_NOBITS, alloc | write, 0x4000, data());
    let debug = image.section(".comment", elf::SHT_PROGBITS, 0, 0, data());
    for (name, section, bind, kind, address) in [
        ("weak", code, WEAK, FUNC, 0x1000),
        ("__start_mark", code, GLOBAL, 0, 0x1000),
        ("mark_end", code, GLOBAL, 0, 0x1000),
        ("__mark_end", code, GLOBAL, 0, 0x1000),
        ("_two", code, GLOBAL, FUNC, 0x1000),
        ("two", code, LOCAL, FUNC, 0x1000),
        ("one", code, LOCAL, FUNC, 0x1000),
        ("ro", rodata, GLOBAL, OBJECT, 0x2000),
        ("ro_local", rodata, LOCAL, OBJECT, 0x2000),
        ("weak_data", rodata, WEAK, OBJECT, 0x2008),
        ("data", init, GLOBAL, OBJECT, 0x3000),
        ("data_local", init, LOCAL, 0, 0x3000),
        ("bss", bss, GLOBAL, OBJECT, 0x4000),
        ("na\u{ef}ve", bss, LOCAL, OBJECT, 0x4000),
        // And what is left out.
        ("file.c", elf::SHN_ABS, LOCAL, elf::STT_FILE, 0),
        ("", code, LOCAL, elf::STT_SECTION, 0x1000),
        ("constant", elf::SHN_ABS, GLOBAL, 0, 0x1000),
        ("elsewhere", elf::SHN_UNDEF, GLOBAL, 0, 0),
        ("comment", debug, LOCAL, OBJECT, 0),
        ("$x.1", code, LOCAL, 0, 0x1000),
        (".Ltmp1", code, LOCAL, 0, 0x1000),
        ("__crc_f", rodata, LOCAL, 0, 0x2000),
        ("__kstrtabns_f", rodata, LOCAL, 0, 0x2000),
        ("__ARMV7PILongThunk_f", code, LOCAL, FUNC, 0x1000),
        ("f_veneer", code, LOCAL, FUNC, 0x1000),
        ("f.long_branch.1", code, LOCAL, FUNC, 0x1000),
        ("kallsyms_names", rodata, GLOBAL, 0, 0x2000),
        ("L0", code, LOCAL, 0, 0x1000),
        (&"x".repeat(512), code, LOCAL, FUNC, 0x1000),
    ] {
        image.mark(Mark::new(name, section, bind, kind, address));
    }
    let expected = [
        (0x1000, 'T', "mark_end"),
        (0x1000, 't', "one"),
        (0x1000, 't', "two"),
        (0x1000, 'T', "_two"),
        (0x1000, 'T', "__mark_end"),
        (0x1000, 'T', "__start_mark"),
        (0x1000, 'W', "weak"),
        (0x2000, 'R', "ro"),
        (0x2000, 'r', "ro_local"),
        (0x2008, 'V', "weak_data"),
        (0x3000, 'D', "data"),
        (0x3000, 'd', "data_local"),
        (0x4000, 'B', "bss"),
        (0x4000, 'b', "na\u{ef}ve"),
    ]
    .map(|(address, kind, name)| (address, kind, name.to_owned()));
    let found = text(&image.write());
    let in_order: Vec<_> = found.iter().map(|symbol| symbol.2.as_str()).collect();
    assert_eq!(found, expected, "{in_order:?}");
    // The longest name that a kernel can have.
    let longest = "x".repeat(511);
    let mut long = image.clone();
    long.mark(Mark::global(&longest, code, 0x1001));
    assert!(text(&long.write()).iter().any(|symbol| symbol.2 == longest));

    // Per-CPU data counted from 0 is absolute.
    let per_cpu = image.section(".data..percpu", elf::SHT_PROGBITS, alloc | write, 0, data());
    image.mark(Mark::global("__per_cpu_start", per_cpu, 0));
    image.mark(Mark::new("this_cpu", per_cpu, LOCAL, OBJECT, 8));
    image.mark(Mark::global("__per_cpu_end", per_cpu, 16));
    let found = text(&image.write());
    assert_eq!(
        found[..3],
        [
            (0, 'A', "__per_cpu_start".to_owned()),
            (8, 'A', "this_cpu".into()),
            (16, 'A', "__per_cpu_end".into())
        ]
    );
    assert_eq!(found[3..], expected);
}

/// Every symbol of this very program, as nm(1) sees it.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped should say so")]
fn agrees_with_nm() {
    let program = std::env::current_exe().unwrap();
    let Ok(nm) = Command::new("nm").arg("-n").arg(&program).output() else {
        eprintln!("skipped: there is no nm here");
        return;
    };
    assert!(nm.status.success());
    let mut expected: Vec<_> = str::from_utf8(&nm.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| {
            // Undefined ones have a blank for an address.
            let (address, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            let kept = !matches!(kind, "a" | "A" | "n" | "N" | "u" | "w" | "U");
            let local = name.starts_with('$') || name.starts_with(".L");
            (kept && !local && name.len() < 512)
                .then(|| (address, kind.parse().unwrap(), name.to_owned()))
        })
        .collect();
    let ElfSymbols::Text(found) = vmlinux(&program).unwrap() else {
        unreachable!("a program with kallsyms tables");
    };
    let mut found: Vec<(u64, char, String)> = found
        .iter()
        .map(|symbol| (symbol.address, symbol.kind.into(), symbol.name.to_owned()))
        .collect();
    expected.sort();
    found.sort();
    assert!(found.len() > 1_000, "{}", found.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vmlinux");
    let error = vmlinux(&path).unwrap_err();
    assert!(
        matches!(&error, SourceError::Io { call: "open", path: p, .. } if *p == path),
        "{error:?}"
    );
    let image = good_image();
    fs::write(&path, image.write()).unwrap();
    assert!(matches!(vmlinux(&path).unwrap(), ElfSymbols::Table(_)));

    fs::write(&path, &image.write()[..1000]).unwrap();
    let error = vmlinux(&path).unwrap_err();
    assert!(!error.is_environment());
    let message = error.to_string();
    assert!(
        message.starts_with(path.to_str().unwrap()) && message.ends_with("System.map"),
        "{message}"
    );
    let SourceError::Elf { source, .. } = &error else {
        unreachable!("{error:?}");
    };
    assert_eq!(source.kind, ElfErrorKind::Damaged("the table of sections"));

    // Nothing to map: an empty file, and one without an end.
    fs::write(&path, []).unwrap();
    for path in [path.as_path(), Path::new("/dev/zero")] {
        let error = vmlinux(path).unwrap_err();
        assert!(
            matches!(&error, SourceError::Elf { source, .. } if source.kind == ElfErrorKind::NotElf),
            "{error:?}"
        );
    }
    let error = vmlinux(folder.path()).unwrap_err();
    assert!(
        matches!(error, SourceError::Io { call: "mmap", .. }),
        "{error:?}"
    );
}
