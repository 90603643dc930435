use std::{collections::BTreeMap, fmt::Write, ops::ControlFlow};

use proptest::prelude::*;

use super::{resolve::SEARCHES, *};
use crate::kallsyms::Symbols;

/// A small generator of numbers that look random, the same in each run.
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    }
}

/// A name as the kernel has them: a prefix, words, a suffix.
fn kernel_name(number: &mut impl FnMut(usize) -> usize) -> String {
    const PREFIXES: [&str; 8] = [
        "",
        "",
        "",
        "__",
        "__pfx_",
        "__x64_sys_",
        "tcp_",
        "__SCT__tp_func_",
    ];
    const WORDS: [&str; 16] = [
        "get",
        "set",
        "v4",
        "rcv",
        "init",
        "page",
        "inode",
        "lock",
        "irq",
        "show",
        "store",
        "x",
        "register",
        "device",
        "work",
        "na\u{ef}ve",
    ];
    const SUFFIXES: [&str; 6] = ["", "", "", ".cold", ".isra.0", ".part.0.constprop.1"];
    let words: Vec<_> = (0..=number(4)).map(|_| WORDS[number(16)]).collect();
    format!(
        "{}{}{}",
        PREFIXES[number(8)],
        words.join("_"),
        SUFFIXES[number(6)]
    )
}

/// Symbols in address order; `wild` ones have any name and any address.
fn symbols(seed: u64, count: usize, wild: bool) -> Vec<(u64, u8, String)> {
    let mut number = numbers(seed);
    let mut address = if wild { 0 } else { 0xffff_ffff_8100_0000 };
    (0..count)
        .map(|_| {
            address += [0, 0, 16, 0x1234][number(4)];
            if wild && number(50) == 0 {
                address += 1 << number(40);
            }
            let name = if wild {
                let letters = ["a", "b", "_", ".", "\u{e9}", "\u{6f22}"];
                let len = 1 + [number(4), number(20), number(150)][number(3)];
                (0..len).map(|_| letters[number(6)]).collect()
            } else {
                kernel_name(&mut number)
            };
            (address, b"tTdDbBrRwWA"[number(11)], name)
        })
        .collect()
}

fn encode(symbols: &[(u64, u8, String)]) -> Result<SymbolTable, TableError> {
    SymbolTable::encode(symbols.iter().map(|(address, kind, name)| Symbol {
        address: *address,
        kind: *kind,
        name,
        module: None,
    }))
}

fn decode(table: &SymbolTable) -> Vec<(u64, u8, String)> {
    let mut symbols = Vec::new();
    let all = table.walk(|index, symbol| {
        assert_eq!(index, symbols.len());
        symbols.push((symbol.address, symbol.kind, symbol.name.to_owned()));
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(all, ControlFlow::Continue(()));
    symbols
}

fn indexes(symbols: &[u32]) -> Vec<usize> {
    symbols.iter().map(|&index| index as usize).collect()
}

/// The names of a table, and what is near them and may be none.
fn queries(symbols: &[(u64, u8, String)]) -> Vec<String> {
    let mut queries = vec![
        String::new(),
        "\0".into(),
        "x".repeat(511),
        "x".repeat(512),
        "x".repeat(70_000),
    ];
    for (_, kind, name) in symbols {
        queries.push(name.clone());
        queries.push(format!("{name}_"));
        queries.push(format!("{name}\0"));
        queries.push(format!("{}{name}", char::from(*kind)));
        let mut shorter = name.clone();
        shorter.pop();
        queries.push(shorter);
        queries.push(name.chars().skip(1).collect());
        queries.push(name.replacen('_', ".", 1));
    }
    queries
}

/// Every way to look a name up says the same as a map.
fn agree(symbols: &[(u64, u8, String)], table: &SymbolTable) {
    let mut expected: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, (_, _, name)) in symbols.iter().enumerate() {
        expected.entry(name).or_default().push(index);
    }
    let order: Vec<usize> = expected.values().flatten().copied().collect();
    let placed: Vec<_> = (0..table.len()).map(|place| table.placed(place)).collect();
    assert_eq!(placed, order);

    let queries = queries(symbols);
    for query in &queries {
        let expected = expected.get(&**query).cloned().unwrap_or_default();
        for step in Step::ALL {
            let found: Vec<_> = table.range(step, query).map(|place| order[place]).collect();
            assert_eq!(found, expected, "{step:?} {query:?}");
            assert_eq!(
                table.first(step, query),
                expected.first().copied(),
                "{step:?} {query:?}"
            );
        }
    }
    let queries: Vec<&str> = queries.iter().map(|query| &**query).collect();
    for plan in [Plan::Search, Plan::Pass, Plan::Index] {
        let resolved = table.resolve_by(plan, &queries);
        assert_eq!((resolved.plan(), resolved.len()), (plan, queries.len()));
        for (query, found) in queries.iter().zip(resolved.iter()) {
            let expected = expected.get(query).cloned().unwrap_or_default();
            assert_eq!(indexes(found), expected, "{plan:?} {query:?}");
            assert_eq!(
                table.resolve(query).collect::<Vec<_>>(),
                expected,
                "{query:?}"
            );
        }
    }
}

#[test]
fn decodes_what_was_encoded() {
    for (seed, count) in [1, 2, 3, 255, 256, 257, 5_000].into_iter().enumerate() {
        for wild in [false, true] {
            let symbols = symbols(seed as u64, count, wild);
            let table = encode(&symbols).unwrap();
            assert_eq!(table.len(), count);
            assert_eq!(decode(&table), symbols);
            let mut buffer = NameBuffer::default();
            for (index, (address, kind, name)) in symbols.iter().enumerate() {
                assert_eq!(table.address(index), *address);
                assert_eq!(table.kind(index), *kind);
                assert_eq!(table.name(index, &mut buffer), name);
                let symbol = table.symbol(index);
                assert_eq!((symbol.address, symbol.kind), (*address, *kind));
                assert_eq!((symbol.name, symbol.module), (&**name, None));
            }
            let names: usize = symbols.iter().map(|(_, _, name)| name.len()).sum();
            let heap = table.blocks.heap_bytes();
            assert!(
                heap <= names + 5 * count + 64 * count.div_ceil(256),
                "{heap}"
            );
            assert_eq!(table.iter().len(), count);
            assert!(
                table
                    .iter()
                    .map(|symbol| symbol.name)
                    .eq(symbols.iter().map(|symbol| &*symbol.2))
            );
            let _ = table.placed(0);
            let again = SymbolTable::from_parts(table.to_parts()).unwrap();
            assert_eq!(decode(&again), symbols);
            assert_eq!(again.order(), table.order());
        }
    }
}

#[test]
fn all_lookups_agree() {
    for (seed, count) in [1, 2, 3, 100, 257, 1_500].into_iter().enumerate() {
        for wild in [false, true] {
            let symbols = symbols(100 + seed as u64, count, wild);
            let table = encode(&symbols).unwrap();
            agree(&symbols, &table);
            let outer = table.batch_start();
            let inner = table.batch_start();
            assert_eq!(outer.index_bytes(), 4 * count);
            drop(outer);
            assert!(table.batches.slot().load().is_some());
            agree(&symbols, &table);
            drop(inner);
            assert!(table.batches.slot().load().is_none());
        }
    }
}

/// The longest, which take two bytes of length where they compress badly, and
/// one byte more.
#[test]
fn long_names() {
    let mut number = numbers(7);
    let mut symbols: Vec<_> = (0..20)
        .map(|_| {
            let name = (0..511).map(|_| char::from(b'!' + u8::try_from(number(94)).unwrap()));
            (0, b't', name.collect::<String>())
        })
        .collect();
    symbols.push((0, b't', "x".repeat(511)));
    symbols.push((0, b't', "\u{6f22}".repeat(170)));
    let table = encode(&symbols).unwrap();
    assert!(table.names[0] & 0x80 != 0);
    assert_eq!(decode(&table), symbols);
    agree(&symbols, &table);

    let error = encode(&[(0, b't', "f".into()), (0, b't', "x".repeat(512))]).unwrap_err();
    assert_eq!(error.kind, TableErrorKind::NameTooLong { index: 1 });
    assert!(error.to_string().contains("symbol 1"), "{error}");
}

/// Repetitive names whose tokens would be longer than the index can tell.
#[test]
fn tokens_stay_within_their_index() {
    let symbols: Vec<_> = (0..2_000_usize)
        .map(|n| {
            let unit: String = (0..8)
                .map(|bit| if ((n % 97) >> bit) & 1 == 0 { 'a' } else { 'b' })
                .collect();
            (0, b't', unit.repeat(63))
        })
        .collect();
    let table = encode(&symbols).unwrap();
    assert!(table.tokens.table().len() <= usize::from(u16::MAX) + 1);
    assert_eq!(decode(&table), symbols);
}

#[test]
fn refuses_to_encode() {
    let kind = |symbols: &[(u64, u8, String)]| encode(symbols).unwrap_err().kind;
    assert_eq!(kind(&[]), TableErrorKind::Empty);
    assert_eq!(
        kind(&[(0, b't', "a\0".into())]),
        TableErrorKind::HoldsNul { index: 0 }
    );
    assert_eq!(
        kind(&[(0, 0, "a".into())]),
        TableErrorKind::HoldsNul { index: 0 }
    );
    assert_eq!(
        kind(&[(0, 0xc3, "a".into())]),
        TableErrorKind::NotUtf8 { index: 0 }
    );
    assert_eq!(
        kind(&[(0, b't', String::new())]),
        TableErrorKind::NameEmpty {
            index: 0,
            offset: 0
        }
    );
    assert_eq!(
        kind(&[(2, b't', "a".into()), (1, b't', "b".into())]),
        TableErrorKind::AddressOrder { index: 1 }
    );
}

#[test]
fn compresses_to_half() {
    let symbols = symbols(3, 20_000, false);
    let plain: usize = symbols.iter().map(|(_, _, name)| name.len() + 1).sum();
    let table = encode(&symbols).unwrap();
    assert!(
        table.names_bytes() < plain / 2,
        "{} of {plain}",
        table.names_bytes()
    );
}

#[test]
fn address_encodings() {
    let table = |addresses| {
        let names = addresses_names(4);
        SymbolTable::from_parts(TableParts { addresses, ..names })
    };
    let all = |table: SymbolTable| (0..4).map(|index| table.address(index)).collect::<Vec<_>>();
    let base = 0xffff_ff80_8100_0000;
    let relative = |offsets: [i32; 4], absolute_percpu| {
        table(Addresses::Relative {
            base,
            offsets: offsets.to_vec(),
            absolute_percpu,
        })
    };
    assert_eq!(
        all(relative([0, 0x2000, -1, -0x1001], true).unwrap()),
        [0, 0x2000, base, base + 0x1000]
    );
    assert_eq!(
        all(relative([0, 16, i32::MAX, -1], false).unwrap()),
        [base, base + 16, base + 0x7fff_ffff, base + 0xffff_ffff]
    );
    let place = table(Addresses::PlaceRelative {
        start: base + 0x10_0000,
        offsets: vec![-0x10_0000, -0x10_0000, 0, 0x1000 - 12],
    });
    assert_eq!(
        all(place.unwrap()),
        [base, base + 4, base + 0x10_0008, base + 0x10_1000]
    );
    assert_eq!(
        relative([16, 0, 0, 0], false).unwrap_err().kind,
        TableErrorKind::AddressOrder { index: 1 }
    );
    assert_eq!(
        table(Addresses::Absolute(vec![1, 2, 3])).unwrap_err().kind,
        TableErrorKind::AddressCount {
            expected: 4,
            found: 3
        }
    );
}

/// Parts of `count` symbols called `a`, at address 0.
fn addresses_names(count: usize) -> TableParts {
    encode(&vec![(0, b't', "a".into()); count])
        .unwrap()
        .to_parts()
}

#[test]
fn names_of_addresses() {
    let table = encode(&[
        (0x1000, b't', "a".into()),
        (0x2000, b't', "b".into()),
        (0x2000, b'T', "b_alias".into()),
        (0x2010, b'T', "tcp_v4_rcv".into()),
        (0x2600, b't', "end".into()),
        (0x2600, b't', "end_alias".into()),
    ])
    .unwrap();
    let at = |address| {
        table
            .at(address)
            .map(|place| (place.index, place.offset, place.size))
    };
    assert_eq!(at(0), None);
    assert_eq!(at(0xfff), None);
    assert_eq!(at(0x1000), Some((0, 0, Some(0x1000))));
    assert_eq!(at(0x1fff), Some((0, 0xfff, Some(0x1000))));
    assert_eq!(at(0x2000), Some((1, 0, Some(16))));
    assert_eq!(at(0x200f), Some((1, 15, Some(16))));
    assert_eq!(at(0x2010), Some((3, 0, Some(0x5f0))));
    assert_eq!(at(0x2600), Some((4, 0, None)));
    assert_eq!(at(u64::MAX), Some((4, u64::MAX - 0x2600, None)));
    let described = table.describe(0x2022).unwrap();
    assert_eq!(described.to_string(), "tcp_v4_rcv+0x12/0x5f0");
    assert_eq!(format!("{described:#}"), "tcp_v4_rcv");
    assert_eq!(table.describe(0x2601).unwrap().to_string(), "end+0x1");
}

#[test]
fn prefixes() {
    for wild in [false, true] {
        let symbols = symbols(17, 700, wild);
        let table = encode(&symbols).unwrap();
        let mut names: Vec<_> = (0..).zip(symbols.iter().map(|symbol| &*symbol.2)).collect();
        names.sort_by_key(|&(_, name)| name);
        let queries = queries(&symbols);
        let prefixes = ["", "tcp_", "__", "a", "b_", "~", "\u{e9}"];
        let prefixes = prefixes
            .into_iter()
            .chain(queries.iter().map(|query| &**query));
        let check = |known: bool| {
            let mut few = 0;
            for prefix in prefixes.clone() {
                assert_eq!(table.order.get().is_some(), known);
                let expected: Vec<usize> = names
                    .iter()
                    .filter(|(_, name)| name.starts_with(prefix))
                    .map(|&(index, _)| index)
                    .collect();
                if !known && table.few_prefixed(prefix.as_bytes()).is_none() {
                    continue;
                }
                few += 1;
                let found = table.prefixed(prefix);
                assert_eq!(found.len(), expected.len());
                assert_eq!(found.collect::<Vec<_>>(), expected, "{prefix:?}");
            }
            few
        };
        let few = check(false);
        assert!(few > 1_000, "{few}");
        assert_eq!(table.prefixed("").len(), 700);
        assert!(check(true) > few);
    }
}

#[test]
fn plans() {
    let symbols = symbols(23, 300, false);
    let table = encode(&symbols).unwrap();
    // Before the order of names is known, a pass costs less than that.
    assert_eq!(table.plan(1), Plan::Pass);
    let _ = table.placed(0);
    assert_eq!(table.plan(SEARCHES), Plan::Search);
    let batch = table.batch_start();
    assert_eq!(table.plan(SEARCHES + 1), Plan::Search);
    drop(batch);
    assert_eq!(table.plan(SEARCHES + 1), Plan::Pass);
    assert_eq!(table.plan(100_000), Plan::Index);
    let before = table.heap_bytes();
    table.prepare();
    assert_eq!(table.plan(1), Plan::Index);
    assert!(table.heap_bytes() >= before + 16 * table.len());
    let resolved = table.resolve_batch(&[]);
    assert!(resolved.is_empty() && resolved.get(0).is_empty());
}

fn good_parts() -> (SymbolTable, TableParts) {
    let table = encode(&symbols(31, 600, false)).unwrap();
    let _ = table.placed(0);
    let parts = table.to_parts();
    (table, parts)
}

/// What is wrong with parts that were good before the change.
fn fault(good: &TableParts, change: &dyn Fn(&mut TableParts)) -> TableErrorKind {
    let mut parts = good.clone();
    change(&mut parts);
    let error = SymbolTable::from_parts(parts).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(": read the kernel's tables again") || message.contains(": keep"));
    error.kind
}

#[test]
fn faults_of_counts_and_tokens_say_where() {
    let (_, good) = good_parts();
    let kind = |change: &dyn Fn(&mut TableParts)| fault(&good, change);
    assert_eq!(kind(&|parts| parts.count = 0), TableErrorKind::Empty);
    assert_eq!(
        kind(&|parts| parts.count = usize::MAX),
        TableErrorKind::TooManySymbols(usize::MAX)
    );
    assert!(matches!(
        kind(&|parts| parts.count = 1 << 24),
        TableErrorKind::AddressCount { .. }
    ));
    assert_eq!(
        kind(&|parts| _ = parts.token_index.pop()),
        TableErrorKind::TokenIndexLen(255)
    );
    let len = good.token_table.len();
    assert_eq!(
        kind(&|parts| parts.token_index[9] = u16::MAX),
        TableErrorKind::TokenOutside {
            token: 9,
            offset: 0xffff,
            len
        }
    );
    assert!(matches!(
        kind(&|parts| _ = parts.token_table.pop()),
        TableErrorKind::TokenUnterminated { .. }
    ));
}

#[test]
fn faults_of_names_and_order_say_where() {
    let (table, good) = good_parts();
    let kind = |change: &dyn Fn(&mut TableParts)| fault(&good, change);
    let names = good.names.len();
    let last = TableParts::names_end(&good.names, 599).unwrap();
    assert_eq!(
        kind(&|parts| _ = parts.names.pop()),
        TableErrorKind::NameTruncated {
            index: 599,
            offset: last,
            len: names - 1
        }
    );
    assert_eq!(
        kind(&|parts| parts.names[0] = 0),
        TableErrorKind::NameEmpty {
            index: 0,
            offset: 0
        }
    );
    assert_eq!(
        kind(&|parts| parts.names.extend([0; 8])),
        TableErrorKind::TrailingNames {
            count: 600,
            end: names,
            len: names + 8
        }
    );
    assert!(matches!(
        kind(&|parts| parts.names.push(1)),
        TableErrorKind::TrailingNames { .. }
    ));
    assert_eq!(
        kind(&|parts| parts.markers.as_mut().unwrap().push(0)),
        TableErrorKind::MarkerCount {
            expected: 3,
            found: 4
        }
    );
    let marker = good.markers.as_ref().unwrap()[2];
    assert_eq!(
        kind(&|parts| parts.markers.as_mut().unwrap()[2] += 1),
        TableErrorKind::Marker {
            marker: 2,
            expected: marker,
            found: marker + 1
        }
    );
    assert_eq!(
        kind(&|parts| parts.seqs_of_names.as_mut().unwrap().push(0)),
        TableErrorKind::SequenceLen {
            expected: 1800,
            found: 1801
        }
    );
    assert_eq!(
        kind(&|parts| parts.seqs_of_names.as_mut().unwrap()[..3].copy_from_slice(&[0, 2, 88])),
        TableErrorKind::Sequence {
            place: 0,
            index: 600
        }
    );
    let mut padded = good.clone();
    padded.names.extend([0; 7]);
    padded.token_table.extend([0; 7]);
    assert_eq!(
        decode(&SymbolTable::from_parts(padded).unwrap()),
        decode(&table)
    );
}

/// clang's LTO sorts names up to `.llvm.`, bytes after it do not count.
#[test]
fn order_of_lto_kernels() {
    let names = ["f", "f.llvm.2", "f.llvm.1", "f.a"];
    let symbols: Vec<_> = names.map(|name| (0, b't', name.to_owned())).into();
    let mut parts = encode(&symbols).unwrap().to_parts();
    parts.seqs_of_names = Some(vec![0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 3]);
    agree(&symbols, &SymbolTable::from_parts(parts.clone()).unwrap());
    // Nor is one believed that was damaged, or has a symbol twice.
    parts.seqs_of_names.as_mut().unwrap().rotate_right(3);
    agree(&symbols, &SymbolTable::from_parts(parts.clone()).unwrap());
    parts.seqs_of_names = Some(vec![0, 0, 0, 0, 0, 3, 0, 0, 3, 0, 0, 1]);
    agree(&symbols, &SymbolTable::from_parts(parts).unwrap());
    // Nor one that has symbols of one name in another order than theirs.
    let symbols = vec![(0, b't', "f".to_owned()); 2];
    let mut parts = encode(&symbols).unwrap().to_parts();
    parts.seqs_of_names = Some(vec![0, 0, 1, 0, 0, 0]);
    agree(&symbols, &SymbolTable::from_parts(parts).unwrap());
}

/// Whatever the parts are, there is an error or a table that holds.
#[test]
fn corrupt_parts_never_panic() {
    let mut number = numbers(5);
    let small = encode(&symbols(41, 40, false)).unwrap();
    let large = encode(&symbols(43, 300, true)).unwrap();
    let (mut good, mut bad) = (0, 0);
    for round in 0..20_000 {
        let table = if round % 20 == 0 { &large } else { &small };
        let _ = table.placed(0);
        let mut parts = table.to_parts();
        for _ in 0..=number(3) {
            let byte = u8::try_from(number(256)).unwrap();
            match number(12) {
                0 => parts.count = number(2 * parts.count + 2),
                1 => {
                    let at = number(256);
                    parts.token_index[at] = u16::try_from(number(1 << 16)).unwrap();
                }
                2 => {
                    let at = number(parts.token_table.len());
                    parts.token_table[at] = byte;
                }
                3 => parts.names.truncate(number(parts.names.len() + 1)),
                4 => parts.markers = None,
                5 => parts.seqs_of_names = None,
                6 => {
                    if let Some(order) = &mut parts.seqs_of_names {
                        let at = number(order.len());
                        order[at] = byte;
                    }
                }
                _ if parts.names.is_empty() => {}
                _ => {
                    let at = number(parts.names.len());
                    parts.names[at] = byte;
                    parts.markers = None;
                    parts.seqs_of_names = None;
                }
            }
        }
        match SymbolTable::from_parts(parts) {
            Ok(table) => {
                good += 1;
                let symbols = decode(&table);
                let last = &symbols[symbols.len() - 1];
                let names = [&*last.2, "tcp_", ""];
                for plan in [Plan::Search, Plan::Pass, Plan::Index] {
                    let resolved = table.resolve_by(plan, &names);
                    assert!(indexes(resolved.get(0)).contains(&(symbols.len() - 1)));
                }
                assert!(table.at(last.0).is_some());
                let _ = table.prefixed(names[1]);
            }
            Err(error) => {
                bad += 1;
                assert!(error.to_string().len() < 250, "{error}");
            }
        }
    }
    assert!(good > 1_000 && bad > 1_000, "{good} good, {bad} bad");
}

/// Lookups go on, and are right, while batches come and go.
#[test]
fn lookups_while_batches_start_and_end() {
    let symbols = symbols(53, if cfg!(miri) { 50 } else { 2_000 }, false);
    let table = encode(&symbols).unwrap();
    let names: Vec<_> = symbols.iter().map(|(_, _, name)| &**name).collect();
    let expected: Vec<_> = names
        .iter()
        .map(|name| table.first(Step::Tokens, name))
        .collect();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (table, names, expected) = (&table, &names, &expected);
                scope.spawn(move || {
                    for at in (0..2 * names.len()).map(|at| (at + reader * 7) % names.len()) {
                        for step in [Step::Batch, Step::Sequence] {
                            assert_eq!(table.first(step, names[at]), expected[at]);
                        }
                    }
                })
            })
            .collect();
        while !readers
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            let _outer = table.batch_start();
            drop(table.batch_start());
        }
    });
    assert!(table.batches.slot().load().is_none());
}

/// A name that is sought often is found by its expanded form.
#[test]
fn resolves_by_expanded_names() {
    for wild in [false, true] {
        let symbols = symbols(67, 300, wild);
        let table = encode(&symbols).unwrap();
        let before = table.heap_bytes();
        let index = |found: Matches<'_>| found.collect::<Vec<_>>();
        let name = &*symbols[200].2;
        let found = index(table.resolve(name));
        let indexed = table.heap_bytes();
        assert!(indexed > before && found.contains(&200));
        for _ in 0..1_000 {
            assert_eq!(index(table.resolve(name)), found);
        }
        assert!(table.heap_bytes() > indexed, "not expanded");
        // Whichever symbols have theirs expanded.
        agree(&symbols, &table);
        assert_eq!(table.iter().len(), table.iter().count());
        agree(&symbols, &table);
    }
}

/// Each thread gets the same names, wherever they begin.
#[test]
fn symbols_from_several_threads() {
    let count = if cfg!(miri) { 300 } else { 3_000 };
    let symbols = symbols(59, count, true);
    let table = encode(&symbols).unwrap();
    let names: Vec<Vec<&str>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let table = &table;
                let order = (0..count).map(move |at| (at + reader * count / 3) % count);
                scope.spawn(move || order.map(|index| table.symbol(index).name).collect())
            })
            .collect();
        let names = readers.into_iter().map(|reader| reader.join().unwrap());
        names.collect()
    });
    for (reader, names) in names.iter().enumerate() {
        for (at, &name) in names.iter().enumerate() {
            let index = (at + reader * count / 3) % count;
            assert_eq!(name, symbols[index].2);
            // Of one expansion, which all share.
            assert_eq!(name.as_ptr(), table.symbol(index).name.as_ptr());
        }
    }
}

#[test]
fn text_and_table_agree() {
    let mut text = String::new();
    for (address, kind, name) in symbols(61, 900, false) {
        writeln!(text, "{address:016x} {} {name}", char::from(kind)).unwrap();
    }
    let symbols = Symbols::parse(text).unwrap();
    let table = SymbolTable::encode(&symbols).unwrap();
    for symbol in &symbols {
        let named: Vec<_> = symbols.named(symbol.name).map(|s| s.address).collect();
        let resolved: Vec<_> = table
            .resolve(symbol.name)
            .map(|index| table.address(index))
            .collect();
        assert_eq!(resolved, named);
        let first = symbols.at(symbol.address).next().unwrap();
        assert_eq!(&*table.describe(symbol.address).unwrap().name, first.name);
    }
}

/// Symbols in address order, of few letters and few words, so that many names
/// are alike: aliases, duplicates, anagrams, prefixes of others.
fn any_symbols() -> impl Strategy<Value = Vec<(u64, u8, String)>> {
    let name = prop_oneof!["[ab_]{1,6}", "(tcp_|__|v4|\u{e9}|x){1,12}", "[ -~]{1,40}"];
    let symbol = (
        prop_oneof![Just(0), 0_u64..64, any::<u32>().prop_map(u64::from)],
        prop::sample::select(b"tTdA".as_slice()),
        name,
    );
    prop::collection::vec(symbol, 1..400).prop_map(|mut symbols| {
        let mut address = 0xffff_ffff_8100_0000;
        for symbol in &mut symbols {
            address += symbol.0 / 4_096;
            symbol.0 = address;
        }
        symbols
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_table_decodes(symbols in any_symbols()) {
        let table = encode(&symbols).unwrap();
        prop_assert_eq!(&decode(&table), &symbols);
        let mut buffer = NameBuffer::default();
        for (index, symbol) in table.iter().enumerate() {
            prop_assert_eq!(symbol.name, table.name(index, &mut buffer));
            prop_assert_eq!((symbol.address, symbol.kind, symbol.name),
                (symbols[index].0, symbols[index].1, &*symbols[index].2));
        }
        let _ = table.placed(0);
        let again = SymbolTable::from_parts(table.to_parts()).unwrap();
        prop_assert_eq!(decode(&again), symbols);
    }

    /// With and without a batch, with and without expanded names.
    #[test]
    fn any_lookups_agree(symbols in any_symbols()) {
        let table = encode(&symbols).unwrap();
        agree(&symbols, &table);
        let batch = table.batch_start();
        prop_assert_eq!(table.iter().len(), table.iter().count());
        agree(&symbols, &table);
        drop(batch);
    }

    #[test]
    fn any_prefix(symbols in any_symbols(), prefix in "[ab_tcpv4x]{0,5}") {
        let mut expected: Vec<_> = (0..symbols.len())
            .filter(|&index| symbols[index].2.starts_with(&prefix))
            .collect();
        expected.sort_by_key(|&index| &symbols[index].2);
        let table = encode(&symbols).unwrap();
        prop_assert_eq!(table.prefixed(&prefix).collect::<Vec<_>>(), &*expected);
        let _ = table.placed(0);
        prop_assert_eq!(table.prefixed(&prefix).collect::<Vec<_>>(), expected);
    }

    /// At the first and the last byte of each symbol, and before the first.
    #[test]
    fn any_address(symbols in any_symbols()) {
        let table = encode(&symbols).unwrap();
        prop_assert_eq!(table.at(symbols[0].0 - 1), None);
        for (start, _, _) in &symbols {
            let first = symbols.iter().position(|symbol| symbol.0 == *start).unwrap();
            let end = symbols.iter().map(|symbol| symbol.0).find(|next| next > start);
            let size = end.map(|end| end - start);
            for offset in [0, size.map_or(77, |size| size - 1)] {
                let place = Place { index: first, offset, size };
                prop_assert_eq!(table.at(start + offset), Some(place));
                let described = table.describe(start + offset).unwrap();
                prop_assert_eq!(&*described.name, &symbols[first].2);
                prop_assert_eq!((described.offset, described.size), (offset, size));
            }
        }
    }
}
