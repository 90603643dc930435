//! Inputs that a user may hand over, in each form in which symbols come.
//!
//! What tools of this kind have got wrong, 14 inputs, is in
//! `src/select/tests.rs` (`input_1` to `input_14`); here are the files that are
//! not what they should be.

use std::{error::Error, fs, io::Write as _, ops::ControlFlow};

use ksyms::{
    kallsyms::{
        Addresses, ParseErrorKind, SymbolTable, Symbols, TableError, TableErrorKind, TableParts,
    },
    source::{SourceError, kallsyms_from, vmlinux},
};

/// What reading a file of these bytes as symbols comes to.
fn read(bytes: &[u8]) -> Result<Symbols, SourceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let result = kallsyms_from(file.path());
    if let Err(error) = &result {
        let message = error.to_string();
        assert!(message.contains(file.path().to_str().unwrap()), "{message}");
    }
    result
}

/// The line that is at fault, and how.
fn fault(bytes: &[u8]) -> (usize, ParseErrorKind) {
    let error = read(bytes).unwrap_err();
    let message = error.to_string();
    match error {
        SourceError::Malformed { source, .. } => {
            assert!(message.contains(&format!(":{} ", source.line)), "{message}");
            assert!(source.to_string().contains("ADDRESS TYPE NAME [MODULE]"));
            (source.line, source.kind)
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn files_that_are_no_text() {
    assert_eq!(fault(b""), (1, ParseErrorKind::Empty));
    assert_eq!(fault(b"\n"), (1, ParseErrorKind::MissingAddress));
    // A gzip file, UTF-16, zeros without an end.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xed\xbd\n\x07x T f\n";
    let utf_16: Vec<u8> = "ffffffff81000000 T f\n"
        .bytes()
        .flat_map(|byte| [byte, 0])
        .collect();
    for bytes in [&gzip[..], &utf_16, &[0; 4096]] {
        let (line, kind) = fault(bytes);
        assert_eq!(line, 1);
        assert!(
            matches!(
                kind,
                ParseErrorKind::BadAddress(_) | ParseErrorKind::MissingKind
            ),
            "{kind}"
        );
    }
    // An ELF file, of which the end is missing.
    let elf = fs::read(std::env::current_exe().unwrap()).unwrap();
    let error = read(&elf[..4096]).unwrap_err();
    assert!(matches!(error, SourceError::Elf { .. }), "{error}");
}

#[test]
fn files_that_were_cut_off() {
    let text = b"ffffffff81000000 T _stext\nffffffff81000a30 t s_next\n";
    assert_eq!(read(text).unwrap().len(), 2);
    for len in 27..text.len() {
        assert_eq!(fault(&text[..len]), (2, ParseErrorKind::Truncated), "{len}");
    }
}

/// Any mix of ends of lines and of what stands before a module, in any order,
/// is the same table.
#[test]
fn files_that_were_copied() {
    let lines = [
        "ffffffff81000000 T _stext",
        "ffffffff81000a30 t s_next",
        "ffffffffc1682010 T nf_nat_init\t[nf_nat]",
        "ffffffffc1682020 t nf_nat_exit\t[nf_nat]",
    ];
    let all = |symbols: &Symbols| -> Vec<_> {
        let module = |module: Option<&str>| module.map(str::to_owned);
        let symbols = symbols.iter();
        symbols
            .map(|s| (s.address, s.kind, s.name.to_owned(), module(s.module)))
            .collect()
    };
    let expected = all(&read((lines.join("\n") + "\n").as_bytes()).unwrap());
    assert_eq!(expected[3].3.as_deref(), Some("nf_nat"));
    for turn in 0..lines.len() {
        for (end, blank) in [
            ("\r\n", "\t"),
            ("\n", " "),
            ("\r\n", "  \t "),
            (" \r\n", " "),
        ] {
            let mut lines = lines.map(|line| line.replace('\t', blank) + end);
            lines.rotate_left(turn);
            assert_eq!(all(&read(lines.concat().as_bytes()).unwrap()), expected);
        }
    }
}

#[test]
fn addresses_that_are_hidden() {
    let error = read(b"0000000000000000 T _stext\n0000000000000000 t s_next\n").unwrap_err();
    assert!(matches!(error, SourceError::NoAddresses { .. }), "{error}");
    // Not those of per-CPU data, which are what they are.
    let text = b"0000000000000000 A fixed_percpu_data\nffffffff81000000 T _stext\n";
    assert!(!read(text).unwrap().addresses_hidden());
}

#[test]
fn longest_names_in_text_and_table() {
    let ascii = "x".repeat(511);
    let utf_8 = "\u{6f22}".repeat(170) + "x";
    assert_eq!(utf_8.len(), 511);
    let text = format!("10 T {ascii}\n20 t {utf_8}\t[m]\n30 t caf\u{e9}\n");
    let symbols = read(text.as_bytes()).unwrap();
    let table = SymbolTable::encode(&symbols).unwrap();
    for (address, name) in [(0x10, &*ascii), (0x20, &utf_8), (0x30, "caf\u{e9}")] {
        assert_eq!(symbols.named(name).next().unwrap().address, address);
        let index = table.resolve(name).next().unwrap();
        assert_eq!(table.address(index), address);
        assert_eq!(
            table
                .resolve(&name.replacen(['x', '\u{6f22}', 'c'], "", 1))
                .count(),
            0
        );
    }
    // One byte more is a text's, but no kernel's.
    let symbols = read(format!("10 T {ascii}x\n").as_bytes()).unwrap();
    let error = SymbolTable::encode(&symbols).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::NameTooLong { index: 0 });
}

/// Two symbols, `Ta` and `tb`, of which every letter is a token.
fn parts() -> TableParts {
    let token_table = (0..=255)
        .flat_map(|code: u8| [code.max(1) & 0x7f, 0])
        .collect();
    TableParts {
        names: vec![2, b'T', b'a', 2, b't', b'b'],
        count: 2,
        token_table,
        token_index: (0..256).map(|code| 2 * code).collect(),
        seqs_of_names: Some(vec![0, 0, 0, 0, 0, 1]),
        markers: Some(vec![0]),
        addresses: Addresses::Absolute(vec![0x10, 0x20]),
    }
}

fn table_fault(change: impl FnOnce(&mut TableParts)) -> TableErrorKind {
    let mut parts = parts();
    change(&mut parts);
    let error: TableError = SymbolTable::from_parts(parts).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains(": read") || message.contains(": keep"),
        "{message}"
    );
    error.kind
}

#[test]
fn tables_that_are_damaged() {
    use TableErrorKind as Kind;
    let table = SymbolTable::from_parts(parts()).unwrap();
    let names = table.walk(|index, symbol| match (index, symbol.kind, symbol.name) {
        (0, b'T', "a") | (1, b't', "b") => ControlFlow::Continue(()),
        _ => ControlFlow::Break(index),
    });
    assert_eq!(names, ControlFlow::Continue(()));

    assert_eq!(table_fault(|parts| parts.count = 0), Kind::Empty);
    // A length past the end, of one byte and of two.
    let past_the_end = Kind::NameTruncated {
        index: 1,
        offset: 3,
        len: 6,
    };
    assert_eq!(table_fault(|parts| parts.names[3] = 0x7f), past_the_end);
    assert_eq!(table_fault(|parts| parts.names[3] = 0xff), past_the_end);
    // A token past the table, and one without an end.
    let outside = Kind::TokenOutside {
        token: 0x54,
        offset: 512,
        len: 512,
    };
    assert_eq!(table_fault(|parts| parts.token_index[0x54] = 512), outside);
    let endless = Kind::TokenUnterminated {
        token: 255,
        offset: 510,
    };
    assert_eq!(
        table_fault(|parts| parts.token_table.truncate(511)),
        endless
    );
    // Unsorted, and all at 0, which is in order.
    let order = Kind::AddressOrder { index: 1 };
    let unsorted = Addresses::Absolute(vec![0x20, 0x10]);
    assert_eq!(table_fault(|parts| parts.addresses = unsorted), order);
    let mut zeros = parts();
    zeros.addresses = Addresses::Absolute(vec![0, 0]);
    assert_eq!(
        SymbolTable::from_parts(zeros).unwrap().at(0).unwrap().index,
        0
    );
    // Not UTF-8, though the tokens may be halves of it.
    let mut halves = parts();
    halves.token_table[2 * 0x61] = 0xc3;
    assert_eq!(
        SymbolTable::from_parts(halves).unwrap_err().kind,
        Kind::NotUtf8 { index: 0 }
    );
}

/// Sizes that are only claimed, and those that are there.
#[test]
#[cfg(target_pointer_width = "64")]
fn four_gibibytes() {
    // Zeros that are never looked at, so that they take no memory.
    let zeros = || vec![0; 1 << 32];
    let kind = table_fault(|parts| parts.names = zeros());
    assert_eq!(kind, TableErrorKind::NamesTooLarge(1 << 32));
    let kind = table_fault(|parts| parts.count = 0xffff_ffff);
    assert_eq!(kind, TableErrorKind::TooManySymbols(0xffff_ffff));
    let kind = table_fault(|parts| parts.count = 1 << 24);
    assert_eq!(
        kind,
        TableErrorKind::AddressCount {
            expected: 1 << 24,
            found: 2
        }
    );

    // A file of 4 GiB, of which nothing is on the disk.
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 32).unwrap();
    let error = kallsyms_from(file.path()).unwrap_err();
    assert!(matches!(error, SourceError::Malformed { .. }), "{error}");
    let error = vmlinux(file.path()).unwrap_err();
    let kind = error.source().unwrap().to_string();
    assert!(kind.contains("no ELF file"), "{kind}");
}
