//! Whatever is read, there is an error or a value that holds: no panic, and no
//! allocation out of proportion.
//!
//! Each test damages good inputs in the same ways in each run. More of them,
//! and others:
//!
//! ```text
//! KSYMS_FUZZ_ITERATIONS=1000000 KSYMS_FUZZ_SEED=3000 cargo test --test fuzz
//! ```
//!
//! A further format is a further test: good inputs, and a closure that reads a
//! damaged one.

mod btf;
mod engine;
mod guard;
#[path = "../../src/source/vmlinux/tests/image.rs"]
mod image;
mod parts;

use std::{collections::BTreeSet, ops::ControlFlow};

use engine::Target;
use image::{Image, Mark, kernel};
use ksyms::{
    kallsyms::{Addresses, NameBuffer, Plan, Step, SymbolTable, Symbols, TableParts},
    select::{Patterns, select},
    source::{Blacklist, ElfSymbols, KcoreError, Layouts, Locations, Names, Traceable, VmcoreInfo},
};

const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
0000000000006000 A cpu_tss_rw
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000a20 t __pfx___do_sys_getpid
ffffffff81000a30 t __do_sys_getpid
ffffffff81000a30 T __x64_sys_getpid
ffffffff812a6b40 t s_next
ffffffff812e2d50 t s_next
ffffffff8150e3b0 t tcp_ack_update_rtt.isra.34
ffffffff8150f000 t foo.cold
ffffffff82000000 R na\u{ef}ve_\u{6f22}
ffffffffc0a25120 d $d\t[openvswitch]
ffffffffc0a25120 t ovs_init\t[openvswitch]
ffffffffc1682010 T nf_nat_init\t[nf_nat]\r
ffffffffc003b960 t bpf_prog_7cc47bbf07148bfe_hid_tail_call [bpf]
";

const WORDS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\t[",
    b" [m]",
    b"]",
    b" ",
    b"\t",
    b"\0",
    b"$x.1",
    b"0000000000000000 t ",
    b"ffffffffffffffff T f\n",
    b"1ffffffff81000000 ",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xe6\xbc\xa2",
    b"__ftrace_invalid_address___32",
];

/// Symbols that every lookup finds where it should.
fn check_symbols(symbols: &Symbols) {
    assert_eq!(symbols.iter().count(), symbols.len());
    let mut before = 0;
    for symbol in symbols {
        assert!(symbol.address >= before && !symbol.name.is_empty());
        before = symbol.address;
    }
    for symbol in symbols.iter().step_by(1 + symbols.len() / 16) {
        assert!(symbols.at(symbol.address).any(|other| other == symbol));
        assert!(symbols.named(symbol.name).any(|other| other == symbol));
        assert!(
            symbol
                .module
                .is_none_or(|module| symbols.has_module(module))
        );
    }
}

/// A table of which all lookups say the same.
fn check_table(table: &SymbolTable) {
    let mut all = Vec::new();
    let end: ControlFlow<()> = table.walk(|index, symbol| {
        assert_eq!(index, all.len());
        all.push((symbol.address, symbol.kind, symbol.name.to_owned()));
        ControlFlow::Continue(())
    });
    assert!(end.is_continue());
    assert_eq!(all.len(), table.len());
    let placed: BTreeSet<_> = (0..table.len()).map(|place| table.placed(place)).collect();
    assert_eq!(placed.len(), table.len());

    let mut queries = vec!["", "tcp_", "s_next"];
    let mut buffer = NameBuffer::default();
    for index in [0, all.len() / 2, all.len() - 1] {
        let (address, kind, name) = &all[index];
        assert_eq!((table.address(index), table.kind(index)), (*address, *kind));
        assert_eq!(table.name(index, &mut buffer), name);
        let place = table.at(*address).expect("an address of the table");
        assert_eq!((table.address(place.index), place.offset), (*address, 0));
        assert!(table.describe(address.wrapping_add(1)).is_some() || *address == u64::MAX);
        queries.push(name);
    }
    let expected = |query: &str| -> Vec<usize> {
        (0..all.len())
            .filter(|&index| all[index].2 == query)
            .collect()
    };
    let batch = table.batch_start();
    for query in &queries {
        let expected = expected(query);
        for step in Step::ALL {
            let range = table.range(step, query);
            let found: Vec<_> = range.map(|place| table.placed(place)).collect();
            assert_eq!(found, expected, "{step:?} {query:?}");
            assert_eq!(table.first(step, query), expected.first().copied());
        }
        let prefixed = all
            .iter()
            .filter(|symbol| symbol.2.starts_with(query))
            .count();
        assert_eq!(table.prefixed(query).len(), prefixed, "{query:?}");
    }
    drop(batch);
    for plan in [Plan::Search, Plan::Pass, Plan::Index] {
        let resolved = table.resolve_by(plan, &queries);
        for (query, found) in queries.iter().zip(resolved.iter()) {
            let found: Vec<_> = found.iter().map(|&index| index as usize).collect();
            assert_eq!(found, expected(query), "{plan:?} {query:?}");
        }
    }
    let _ = (table.at(0), table.describe(u64::MAX));
    let again = SymbolTable::from_parts(table.to_parts()).expect("the parts of a table");
    assert_eq!(again.len(), table.len());
}

fn text_target(name: &'static str, iterations: u64, seeds: &[&str]) -> Target {
    let mut target = Target::new(
        name,
        iterations,
        seeds.iter().map(|seed| seed.as_bytes().into()).collect(),
    );
    target.words = WORDS;
    target
}

#[test]
fn text() {
    text_target("text", 20_000, &[TEXT, &TEXT[..117], "10 T f\n"]).feed(|input| {
        let symbols = Symbols::parse(input);
        symbols.iter().for_each(check_symbols);
        symbols.is_ok()
    });
}

/// Symbols of any kind as a table are the same symbols.
#[test]
fn encoder() {
    let mut target = text_target("encoder", 500, &[TEXT]);
    // It has a list for each pair of bytes: 1.5 MiB.
    target.fixed = 2 << 20;
    target.feed(|input| {
        let Ok(symbols) = Symbols::parse(input) else {
            return false;
        };
        let Ok(table) = SymbolTable::encode(&symbols) else {
            return false;
        };
        let mut symbols = symbols.iter();
        let end = table.walk(|_, found| {
            let symbol = symbols.next().expect("no more symbols than there were");
            if (found.address, found.kind, found.name) == (symbol.address, symbol.kind, symbol.name)
            {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break((symbol.address, symbol.name))
            }
        });
        assert_eq!(end, ControlFlow::Continue(()));
        assert_eq!(symbols.next(), None);
        true
    });
}

#[test]
fn traceable() {
    let functions = "ffffffff81000134 do_one_initcall\nffffffffc0a02400 fn [mod]\r\n\
        ffffffff81000010 __ftrace_invalid_address___16\nffffffff81000034 t_stop\n";
    let names = "do_one_initcall\nfn [mod]\r\n__ftrace_invalid_address___16\nt_stop\nt_stop\n";
    text_target("traceable", 20_000, &[functions, names]).feed(|input| {
        let locations = Locations::parse(input);
        if let Ok(locations) = &locations {
            assert!(locations.as_slice().is_sorted());
            let _ = locations.covers(0, u64::MAX);
        }
        let names = Names::parse(input);
        let any = locations.is_ok() || names.is_ok();
        if let Ok(names) = names {
            let _ = names.count("t_stop", Some("mod"));
            let symbols = Symbols::parse(TEXT).expect("good symbols");
            let patterns = Patterns::parse(["*"]).expect("a good pattern");
            let _ = select(&symbols, &Traceable::Names(Box::new(names)), &patterns);
        }
        any
    });
}

#[test]
fn blacklist() {
    let text = "0xffffffff81000000-0xffffffff81000010\tname\n\
        0xffffffff81000100-0xffffffff81000140\ta\n0x0-0x0\tf\n";
    text_target("blacklist", 20_000, &[text]).feed(|input| {
        let blacklist = Blacklist::parse(input);
        if let Ok(Some(blacklist)) = &blacklist {
            let _ = (blacklist.contains(0), blacklist.contains(u64::MAX));
        }
        blacklist.is_ok()
    });
}

/// A pattern a line, each also as it would be in a file.
#[test]
fn patterns() {
    let seeds = [
        "tcp_*\n!tcp_ca_*\n*\n",
        "nf_nat:[a-z]*\nx\\:y\na::b\nvmlinux:\n@list\n!@list\n",
        "/^tcp_v[46]_/\nm:/(a|b)+/\n# note\n",
    ];
    let mut target = text_target("patterns", 1_000, &seeds);
    target.words = &[
        b"*", b"?", b"[", b"]", b"[!", b"\\", b"/", b"(", b")", b"{9}", b"!", b"@", b":", b"\n",
    ];
    // The regex crate takes 420 bytes for each character while it parses, and
    // bounds what it then makes of a pattern at 10 MiB.
    target.per_byte = 1_024;
    target.fixed = 16 << 20;
    let symbols = Symbols::parse(TEXT).expect("good symbols");
    target.feed(|input| {
        let text = String::from_utf8_lossy(input);
        let patterns = Patterns::parse_with(text.lines(), |_| Ok(text.clone().into()));
        if let Ok(patterns) = &patterns {
            let _ = select(&symbols, &Traceable::Unknown, patterns);
        }
        for line in text.lines() {
            if let Ok(patterns) = Patterns::parse_with([line], |_| Ok(String::new())) {
                let _ = (patterns.takes_everything(), patterns.positive().count());
            }
        }
        patterns.is_ok()
    });
}

/// The tables of a kernel, in each form of addresses.
fn tables() -> Vec<TableParts> {
    let mut text = TEXT.to_owned();
    for n in 0..300 {
        let address = image::RODATA + 16 * n;
        let line = format!("{address:x} r word_{}_{}\n", n % 7, n % 90);
        text.push_str(&line);
    }
    let line = format!("{:x} r {}\n", image::RODATA + 0x8000, "long_".repeat(102));
    text.push_str(&line);
    let symbols = Symbols::parse(text).expect("good symbols");
    let core = symbols.iter().filter(|symbol| symbol.module.is_none());
    let with_per_cpu = SymbolTable::encode(core.clone()).expect("a table");
    let without = SymbolTable::encode(core.filter(|symbol| symbol.kind != b'A')).expect("a table");
    let mut tables = Vec::new();
    for table in [&with_per_cpu, &without] {
        let _ = table.placed(0);
        tables.push(table.to_parts());
    }
    let parts = without.to_parts();
    let addresses: Vec<_> = (0..without.len())
        .map(|index| without.address(index))
        .collect();
    let place = |(at, address): (u64, &u64)| address.wrapping_sub(at).cast_signed();
    let entries = (image::OFFSETS..).step_by(4);
    let places = entries.zip(&addresses).map(place);
    let above = addresses
        .iter()
        .map(|address| u32::try_from(address - image::TEXT));
    for addresses in [
        Addresses::Absolute(addresses.clone()),
        Addresses::PlaceRelative {
            start: image::OFFSETS,
            offsets: places
                .map(|place| i32::try_from(place).expect("near"))
                .collect(),
        },
        Addresses::Relative {
            base: image::TEXT,
            offsets: above
                .map(|above| above.expect("near").cast_signed())
                .collect(),
            absolute_percpu: false,
        },
    ] {
        tables.push(TableParts {
            addresses,
            ..parts.clone()
        });
    }
    tables
}

#[test]
fn table() {
    let seeds = tables().iter().map(parts::pack).collect();
    Target::new("table", 4_000, seeds).feed(|input| {
        let parts = parts::unpack(input);
        let _ = TableParts::names_end(&parts.names, parts.count);
        let table = SymbolTable::from_parts(parts);
        table.iter().for_each(check_table);
        table.is_ok()
    });
}

/// Where a file has its header, its sections' headers, its symbols, and the
/// number of them that its tables have.
fn spots(image: &Image, file: &[u8]) -> Vec<usize> {
    let number = |at: usize| {
        let bytes = file[at..at + 8].try_into().expect("eight bytes");
        usize::try_from(u64::from_le_bytes(bytes)).expect("an offset")
    };
    let headers = number(40);
    let offset_of = |section: usize| number(headers + 64 * section + 24);
    let symbols = offset_of(image.sections.len() + 1);
    let symbols_end = symbols + 24 * (1 + image.marks.len());
    let mut spots: Vec<_> = (0..64).step_by(2).collect();
    spots.extend((headers..file.len()).step_by(8));
    spots.extend((symbols..symbols_end).step_by(8));
    let mut marks = image.marks.iter();
    if let Some(mark) = marks.find(|mark| mark.name == b"kallsyms_num_syms") {
        let start = offset_of(usize::from(mark.section));
        let at = start + usize::try_from(mark.address - image::RODATA).expect("an offset");
        spots.extend([at; 32]);
    }
    spots
}

#[test]
fn elf() {
    let mut images: Vec<_> = tables().iter().map(kernel).collect();
    // Without tables, .symtab counts.
    let mut image = kernel(&tables()[0]);
    image.marks.retain(|mark| mark.name != b"kallsyms_names");
    for n in 0..50 {
        let address = image::TEXT + u64::from(n);
        image.mark(Mark::global(&format!("f{n}"), 1 + n % 3, address));
    }
    images.push(image);
    let seeds = images.iter().map(Image::write).collect();
    let mut target = Target::new("elf", 4_000, seeds);
    let files = images.iter().zip(&target.seeds);
    target.spots = files.map(|(image, file)| spots(image, file)).collect();
    target.feed(|input| {
        let symbols = ElfSymbols::parse(input);
        match &symbols {
            Ok(ElfSymbols::Table(table)) => check_table(table),
            Ok(ElfSymbols::Text(symbols)) => check_symbols(symbols),
            Err(error) => assert!(error.to_string().len() < 400, "{error}"),
        }
        symbols.is_ok()
    });
}

/// Every accessor, with names that are there, cut short, and absent.
#[test]
fn vmcoreinfo() {
    let note = "OSRELEASE=6.12.48+deb13-amd64\nBUILD-ID=9a0c\nPAGESIZE=4096\n\
        SYMBOL(init_uts_ns)=ffffffff83222ec0\nOFFSET(uts_namespace.name)=0\n\
        SYMBOL(_stext)=ffffffff81000000\nSIZE(page)=64\nOFFSET(page.flags)=0\n\
        LENGTH(zone.free_area)=11\nNUMBER(phys_base)=-16777216\n\
        NUMBER(KERNEL_IMAGE_SIZE)=0x40000000\nSYMBOL(kallsyms_names)=ffffffff82a5f5d8\n\
        KERNELOFFSET=0\nCRASHTIME=1700000000\n";
    let mut target = text_target("vmcoreinfo", 4_000, &[note, "SYMBOL(_stext)=10"]);
    target.words = &[
        b"\n",
        b"\r\n",
        b"=",
        b")=",
        b"(",
        b")",
        b"SYMBOL(_stext)=",
        b"NUMBER(",
        b"0x",
        b"-",
        b"\0",
        b"\xc3",
        b"\xef\xbb\xbf",
        b"ffffffffffffffff",
        b"99999999999999999999",
    ];
    target.feed(|input| {
        let info = VmcoreInfo::parse(input);
        for name in [
            "",
            "(",
            "_stext",
            "_ste",
            "page",
            "page.flags",
            "\n",
            "\u{fffd}",
        ] {
            let _ = (info.get(name), info.symbol(name), info.size(name));
            let _ = (info.offset(name), info.length(name), info.number(name));
        }
        // A value is of one line, which the text has.
        let text = String::from_utf8_lossy(input);
        if let Some(value) = info.get("OSRELEASE") {
            let line = format!("OSRELEASE={value}");
            assert!(text.lines().any(|other| other == line), "{line}");
        }
        let found = info.symbol("_stext");
        assert!(found.is_none() || text.contains("SYMBOL(_stext)="));
        found == Some(0xffff_ffff_8100_0000)
            && info.number("phys_base") == Some(-16_777_216)
            && info.size("page") == Some(64)
    });
}

/// Type information of which the lengths, counts and types matter most.
#[test]
fn btf() {
    let seed = btf::kernel();
    let mut target = Target::new("btf", 20_000, vec![seed.bytes]);
    target.spots = vec![seed.spots];
    target.feed(|input| match Layouts::parse(input) {
        Ok(_) => true,
        Err(KcoreError::Btf { offset, .. }) => {
            assert!(offset <= input.len(), "{offset}");
            false
        }
        Err(error) => panic!("{error}"),
    });
}
