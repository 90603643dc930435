use super::*;

fn parse(text: &str) -> Symbols {
    Symbols::parse(text).unwrap()
}

fn fault(text: impl AsRef<[u8]>) -> ParseError {
    Symbols::parse(text).unwrap_err()
}

const fn symbol<'a>(address: u64, kind: u8, name: &'a str, module: Option<&'a str>) -> Symbol<'a> {
    Symbol {
        address,
        kind,
        name,
        module,
    }
}

#[test]
fn kernel_lines() {
    let symbols = parse(
        "ffffffff81000000 T _stext\n\
         ffffffffc1682010 T nf_nat_init\t[nf_nat]\n\
         ffffffffc0a25120 d nf_data\t[nf_nat]\n",
    );
    assert_eq!(
        symbols.iter().collect::<Vec<_>>(),
        [
            symbol(0xffff_ffff_8100_0000, b'T', "_stext", None),
            symbol(0xffff_ffff_c0a2_5120, b'd', "nf_data", Some("nf_nat")),
            symbol(0xffff_ffff_c168_2010, b'T', "nf_nat_init", Some("nf_nat")),
        ]
    );
    assert_eq!(symbols.len(), 3);
    assert_eq!(symbols.get(1).unwrap().name, "nf_data");
    assert_eq!(symbols.get(3), None);
    assert_eq!(symbols.iter().next_back().unwrap().name, "nf_nat_init");
    assert!(!symbols.is_empty());
    assert!(Symbols::default().is_empty());
}

/// Copies have spaces, CRLF, short or upper-case addresses.
#[test]
fn lines_of_copies() {
    let symbols = parse("81000000 T a\r\nC16820AB  t \tb  [m] \r\n0 D c \n");
    assert_eq!(
        symbols.iter().collect::<Vec<_>>(),
        [
            symbol(0, b'D', "c", None),
            symbol(0x8100_0000, b'T', "a", None),
            symbol(0xc168_20ab, b't', "b", Some("m")),
        ]
    );
}

#[test]
fn unsorted_with_aliases_in_file_order() {
    let symbols =
        parse("30 T z\n10 T srso_alias_untrain_ret\n20 t b\n10 T _stext\n10 T _text\n20 t a\n");
    let names = |address| symbols.at(address).map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(0x10), ["srso_alias_untrain_ret", "_stext", "_text"]);
    assert_eq!(names(0x20), ["b", "a"]);
    assert_eq!(names(0x30), ["z"]);
    for absent in [0, 0x0f, 0x11, 0x31, u64::MAX] {
        assert!(names(absent).is_empty());
    }
    assert_eq!(
        symbols.groups(0..symbols.len()).collect::<Vec<_>>(),
        [0..3, 3..5, 5..6]
    );
}

#[test]
fn every_instance_of_a_name() {
    let symbols = parse(
        "50 t s_next\n10 t s_next\n20 t s_nex\n30 t s_next\t[a]\n30 t s_next_\n40 t s_next\t[b]\n",
    );
    let found: Vec<_> = symbols
        .named("s_next")
        .map(|s| (s.address, s.module))
        .collect();
    assert_eq!(
        found,
        [
            (0x10, None),
            (0x30, Some("a")),
            (0x40, Some("b")),
            (0x50, None)
        ]
    );
    assert_eq!(symbols.named("s_nex").count(), 1);
    assert_eq!(symbols.named("").count(), 0);
    assert_eq!(symbols.named("s_nextt").count(), 0);
    assert_eq!(Symbols::default().named("s_next").count(), 0);
}

/// They share the address of a symbol, and mark data in its code.
#[test]
fn mapping_symbols_are_left_out() {
    let symbols = parse("10 t f\n10 t $x\n14 d $d\t[openvswitch]\n18 t $x.12\n20 t g$x\n");
    assert_eq!(
        symbols.iter().map(|s| s.name).collect::<Vec<_>>(),
        ["f", "g$x"]
    );
    assert_eq!(fault("10 t $x\n").kind, ParseErrorKind::Empty);
}

#[test]
fn hidden_addresses() {
    let zeros = "0000000000000000 t finish_task_switch.isra.0\n0000000000000000 R sys_call_table\n";
    assert!(parse(zeros).addresses_hidden());
    // Per-CPU symbols are at small addresses; that says nothing about text.
    assert!(parse(&format!("{zeros}0000000000006000 A cpu_tss_rw\n")).addresses_hidden());
    assert!(!parse(&format!("{zeros}ffffffff81000000 W w\n")).addresses_hidden());
    assert!(!parse("0000000000002000 A irq_stack_backing_store\n").addresses_hidden());
    assert!(!parse("0000000000000000 A fixed_percpu_data\n").addresses_hidden());
}

#[test]
fn text_is_t_and_w_of_either_case() {
    let text: String = (b'!'..=b'~')
        .filter(|kind| symbol(1, *kind, "f", None).is_text())
        .map(char::from)
        .collect();
    assert_eq!(text, "TWtw");
}

#[test]
fn faults_name_the_line() {
    use ParseErrorKind as Kind;
    let excerpt = |text: &str| text.to_owned();
    for (line, kind) in [
        ("", Kind::MissingAddress),
        ("\r", Kind::MissingAddress),
        (" 10 T f", Kind::MissingAddress),
        ("xyz T f", Kind::BadAddress(excerpt("xyz T f"))),
        ("0x10 T f", Kind::BadAddress(excerpt("0x10 T f"))),
        (
            "1ffffffff81000000 T f",
            Kind::BadAddress(excerpt("1ffffffff81000000 T f")),
        ),
        (
            "ffffffff8100000g T f",
            Kind::BadAddress(excerpt("ffffffff8100000g T f")),
        ),
        ("10", Kind::MissingKind),
        ("10 ", Kind::MissingKind),
        ("10 T", Kind::MissingName),
        ("10 T \t", Kind::MissingName),
        ("10 TT f", Kind::BadKind(excerpt("TT"))),
        ("10 \u{e4} f", Kind::BadKind(excerpt("\u{e4}"))),
        ("10 T f g", Kind::BadModule(excerpt("g"))),
        ("10 T f\t[m] x", Kind::BadModule(excerpt("x"))),
        ("10 T f\t[m", Kind::BadModule(excerpt("[m"))),
        ("10 T f\t[]", Kind::BadModule(excerpt("[]"))),
        ("10 T f\0g", Kind::BadModule(excerpt("\\0g"))),
        ("10 T f\x1b[1m", Kind::BadModule(excerpt("\\u{1b}[1m"))),
    ] {
        let text = format!("ffffffff81000000 T before\n{line}\n30 T after\n");
        let error = fault(&text);
        assert_eq!((error.line, &error.kind), (2, &kind), "{line:?}");
        let message = error.to_string();
        assert!(message.starts_with("line 2: "), "{message}");
        assert!(message.contains("ADDRESS TYPE NAME [MODULE]"), "{message}");
    }
}

#[test]
fn faults_of_whole_files() {
    assert_eq!(fault("").kind, ParseErrorKind::Empty);
    let garbage: Vec<u8> = (0..=255).rev().cycle().take(4096).collect();
    let error = fault(&garbage);
    assert_eq!(error.line, 1);
    assert!(
        matches!(error.kind, ParseErrorKind::BadAddress(_)),
        "{error}"
    );
    assert!(error.to_string().len() < 400, "{error}");
}

#[test]
fn utf8() {
    let symbols = parse("10 t na\u{ef}ve_\u{6f22}\t[m\u{f6}d]\n20 t b\n");
    let first = symbols.get(0).unwrap();
    assert_eq!(
        first,
        symbol(0x10, b't', "na\u{ef}ve_\u{6f22}", Some("m\u{f6}d"))
    );
    for line in [
        &b"20 t caf\xc3\n"[..],
        b"20 t f\xff\n",
        b"20 t f\t[m\xe9]\n",
    ] {
        let error = fault([b"10 t \xc3\xa9\n", line].concat());
        assert_eq!(error.line, 2);
        assert!(
            matches!(error.kind, ParseErrorKind::InvalidUtf8(_)),
            "{error}"
        );
    }
    // Two halves of a character in two names do not make one name of both.
    let error = fault(b"10 t a\xc3\n20 t \xa9b\n");
    assert_eq!(error.line, 1);
}

#[test]
fn long_names() {
    let longest = "x".repeat(511);
    let symbols = parse(&format!("10 t {longest}\t[m]\n20 t g\n"));
    assert_eq!(symbols.get(0).unwrap().name, longest);
    assert_eq!(symbols.named(&longest).count(), 1);
    assert_eq!(symbols.get(1).unwrap().name, "g");

    let limit = "x".repeat(65_535);
    assert_eq!(
        parse(&format!("10 t {limit}\n")).get(0).unwrap().name,
        limit
    );
    let error = fault(format!("10 t f\n20 t {limit}x\n"));
    assert_eq!(
        (error.line, error.kind),
        (2, ParseErrorKind::NameTooLong(65_536))
    );
}

/// Wherever a file is cut off, but between lines, that is told.
#[test]
fn cut_off_anywhere() {
    let text =
        "ffffffff81000000 T _stext\r\nffffffffc1682010 t f\t[m]\nffffffffc1682020 t g [n]\r\n";
    for cut in 0..=text.len() {
        let part = &text[..cut];
        let whole_lines = part.matches('\n').count();
        if part.is_empty() || part.ends_with('\n') {
            let found = Symbols::parse(part).map_or(0, |symbols| symbols.len());
            assert_eq!(found, whole_lines, "{part:?}");
        } else {
            let error = fault(part);
            assert_eq!(
                (error.line, error.kind),
                (whole_lines + 1, ParseErrorKind::Truncated),
                "{part:?}"
            );
        }
    }
}

/// A small generator of numbers that look random, the same in each run.
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    }
}

/// What a line says, read the slow way.
fn reference(line: &str) -> Option<Symbol<'_>> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.starts_with([' ', '\t']) {
        return None;
    }
    let mut fields = line.split([' ', '\t']).filter(|field| !field.is_empty());
    let address = fields.next()?;
    let kind = fields.next()?;
    let name = fields.next()?;
    let module = fields.next();
    if fields.next().is_some()
        || !(1..=16).contains(&address.len())
        || address.starts_with('+')
        || kind.len() != 1
    {
        return None;
    }
    let module = match module {
        Some(module) => Some(module.strip_prefix('[')?.strip_suffix(']')?),
        None => None,
    };
    if module == Some("") {
        return None;
    }
    Some(symbol(
        u64::from_str_radix(address, 16).ok()?,
        kind.as_bytes()[0],
        name,
        module,
    ))
}

#[test]
fn agrees_with_a_slow_parser() {
    let mut number = numbers(1);
    let parts = [
        "0",
        "a",
        "F",
        "10",
        "ffffffff81000000",
        "g",
        " ",
        " ",
        " ",
        "\t",
        "T",
        "t",
        "D",
        "f",
        "foo.isra.0",
        "[m]",
        "\t[mod]",
        "[",
        "]",
        "\n",
        "\n",
        "\r\n",
        "\u{e9}",
        "+",
    ];
    let (mut good, mut bad) = (0, 0);
    for _ in 0..50_000 {
        // Lines that are nearly right, then some damage.
        let mut text = String::new();
        for _ in 0..=number(3) {
            for part in ["10", " ", "T", " ", "f", "", "\n"] {
                if number(12) == 0 {
                    text.push_str(parts[number(parts.len())]);
                } else {
                    text.push_str(part);
                }
            }
        }
        text.push('\n');
        let expected: Option<Vec<_>> = text
            .strip_suffix('\n')
            .unwrap()
            .split('\n')
            .map(reference)
            .collect();
        let parsed = Symbols::parse(&text).ok();
        let parsed = parsed.as_ref().map(|symbols| symbols.iter().collect());
        let expected = expected.map(|mut symbols| {
            symbols.sort_by_key(|symbol| symbol.address);
            symbols
        });
        assert_eq!(parsed, expected, "{text:?}");
        match parsed {
            Some(_) => good += 1,
            None => bad += 1,
        }
    }
    assert!(good > 1_000 && bad > 1_000, "{good} good, {bad} bad");
}

#[test]
fn no_input_makes_it_panic() {
    let mut number = numbers(2);
    let bytes = b"0fgT $[]\t\n\r\0\xc3\xa9";
    for _ in 0..100_000 {
        let text: Vec<u8> = (0..number(40))
            .map(|_| bytes[number(bytes.len())])
            .collect();
        if let Ok(symbols) = Symbols::parse(text.clone()) {
            for symbol in &symbols {
                assert!(symbols.at(symbol.address).any(|other| other == symbol));
                assert!(symbols.named(symbol.name).any(|other| other == symbol));
            }
        }
    }
}

/// Every table size around a power of two, since that sets the buckets.
#[test]
fn finds_every_name_of_a_table() {
    for len in [1, 2, 3, 4, 5, 255, 256, 257, 5_000] {
        let text = (0..len)
            .map(|n| format!("{:x} t f{}\n", 16 * (n + 1), n / 2))
            .collect::<Vec<_>>()
            .concat();
        let symbols = parse(&text);
        for (index, symbol) in symbols.iter().enumerate() {
            let same: Vec<_> = symbols.named(symbol.name).collect();
            let first = index / 2 * 2;
            let expected: Vec<_> = (first..(first + 2).min(len))
                .filter_map(|index| symbols.get(index))
                .collect();
            assert_eq!(same, expected);
        }
    }
}

#[test]
fn addresses_of_sixteen_digits() {
    for position in 0..16 {
        for byte in 0..=255 {
            let mut digits = *b"0123456789abcdef";
            digits[position] = byte;
            let expected = str::from_utf8(&digits)
                .ok()
                .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|digits| u64::from_str_radix(digits, 16).ok());
            assert_eq!(hex(&digits), expected, "{digits:?}");
        }
    }
}

impl Symbols {
    /// The same symbols, those of the core kernel in a table.
    pub(crate) fn with_table(&self) -> Self {
        let core = self.iter().filter(|symbol| symbol.module.is_none());
        let table = SymbolTable::encode(core).unwrap();
        let mut modules = Builder::default();
        for symbol in self.iter().filter(|symbol| symbol.module.is_some()) {
            assert!(modules.push(&symbol).is_ok());
        }
        Self::new(Some(table), modules)
    }
}

/// Modules lie above the core kernel or below it; here, also within.
#[test]
fn a_table_answers_as_text_does() {
    for text in [
        "10 T a\n10 t b\n20 t a\n30 D c\n",
        "10 T a\n10 t b\n20 t a\n30 D c\n40 t a\t[m]\n40 t d\t[m]\n50 t d\t[n]\n",
        "8 t a\t[m]\n9 t d\t[m]\n10 T a\n10 t b\n20 t a\n",
        "0 A a\n0 A b\n8 t a\t[m]\n10 T a\n10 t b\t[m]\n18 t a\t[n]\n20 t a\n28 d a\t[n]\n",
    ] {
        let text = parse(text);
        let table = text.with_table();
        assert_eq!(table.len(), text.len());
        assert!(table.iter().eq(&text), "{table:?}");
        assert!(table.iter().rev().eq(text.iter().rev()));
        for index in 0..=text.len() {
            assert_eq!(table.get(index), text.get(index));
        }
        for address in 0..0x60 {
            assert!(table.at(address).eq(text.at(address)), "{address:#x}");
        }
        for name in ["a", "b", "c", "d", "e", ""] {
            assert!(table.named(name).eq(text.named(name)), "{name}");
        }
        let groups = |symbols: &Symbols| symbols.groups(0..symbols.len()).collect::<Vec<_>>();
        assert_eq!(groups(&table), groups(&text));
        for prefix in ["a", "d", "e", ""] {
            let sorted = |symbols: &Symbols| {
                let mut found: Vec<_> = symbols
                    .prefixed(prefix)
                    .map(|symbol| {
                        (
                            symbol.address,
                            symbol.name.to_owned(),
                            symbol.module.is_some(),
                        )
                    })
                    .collect();
                found.sort();
                found
            };
            assert_eq!(sorted(&table), sorted(&text), "{prefix}");
            assert!(
                sorted(&table)
                    .iter()
                    .all(|(_, name, _)| name.starts_with(prefix))
            );
        }
        for module in ["m", "n", "o"] {
            assert_eq!(table.has_module(module), text.has_module(module));
        }
    }
}

#[test]
fn addresses_are_described() {
    let text = parse(
        "1000 T _stext\n2010 t tcp_v4_rcv\n2010 t alias\n2600 T _end\n\
         8000 t nf_nat_init\t[nf_nat]\n8080 t nf_nat_exit\t[nf_nat]\n9000 t dummy\t[dummy]\n",
    );
    for symbols in [&text.with_table(), &text] {
        let described = |address| symbols.describe(address).unwrap().to_string();
        assert_eq!(symbols.describe(0xfff), None);
        assert_eq!(described(0x1000), "_stext+0x0/0x1010");
        assert_eq!(described(0x2022), "tcp_v4_rcv+0x12/0x5f0");
        // To its last byte.
        assert_eq!(described(0x25ff), "tcp_v4_rcv+0x5ef/0x5f0");
        assert_eq!(described(0x2600), "_end+0x0");
        assert_eq!(described(0x8004), "nf_nat_init+0x4/0x80 [nf_nat]");
        assert_eq!(described(0x8080), "nf_nat_exit+0x0 [nf_nat]");
        assert_eq!(described(u64::MAX), "dummy+0xffffffffffff6fff [dummy]");
        let name = symbols.describe(0x8004).unwrap();
        assert_eq!(format!("{name:#}"), "nf_nat_init [nf_nat]");
    }
    assert_eq!(Symbols::default().describe(0), None);
}

#[test]
fn groups_of_some_symbols() {
    let symbols = parse("10 t a\n20 t b\n20 t c\n20 t d\n30 t e\n40 t f\n40 t g\n");
    let groups = |indices: &[usize]| symbols.groups(indices.to_vec()).collect::<Vec<_>>();
    assert_eq!(groups(&[1]), groups(&[1, 2, 3]));
    assert_eq!(groups(&[0, 1, 2, 3, 6]), [0..1, 1..4, 5..7]);
    assert!(groups(&[]).is_empty());
}

#[test]
fn narrowed_to_names_and_prefixes() {
    let text = parse("10 t tcp_a\n10 t b\n20 t tcp_b\n30 D tcp\n40 t c\t[m]\n50 t tcp_c\t[m]\n");
    let table = text.with_table();
    assert_eq!(table.narrowed(&[], &["tcp_"]), [0, 2, 4, 5]);
    assert_eq!(table.narrowed(&["tcp", "b", "x"], &[]), [1, 3, 4, 5]);
    assert_eq!(
        table.narrowed(&["tcp_b"], &["tcp", "tcp_"]),
        [0, 2, 3, 4, 5]
    );
    assert_eq!(table.narrowed(&[], &[]), [4, 5]);
}
