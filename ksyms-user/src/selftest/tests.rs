use std::{fmt::Write as _, num::NonZeroUsize};

use super::*;
use crate::kallsyms::{Addresses, TableParts};

const ONCE: NonZeroUsize = NonZeroUsize::MIN;

/// Symbols with aliases, repeated names, an absolute one, and a long name.
fn symbols() -> Symbols {
    let mut text = String::new();
    writeln!(text, "0000000000001000 A cpu_debug_store").unwrap();
    for number in 0..600_u64 {
        let address = 0xffff_ffff_8100_0000 + 16 * (number / 2 + number / 5);
        writeln!(text, "{address:016x} t tcp_function_{}", number % 370).unwrap();
    }
    let long = "x".repeat(300);
    writeln!(text, "ffffffff82000000 D {long}").unwrap();
    Symbols::parse(text).unwrap()
}

fn parts() -> TableParts {
    SymbolTable::encode(&symbols()).unwrap().to_parts()
}

fn test(table: &SymbolTable, expected: &TableParts) -> Selftest {
    run(table, Expected::decode(expected), "a test", None, ONCE)
}

fn failed(selftest: &Selftest) -> Vec<&str> {
    let failed = selftest.checks().iter().filter(|check| check.wrong > 0);
    failed.map(|check| &*check.name).collect()
}

fn text(selftest: &Selftest, format: Format) -> String {
    let mut out = Vec::new();
    selftest.write(format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_right_table_passes() {
    let symbols = symbols();
    let table = SymbolTable::encode(&symbols).unwrap();
    let selftest = selftest(
        &table,
        "a test",
        Some(&symbols),
        NonZeroUsize::new(2).unwrap(),
    );
    assert!(selftest.passed(), "{:?}", selftest.differences());
    assert!(selftest.differences().is_empty());
    let answers = |name: &str| {
        let mut checks = selftest.checks().iter();
        checks.find(|check| check.name == name).unwrap().answers
    };
    let count = table.len() as u64;
    for name in [
        "step1/hit",
        "step4+batch/hit",
        "fast/hit",
        "number",
        "placed",
    ] {
        assert_eq!(answers(name), 2 * count, "{name}");
    }
    assert_eq!(answers("walk"), 2 * (count + 1));
    assert_eq!(answers("fast/matches"), 2 * (370 + 2));
    assert_eq!(answers("encode"), count + 1);
    assert_eq!(answers("addr/first"), answers("addr/last") + 2);
    assert!(text(&selftest, Format::Table).ends_with("\nPASS\n"));
}

/// Before the first symbol there is none, if there is such an address.
#[test]
fn before_the_first_symbol() {
    let asked = |text: &str| {
        let symbols = Symbols::parse(text).unwrap();
        let table = SymbolTable::encode(&symbols).unwrap();
        let selftest = selftest(&table, "a test", Some(&symbols), ONCE);
        assert!(selftest.passed(), "{:?}", selftest.differences());
        let mut checks = selftest.checks().iter();
        checks.any(|check| check.name == "addr/before")
    };
    assert!(asked("ffffffff81000000 T _stext\n"));
    assert!(!asked(
        "0000000000000000 A zero\nffffffff81000000 T _stext\n"
    ));
}

#[test]
fn every_encoding_of_addresses_is_decoded() {
    let addresses: Vec<u64> = symbols().iter().map(|symbol| symbol.address).collect();
    let base = 0xffff_ffff_8100_0000_u64;
    let start = 0xffff_ffff_8180_0000_u64;
    let near: Vec<u64> = addresses.iter().map(|&a| a.max(base)).collect();
    let offset = |offset: u64| i32::try_from(offset.cast_signed()).unwrap();
    let numbered = || near.iter().zip(0_u64..);
    for encoded in [
        Addresses::Absolute(addresses.clone()),
        Addresses::Relative {
            base,
            offsets: near.iter().map(|a| offset(a - base)).collect(),
            absolute_percpu: false,
        },
        Addresses::PlaceRelative {
            start,
            offsets: numbered()
                .map(|(a, number)| offset(a.wrapping_sub(start + 4 * number)))
                .collect(),
        },
    ] {
        let parts = TableParts {
            addresses: encoded,
            ..parts()
        };
        let expected = Expected::decode(&parts).unwrap();
        let is_absolute = matches!(parts.addresses, Addresses::Absolute(_));
        assert_eq!(
            &expected.addresses,
            if is_absolute { &addresses } else { &near }
        );
        let table = SymbolTable::from_parts(parts.clone()).unwrap();
        let selftest = test(&table, &parts);
        assert!(selftest.passed(), "{:?}", selftest.differences());
    }
}

/// One letter of some tokens differs between what is looked up and what is
/// decoded: every way to look up must tell.
#[test]
fn a_wrong_token_fails() {
    let parts = parts();
    let mut wrong = parts.clone();
    // That of the first code of symbol 1, in whose name it begins.
    let code = wrong.names[1 + usize::from(wrong.names[0]) + 1];
    let start = usize::from(wrong.token_index[usize::from(code)]);
    assert_eq!(wrong.token_table[start..start + 4], *b"ttcp");
    wrong.token_table[start + 1] = b'~';
    let selftest = test(&SymbolTable::from_parts(wrong).unwrap(), &parts);
    assert!(!selftest.passed());
    let failed = failed(&selftest);
    for name in [
        "step1/hit",
        "step2/hit",
        "step3/hit",
        "step4/hit",
        "step3+batch/hit",
        "step4+batch/hit",
        "fast/hit",
        "step1/matches",
        "fast/matches",
        "batch/search",
        "batch/pass",
        "batch/index",
        "walk",
        "walk+batch",
        "number",
        "addr/first",
        "addr/last",
    ] {
        assert!(
            failed.contains(&name),
            "{name} did not fail; {failed:?} did"
        );
    }
    assert!(!failed.contains(&"fast/miss"), "{failed:?}");
    let text = text(&selftest, Format::Table);
    assert!(text.ends_with("\nFAIL\n"), "{text}");
    assert!(text.contains("found None, expected Some("), "{text}");
}

#[test]
fn a_wrong_address_or_order_fails() {
    let parts = parts();
    let mut wrong = parts.clone();
    // One byte further: still in order.
    let mut addresses: Vec<u64> = symbols().iter().map(|symbol| symbol.address).collect();
    *addresses.last_mut().unwrap() += 1;
    wrong.addresses = Addresses::Absolute(addresses);
    let selftest = test(&SymbolTable::from_parts(wrong).unwrap(), &parts);
    assert_eq!(
        failed(&selftest),
        ["walk+batch", "walk", "number", "addr/first", "addr/last"]
    );

    // A name that is expected elsewhere in name order.
    let table = SymbolTable::from_parts(parts.clone()).unwrap();
    let mut expected = Expected::decode(&parts).unwrap();
    expected.names[0] = "zzz".to_owned();
    let selftest = run(&table, Ok(expected), "a test", None, ONCE);
    // All places move: of many differences in a check three are told.
    let mut checks = selftest.checks().iter();
    let placed = checks.find(|check| check.name == "placed").unwrap();
    assert!(placed.wrong > 3, "{placed:?}");
    let told = selftest.differences().iter();
    assert_eq!(told.filter(|line| line.starts_with("placed: ")).count(), 3);
}

#[test]
fn what_was_encoded_is_compared() {
    let table = SymbolTable::from_parts(parts()).unwrap();
    let other = Symbols::parse(b"ffffffff81000000 T one\n").unwrap();
    let selftest = selftest(&table, "a test", Some(&other), ONCE);
    assert_eq!(failed(&selftest), ["encode"]);
    assert_eq!(selftest.wrong(), 2);
}

#[test]
fn parts_that_cannot_be_decoded_fail() {
    let table = SymbolTable::from_parts(parts()).unwrap();
    let cut = |change: fn(&mut TableParts)| {
        let mut parts = parts();
        change(&mut parts);
        let selftest = test(&table, &parts);
        assert_eq!(failed(&selftest), ["decode"]);
        selftest.differences().join("\n")
    };
    let cut_off = cut(|parts| parts.names.truncate(parts.names.len() / 2));
    assert!(cut_off.contains("is cut off"), "{cut_off}");
    let no_tokens = cut(|parts| parts.token_index.clear());
    assert!(no_tokens.contains("symbol 0 is cut off"), "{no_tokens}");
    let no_addresses = cut(|parts| parts.addresses = Addresses::Absolute(Vec::new()));
    assert!(
        no_addresses.contains("symbol 0 has no address"),
        "{no_addresses}"
    );
}

#[test]
fn documents_say_what_was_checked() {
    let selftest = test(&SymbolTable::from_parts(parts()).unwrap(), &parts());
    let document: serde_json::Value = serde_json::from_str(&text(&selftest, Format::Json)).unwrap();
    assert_eq!(document["schema"], "ksyms-selftest/1");
    assert_eq!(document["result"], "PASS");
    assert_eq!(document["checks"][0]["name"], "step1/hit");
    assert_eq!(document["checks"][0]["wrong"], 0);
    assert!(document["checks"][0]["avg_ns"].as_u64() >= document["checks"][0]["min_ns"].as_u64());
    let csv = text(&selftest, Format::Csv);
    assert!(
        csv.starts_with("name,answers,wrong,min_ns,avg_ns\nstep1/hit,602,0,"),
        "{csv}"
    );
}

#[test]
fn misses_are_near_and_not_there() {
    let mut names: Vec<String> = ["schedule", "schedulz", "é", "x"].map(str::to_owned).into();
    // All that differ in the last character.
    names.extend(
        ('a'..='z')
            .chain('0'..='9')
            .map(|last| format!("vfs_rea{last}")),
    );
    let known: HashMap<&str, usize> = names.iter().map(|name| (&**name, 1)).collect();
    for (name, expected) in [
        ("schedule", "schedul9"),
        ("vfs_read", "vfs_rea"),
        ("é", "9"),
        ("x", "9"),
    ] {
        let absent = absent(name, &known);
        assert_eq!(absent, expected);
        assert!(!known.contains_key(&*absent));
    }
}
