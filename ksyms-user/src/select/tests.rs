use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
};

use super::*;
use crate::source::{Locations, Names};

fn symbols(text: &str) -> Symbols {
    Symbols::parse(text).unwrap()
}

fn locations(addresses: impl Into<Vec<u64>>) -> Traceable {
    Traceable::Locations(Locations::new(addresses.into()))
}

fn names(text: &str) -> Traceable {
    Traceable::Names(Box::new(Names::parse(text).unwrap()))
}

/// ftrace knows each text symbol's entry.
fn all(symbols: &Symbols) -> Traceable {
    locations(symbols.iter().map(|s| s.address).collect::<Vec<_>>())
}

fn patterns(patterns: &[&str]) -> Patterns {
    Patterns::parse_with(patterns, no_file).unwrap()
}

fn no_file(_: &Path) -> io::Result<String> {
    Err(io::ErrorKind::NotFound.into())
}

fn addresses(selection: &Selection<'_>) -> Vec<u64> {
    selection.targets.iter().map(|t| t.address).collect()
}

fn reasons<'a>(selection: &Selection<'a>) -> Vec<(&'a str, Reason)> {
    selection
        .rejected
        .iter()
        .map(|rejected| (rejected.name, rejected.reason))
        .collect()
}

/// The names that patterns select where everything can be probed.
fn selected<'a>(symbols: &'a Symbols, texts: &[&str]) -> Vec<&'a str> {
    let selection = select(symbols, &all(symbols), &patterns(texts));
    assert_eq!(selection.rejected, []);
    selection.targets.iter().map(|t| t.name).collect()
}

// Inputs that tools of this kind have got wrong, each once.

#[test]
fn input_1_module_after_a_tab() {
    let symbols = symbols("ffffffffc1682010 T nf_nat_init\t[nf_nat]\n");
    let selection = select(&symbols, &all(&symbols), &patterns(&["nf_nat_init"]));
    assert_eq!(
        selection.targets,
        [Target {
            address: 0xffff_ffff_c168_2010,
            name: "nf_nat_init",
            module: Some("nf_nat"),
            aliases: vec![],
            ambiguous: false,
        }]
    );
}

const S_NEXT: &str = "\
ffffffff812a6b40 t s_next
ffffffff812e2d50 t s_next
ffffffff813a3a10 t s_next
ffffffff8144a0c0 t s_next
ffffffff814ed3e0 t s_next
";

#[test]
fn input_2_duplicates() {
    let symbols = symbols(S_NEXT);
    let known = locations([0xffff_ffff_812a_6b40, 0xffff_ffff_813a_3a14]);
    let selection = select(&symbols, &known, &patterns(&["s_next"]));
    assert_eq!(
        addresses(&selection),
        [0xffff_ffff_812a_6b40, 0xffff_ffff_813a_3a10]
    );
    assert_eq!(reasons(&selection), [("s_next", Reason::NotTraceable); 3]);
    assert_eq!(selection.matched(), 5);
}

#[test]
fn input_3_partly_traceable_duplicates() {
    let symbols = symbols(
        "10 t t_stop\n20 t t_stop\n30 t t_stop\n40 t s_show\n50 t s_show\n\
         60 t s_show\t[m]\n70 d s_show\n80 t other\n",
    );
    // Which one of t_stop is listed cannot be told.
    let listed = names("t_stop\ns_show\ns_show\n");
    let selection = select(&symbols, &listed, &patterns(&["*"]));
    assert_eq!(addresses(&selection), [0x10, 0x20, 0x30, 0x40, 0x50]);
    let ambiguous: Vec<_> = selection.targets.iter().map(|t| t.ambiguous).collect();
    assert_eq!(ambiguous, [true, true, true, false, false]);
    assert_eq!(
        reasons(&selection),
        [
            ("s_show", Reason::NotTraceable),
            ("other", Reason::NotTraceable)
        ]
    );
    let selection = select(&symbols, &locations([0x20]), &patterns(&["t_stop"]));
    assert_eq!(addresses(&selection), [0x20]);
    assert!(!selection.targets[0].ambiguous);
}

#[test]
fn input_4_same_name_in_two_modules() {
    let symbols = symbols(
        "ffffffffc09bde10 t icap_download_bitstream_axlf\t[xclmgmt]\n\
         ffffffffc0a02400 t icap_download_bitstream_axlf\t[xocl]\n",
    );
    let known = all(&symbols);
    let selection = select(&symbols, &known, &patterns(&["xocl:icap_*"]));
    assert_eq!(addresses(&selection), [0xffff_ffff_c0a0_2400]);
    let selection = select(&symbols, &known, &patterns(&["icap_*"]));
    let modules: Vec<_> = selection.targets.iter().map(|t| t.module).collect();
    assert_eq!(modules, [Some("xclmgmt"), Some("xocl")]);
    // The same by names: a name listed for one module says nothing of another.
    let listed = names("icap_download_bitstream_axlf [xocl]\n");
    let selection = select(&symbols, &listed, &patterns(&["icap_*"]));
    assert_eq!(addresses(&selection), [0xffff_ffff_c0a0_2400]);
    assert!(!selection.targets[0].ambiguous);
}

#[test]
fn input_5_compiler_suffixes() {
    let symbols = symbols(
        "ffffffff8150e3b0 t tcp_ack_update_rtt.isra.34\n\
         ffffffff81510000 t vfs_statfs.part.0.isra.0\n\
         ffffffff81520000 t try_to_wake_up.llvm.8934\n",
    );
    let known = all(&symbols);
    for (name, full) in [
        ("tcp_ack_update_rtt", "tcp_ack_update_rtt.isra.34"),
        ("vfs_statfs", "vfs_statfs.part.0.isra.0"),
    ] {
        let selection = select(&symbols, &known, &patterns(&[name]));
        assert_eq!(selection.matched(), 0);
        assert_eq!(selection.unmatched, [name]);
        assert_eq!(suggest(&symbols, &known, &selection.unmatched), [full]);
        assert_eq!(selected(&symbols, &[&format!("{name}*")]), [full]);
    }
    let listed = names("try_to_wake_up\n");
    let selection = select(&symbols, &listed, &patterns(&["try_to_wake_up*"]));
    assert_eq!(addresses(&selection), [0xffff_ffff_8152_0000]);
}

#[test]
fn input_6_cold_and_padding() {
    let text = "10 t __pfx_foo\n20 t foo\n30 t foo.cold\n40 t foo.part.0.cold\n\
                50 t foo.cold.12\n60 t __cfi_foo\n70 t foo.colder\n80 T __SCT__foo\n";
    let symbols = symbols(text);
    let expected = [
        ("__pfx_foo", Reason::Padding),
        ("foo.cold", Reason::Cold),
        ("foo.part.0.cold", Reason::Cold),
        ("foo.cold.12", Reason::Cold),
        ("__cfi_foo", Reason::Padding),
    ];
    let selection = select(&symbols, &locations([0x24]), &patterns(&["*foo*"]));
    assert_eq!(addresses(&selection), [0x20]);
    let rest = [
        ("foo.colder", Reason::NotTraceable),
        ("__SCT__foo", Reason::NotTraceable),
    ];
    assert_eq!(reasons(&selection), [&expected[..], &rest].concat());
    // The same where nobody knows what can be probed.
    let selection = select(&symbols, &Traceable::Unknown, &patterns(&["*foo*"]));
    assert_eq!(addresses(&selection), [0x20, 0x70, 0x80]);
    assert_eq!(reasons(&selection), expected);
}

#[test]
fn input_7_zeros() {
    let symbols = symbols(
        "0000000000000000 t finish_task_switch.isra.0\n0000000000000000 T schedule\n\
         0000000000000000 R sys_call_table\n",
    );
    for known in [Traceable::Unknown, locations([0, 4]), names("schedule\n")] {
        let selection = select(&symbols, &known, &patterns(&["*"]));
        assert_eq!(selection.targets, []);
        assert_eq!(
            reasons(&selection),
            [
                ("finish_task_switch.isra.0", Reason::HiddenAddress),
                ("schedule", Reason::HiddenAddress)
            ]
        );
        // They are not aliases of each other.
        let selection = select(&symbols, &known, &patterns(&["*", "!schedule"]));
        assert_eq!(
            reasons(&selection),
            [("finish_task_switch.isra.0", Reason::HiddenAddress)]
        );
    }
}

#[test]
fn input_8_per_cpu_and_absolute() {
    let symbols = symbols(
        "0000000000002000 A irq_stack_backing_store\n0000000000006000 A cpu_tss_rw\n\
         ffffffff81000000 T cpu_init\n",
    );
    assert_eq!(selected(&symbols, &["cpu_*", "irq_*x", "*"]), ["cpu_init"]);
    let selection = select(&symbols, &all(&symbols), &patterns(&["cpu_tss_rw"]));
    assert_eq!(
        selection.rejected,
        [Rejected {
            address: 0x6000,
            name: "cpu_tss_rw",
            module: None,
            reason: Reason::NotAFunction
        }]
    );
    assert!(selection.unmatched.is_empty());
}

#[test]
fn input_9_bpf_and_builtin() {
    let symbols = symbols(
        "ffffffffc003b960 t bpf_prog_7cc47bbf07148bfe_hid_tail_call\t[bpf]\n\
         ffffffffc212d000 t ftrace_trampoline\t[__builtin__ftrace]\n\
         ffffffffc212e000 t bpf_prog_load\t[bpfilter]\n",
    );
    for known in [all(&symbols), Traceable::Unknown] {
        let selection = select(&symbols, &known, &patterns(&["*"]));
        assert_eq!(addresses(&selection), [0xffff_ffff_c212_e000]);
        assert!(selection.rejected.iter().all(|r| r.reason == Reason::Bpf));
        assert_eq!(selection.rejected[1].module, Some("__builtin__ftrace"));
    }
}

#[test]
fn input_10_mapping_symbols() {
    let symbols = symbols(
        "ffffffffc0a25120 t ovs_init\t[openvswitch]\nffffffffc0a25120 t $x\t[openvswitch]\n\
         ffffffffc0a25124 d $d\t[openvswitch]\n",
    );
    let selection = select(
        &symbols,
        &locations([0xffff_ffff_c0a2_5128]),
        &patterns(&["openvswitch:"]),
    );
    assert_eq!(selection.targets[0].name, "ovs_init");
    assert_eq!(selection.targets[0].aliases, [""; 0]);
}

#[test]
fn input_11_unsorted_and_aliased() {
    let symbols = symbols(
        "ffffffffc0000000 t init_b\t[b]\nffffffff81000000 T srso_alias_untrain_ret\n\
         ffffffff81000000 T _stext\nffffffffc0000000 t f_a\t[a]\nffffffff81000000 T _text\n\
         ffffffff81000000 D _data\n",
    );
    let selection = select(&symbols, &all(&symbols), &patterns(&["*", "_stext", "f_*"]));
    assert_eq!(
        selection.targets,
        [
            Target {
                address: 0xffff_ffff_8100_0000,
                name: "srso_alias_untrain_ret",
                module: None,
                aliases: vec!["_stext", "_text"],
                ambiguous: false,
            },
            Target {
                address: 0xffff_ffff_c000_0000,
                name: "init_b",
                module: Some("b"),
                aliases: vec!["f_a"],
                ambiguous: false,
            }
        ]
    );
    assert!(selection.unmatched.is_empty());
}

#[test]
fn input_12_ftrace_placeholders() {
    let symbols = symbols("10 T f\n30 T __ftrace_invalid_address___32\n40 T g\n");
    let known = Locations::parse(b"10 f\n30 __ftrace_invalid_address___32\n").unwrap();
    for known in [
        Traceable::Locations(known),
        names("f\n__ftrace_invalid_address___32\n"),
    ] {
        let selection = select(&symbols, &known, &patterns(&["*"]));
        assert_eq!(addresses(&selection), [0x10]);
    }
}

/// tracefs is closed by lockdown, /proc/kallsyms is not.
#[test]
fn input_13_traceability_unknown() {
    let symbols = symbols("10 T f\n20 t g\n30 D d\n40 W w\n");
    let selection = select(&symbols, &Traceable::Unknown, &patterns(&["*"]));
    assert_eq!(addresses(&selection), [0x10, 0x20, 0x40]);
}

#[test]
fn input_14_patterns() {
    let symbols = symbols(
        "10 t bio_init\n20 t bio_reset\n30 t foo1\n40 t foo12\n50 t tcp_ack\n\
         60 t __pfx_tcp_x\n70 t tcp_ack.isra.0\n",
    );
    assert_eq!(selected(&symbols, &["bio*init"]), ["bio_init"]);
    assert_eq!(selected(&symbols, &["foo??"]), ["foo12"]);
    assert_eq!(
        selected(&symbols, &["tcp_*"]),
        ["tcp_ack", "tcp_ack.isra.0"]
    );
    assert_eq!(selected(&symbols, &["tcp_ack"]), ["tcp_ack"]);
    assert!(patterns(&["a", "*"]).takes_everything());
    assert!(!patterns(&["a*", "vmlinux:*", "/./", "!*"]).takes_everything());
}

// Names and addresses.

const GETPID: &str = "\
ffffffff81000a20 t __pfx___do_sys_getpid
ffffffff81000a30 t __do_sys_getpid
ffffffff81000a30 T __ia32_sys_getpid
ffffffff81000a30 T __x64_sys_getpid
ffffffff81000a60 T __x64_sys_gettid
ffffffff81000a90 T sys_gettid
";

#[test]
fn any_name_selects_and_any_name_takes_away() {
    let symbols = symbols(GETPID);
    let by_address = locations([0xffff_ffff_8100_0a34]);
    let by_name = names("__do_sys_getpid\n");
    for known in [&by_address, &by_name] {
        let selection = select(&symbols, known, &patterns(&["__x64_sys_getpid"]));
        assert_eq!(
            selection.targets,
            [Target {
                address: 0xffff_ffff_8100_0a30,
                name: "__x64_sys_getpid",
                module: None,
                aliases: vec!["__do_sys_getpid", "__ia32_sys_getpid"],
                ambiguous: false,
            }]
        );
        // Two patterns, two names, one function; shown by the first name.
        let both = patterns(&["__x64_sys_getpid", "__ia32_*"]);
        let selection = select(&symbols, known, &both);
        assert_eq!(selection.targets.len(), 1);
        assert_eq!(selection.targets[0].name, "__ia32_sys_getpid");
        assert!(selection.unmatched.is_empty());

        let selection = select(
            &symbols,
            known,
            &patterns(&["__x64_sys_*", "!__do_sys_getpid"]),
        );
        assert_eq!(selection.targets, []);
        assert_eq!(
            reasons(&selection),
            [("__x64_sys_gettid", Reason::NotTraceable)]
        );
    }
}

#[test]
fn a_short_function_does_not_borrow_the_next_ones_entry() {
    let symbols = symbols("10 t stub\n14 t f\n18 D data\n30 t g\n34 D inner\n");
    let selection = select(&symbols, &locations([0x14, 0x34]), &patterns(&["*"]));
    assert_eq!(addresses(&selection), [0x14]);
}

#[test]
fn data_of_the_same_name_is_not_taken() {
    let symbols = symbols("10 D f\n20 t f\n30 B g\n40 r g\t[m]\n50 r h\n");
    let known = all(&symbols);
    let selection = select(&symbols, &known, &patterns(&["f"]));
    assert_eq!(
        (addresses(&selection), selection.rejected.len()),
        (vec![0x20], 0)
    );

    // Globs look at functions alone.
    let selection = select(&symbols, &known, &patterns(&["g*", "/^h$/"]));
    assert_eq!(selection.matched(), 0);
    assert_eq!(selection.unmatched, ["g*", "/^h$/"]);

    let selection = select(&symbols, &known, &patterns(&["g", "f"]));
    assert_eq!(reasons(&selection), [("g", Reason::NotAFunction); 2]);
    let selection = select(&symbols, &known, &patterns(&["m:g", "g", "!vmlinux:g"]));
    assert_eq!(selection.rejected[0].module, Some("m"));
    assert_eq!(selection.rejected.len(), 1);
}

#[test]
fn what_is_taken_away_was_matched() {
    let symbols = symbols("10 t f\n20 D d\n");
    let selection = select(
        &symbols,
        &all(&symbols),
        &patterns(&["f", "d", "nothing", "f*", "!f", "!d"]),
    );
    assert_eq!(selection.matched(), 0);
    assert_eq!(selection.unmatched, ["nothing"]);
}

#[test]
fn an_empty_table_matches_nothing() {
    let symbols = Symbols::default();
    let selection = select(&symbols, &Traceable::Unknown, &patterns(&["*"]));
    assert_eq!(selection.matched(), 0);
    assert_eq!(selection.unmatched, ["*"]);
}

#[test]
fn targets_can_be_rejected_later() {
    let symbols = symbols("10 t a\n20 t b\n30 t c\n40 D d\n");
    let mut selection = select(&symbols, &all(&symbols), &patterns(&["[abc]", "d"]));
    selection.reject(|target| {
        (target.name != "b").then_some(if target.name == "a" {
            Reason::Blacklisted
        } else {
            Reason::KernelRefused { errno: 22 }
        })
    });
    assert_eq!(addresses(&selection), [0x20]);
    assert_eq!(
        reasons(&selection),
        [
            ("a", Reason::Blacklisted),
            ("c", Reason::KernelRefused { errno: 22 }),
            ("d", Reason::NotAFunction)
        ]
    );
    let refused = Reason::KernelRefused { errno: 22 };
    assert_eq!(refused.as_str(), "kernel-refused");
    assert_eq!(
        refused.to_string(),
        "the kernel refused it: Invalid argument (os error 22)"
    );
}

// Patterns.

const MODULES: &str = "\
10 t tcp_ack
20 t udp_ack
30 t tcp_x\t[nf_nat]
40 t nat_x\t[nf_nat]
50 t a::b\t[rust_mod]
60 t x:y
";

#[test]
fn module_parts() {
    let symbols = symbols(MODULES);
    for (texts, expected) in [
        (&["vmlinux:tcp_*"][..], &["tcp_ack"][..]),
        (&["vmlinux:", "!vmlinux:udp*"], &["tcp_ack", "x:y"]),
        (&["nf_nat:"], &["tcp_x", "nat_x"]),
        (&["nf_nat:*"], &["tcp_x", "nat_x"]),
        (&["nf-nat:tcp_x"], &["tcp_x"]),
        (&["nf_*:tcp_*"], &["tcp_x"]),
        (&["*:tcp_*"], &["tcp_ack", "tcp_x"]),
        (&["[!v]*:*_x"], &["tcp_x", "nat_x"]),
        (&["nf_nat:/^n/"], &["nat_x"]),
        (&["/_x$/"], &["tcp_x", "nat_x"]),
        (&["/a:/"], &["a::b"]),
        (&["a::b"], &["a::b"]),
        (&["rust_mod:a::b"], &["a::b"]),
        (&["x\\:y"], &["x:y"]),
        (&["*", "!nf_nat:", "!vmlinux:"], &["a::b"]),
    ] {
        assert_eq!(selected(&symbols, texts), expected, "{texts:?}");
    }
    let selection = select(&symbols, &all(&symbols), &patterns(&["x:y", "nf_na:*"]));
    assert_eq!(selection.unmatched, ["x:y", "nf_na:*"]);
}

#[test]
fn order_does_not_matter() {
    let symbols = symbols(MODULES);
    let expected = ["tcp_ack", "nat_x"];
    let texts = ["!tcp_x", "tcp_*", "*_x", "!/^u/"];
    let mut turned = texts;
    for _ in 0..texts.len() {
        turned.rotate_left(1);
        assert_eq!(selected(&symbols, &turned), expected, "{turned:?}");
    }
}

/// Each pattern alone, one by one, must select what all together do.
#[test]
fn a_list_of_names_and_globs_is_the_union_of_its_patterns() {
    let text = (1..=400)
        .map(|n| format!("{:x} t f{}_{}\n", n * 16, n % 7, n % 11))
        .collect::<Vec<_>>()
        .concat();
    let symbols = symbols(&text);
    let known = all(&symbols);
    let texts = [
        "f1_1", "f2_*", "f[34]_5", "/6$/", "none", "f1_*", "f1_1", "no*",
    ];
    let together = select(&symbols, &known, &patterns(&texts));
    let mut union = Vec::new();
    let mut unmatched = Vec::new();
    for text in texts {
        let alone = select(&symbols, &known, &patterns(&[text]));
        union.extend(addresses(&alone));
        unmatched.extend(alone.unmatched);
    }
    union.sort_unstable();
    union.dedup();
    assert_eq!(addresses(&together), union);
    assert_eq!(together.unmatched, unmatched);
    assert_eq!(unmatched, ["none", "no*"]);
}

fn with_file(texts: &[&str], content: &'static str) -> Result<Patterns, PatternError> {
    Patterns::parse_with(texts, |path| {
        assert_eq!(path, Path::new("list"));
        Ok(content.into())
    })
}

#[test]
fn files_of_patterns() {
    let symbols = symbols(MODULES);
    let known = all(&symbols);
    let list = "# functions\r\n\r\n  tcp_ack\r\n\tnf_nat:\n!tcp_x\n   # end\n/^udp/";
    let selection = select(&symbols, &known, &with_file(&["@list"], list).unwrap());
    assert_eq!(addresses(&selection), [0x10, 0x20, 0x40]);
    let minus = with_file(&["*", "!@list"], "tcp_*\nudp_ack\n").unwrap();
    let selection = select(&symbols, &known, &minus);
    assert_eq!(addresses(&selection), [0x40, 0x50, 0x60]);
    let listed = with_file(&["@list", "x"], "a\nb\n").unwrap();
    assert_eq!(listed.positive().collect::<Vec<_>>(), ["a", "b", "x"]);
}

#[test]
fn files_are_read_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    std::fs::write(&list, "tcp_ack\n").unwrap();
    let read = Patterns::parse([format!("@{}", list.display())]).unwrap();
    assert_eq!(read.positive().collect::<Vec<_>>(), ["tcp_ack"]);

    std::fs::write(&list, b"tcp_\xff\n").unwrap();
    for name in ["list", "missing", "."] {
        let path = folder.path().join(name);
        let error = Patterns::parse([format!("@{}", path.display())]).unwrap_err();
        assert!(matches!(error.kind, PatternErrorKind::File(_)), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.source().unwrap().is::<io::Error>());
    }
}

#[test]
fn faults_quote_the_pattern_and_advise() {
    use PatternErrorKind as Kind;
    type Check = fn(&Kind) -> bool;
    let cases: [(&[&str], &str, Check, &str); 17] = [
        (&[], "", |k| matches!(k, Kind::NoPattern), "'tcp_*'"),
        (
            &["!tcp_*"],
            "!tcp_*",
            |k| matches!(k, Kind::OnlyNegative),
            "'*'",
        ),
        (&["f", ""], "", |k| matches!(k, Kind::Empty), "'*'"),
        (&["!"], "!", |k| matches!(k, Kind::Empty), "'*'"),
        (
            &["!!f"],
            "!!f",
            |k| matches!(k, Kind::DoubleNegative),
            "one `!`",
        ),
        (
            &[":f"],
            ":f",
            |k| matches!(k, Kind::EmptyModule),
            "vmlinux:NAME",
        ),
        (&["//"], "//", |k| matches!(k, Kind::EmptyRegex), "'*'"),
        (&["m://"], "m://", |k| matches!(k, Kind::EmptyRegex), "'*'"),
        (&["/"], "/", |k| matches!(k, Kind::UnclosedRegex), "'/RE/'"),
        (
            &["/f"],
            "/f",
            |k| matches!(k, Kind::UnclosedRegex),
            "'/RE/'",
        ),
        (
            &["/(/"],
            "/(/",
            |k| matches!(k, Kind::Regex(_)),
            "no slashes",
        ),
        (
            &["tcp_["],
            "tcp_[",
            |k| matches!(k, Kind::UnclosedClass),
            "'\\['",
        ),
        (
            &["m[:f"],
            "m[:f",
            |k| matches!(k, Kind::UnclosedClass),
            "'\\['",
        ),
        (
            &["[z-a]"],
            "[z-a]",
            |k| matches!(k, Kind::ReversedRange('z', 'a')),
            "write a-z",
        ),
        (
            &["f\\"],
            "f\\",
            |k| matches!(k, Kind::TrailingBackslash),
            "'\\\\'",
        ),
        (&["@"], "@", |k| matches!(k, Kind::MissingFileName), "@FILE"),
        (&["!@x"], "!@x", |k| matches!(k, Kind::File(_)), "name"),
    ];
    for (texts, quoted, check, advice) in cases {
        let error = Patterns::parse_with(texts, no_file).unwrap_err();
        assert!(check(&error.kind), "{texts:?}: {:?}", error.kind);
        assert_eq!((error.pattern.as_str(), &error.place), (quoted, &None));
        let message = error.to_string();
        assert!(message.contains(&format!("`{quoted}`")), "{message}");
        assert!(message.contains(advice), "{message}");
    }
    let regex = Patterns::parse_with(["/(/"], no_file).unwrap_err();
    assert!(regex.source().is_some());
}

#[test]
fn faults_in_files_name_the_line() {
    use PatternErrorKind as Kind;
    type Check = fn(&Kind) -> bool;
    let cases: [(&str, &'static str, usize, &str, Check); 5] = [
        ("@list", "f\n\n/(/\n", 3, "/(/", |k| {
            matches!(k, Kind::Regex(_))
        }),
        ("@list", "#\r\n tcp_[ \r\n", 2, "tcp_[", |k| {
            matches!(k, Kind::UnclosedClass)
        }),
        ("@list", "@list\n", 1, "@list", |k| {
            matches!(k, Kind::NestedFile)
        }),
        ("@list", "f\n!@list\n", 2, "!@list", |k| {
            matches!(k, Kind::NestedFile)
        }),
        ("!@list", "f\n!g\n", 2, "!g", |k| {
            matches!(k, Kind::DoubleNegative)
        }),
    ];
    for (text, content, line, quoted, check) in cases {
        let error = with_file(&["x", text], content).unwrap_err();
        assert!(check(&error.kind), "{error}");
        assert_eq!(error.pattern, quoted);
        assert_eq!(error.place, Some((PathBuf::from("list"), line)));
        let start = format!("list:{line}: pattern `{quoted}`");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    let empty = with_file(&["@list"], "# nothing\n").unwrap_err();
    assert!(matches!(empty.kind, Kind::NoPattern), "{empty}");
}

// Suggestions.

fn suggested<'a>(symbols: &'a Symbols, pattern: &str) -> Vec<&'a str> {
    suggest(symbols, &Traceable::Unknown, &[pattern.to_owned()])
}

#[test]
fn near_names() {
    let symbols = symbols(
        "10 t tcp_v4_rcv\n20 t tcp_v6_rcv\n30 t __pfx_tcp_v4_rcv\n40 t tcp_v4_rcv.cold\n\
         50 D tcp_v4_rcw\n60 T __x64_sys_getpid\n70 t vfs_read\n80 t unrelated_name\n\
         90 t bpf_prog_tcp_v4_rcw\t[bpf]\n",
    );
    for (pattern, expected) in [
        ("tcp_v4_rvc", &["tcp_v4_rcv", "tcp_v6_rcv"][..]),
        ("tcp_v4_rcvv", &["tcp_v4_rcv", "tcp_v6_rcv"]),
        ("TCP_V4_RCV", &["tcp_v4_rcv", "tcp_v6_rcv"]),
        ("nf_nat:tcp_v4_rv", &["tcp_v4_rcv", "tcp_v6_rcv"]),
        ("sys_getpid", &["__x64_sys_getpid"]),
        ("tpc_v4*", &["tcp_v4_rcv"]),
        ("*_getpidd", &["__x64_sys_getpid"]),
        ("f?_getpid*", &["__x64_sys_getpid"]),
        ("vfs_raed", &["vfs_read"]),
        ("nothing_like_it", &[]),
        ("/tcp_v4_rvc/", &[]),
        ("vf*", &[]),
        ("*", &[]),
    ] {
        assert_eq!(suggested(&symbols, pattern), expected, "{pattern}");
    }
}

#[test]
fn suffixed_names_come_first_and_traceable_ones_before_them() {
    let symbols =
        symbols("10 t fop_bar\n20 t foo_bar.isra.0\n30 t foo_bar.constprop.0\n40 t do_foo_bar\n");
    assert_eq!(
        suggested(&symbols, "foo_bar"),
        [
            "foo_bar.isra.0",
            "foo_bar.constprop.0",
            "fop_bar",
            "do_foo_bar"
        ]
    );
    let unmatched = ["foo_bar".to_owned()];
    assert_eq!(
        suggest(&symbols, &locations([0x10, 0x34]), &unmatched),
        [
            "foo_bar.constprop.0",
            "fop_bar",
            "foo_bar.isra.0",
            "do_foo_bar"
        ]
    );
}

#[test]
fn no_more_than_five_names_each_once() {
    let text = (1..=9)
        .map(|n| format!("{n}0 t f_name_{}\n", n / 2))
        .collect::<Vec<_>>()
        .concat();
    let symbols = symbols(&text);
    let unmatched = vec!["f_name_x".to_owned(); 20];
    let names = suggest(&symbols, &Traceable::Unknown, &unmatched);
    assert_eq!(
        names,
        ["f_name_0", "f_name_1", "f_name_2", "f_name_3", "f_name_4"]
    );
    let text = (1..=9)
        .map(|n| format!("{n}0 t f_name_{n}\n"))
        .collect::<Vec<_>>()
        .concat();
    let symbols = Symbols::parse(text).unwrap();
    assert_eq!(suggested(&symbols, "f_name_x").len(), 5);
}

#[test]
fn modules_that_are_not_loaded_are_named() {
    let symbols = Symbols::parse("ffffffffc0000000 t f\t[nf_nat]\n").unwrap();
    let unmatched = ["nf-nat:x", "tun:*", "*x:y", "vmlinux:z", "a::b", "plain"].map(str::to_owned);
    assert_eq!(missing_modules(&symbols, &unmatched), ["tun"]);
}

/// What is looked at is less, what is found the same.
#[test]
fn a_table_is_selected_from_as_text_is() {
    let text = symbols(
        "0 A tcp_percpu\n10 t __pfx_tcp_ack\n20 T tcp_ack\n20 T __alias\n30 t tcp_ack.cold\n\
         40 t s_next\n48 t s_next\n50 D tcp_data\n60 t udp_rcv\n70 t tcp\n80 t tcp_a\t[m]\n\
         90 t s_next\t[m]\na0 t other\t[n]\nb0 t bpf_prog_1_x\t[bpf]\n",
    );
    let table = text.with_table();
    let traceable = locations([0x20, 0x40, 0x60, 0x80, 0x90, 0xa0]);
    for texts in [
        &["tcp_*"][..],
        &["*"],
        &["tcp_*", "!*ack*"],
        &["s_next", "nowhere"],
        &["s_next", "udp*", "!m:*"],
        &["m:*"],
        &["vmlinux:"],
        &["vmlinux:tcp*", "n:o*"],
        &["/^tcp/", "tcp_data"],
        &["tcp_data", "__alias"],
        &["tcp_data", "m:tcp_data", "udp"],
        &["?cp*", "[a-t]cp"],
        &["bpf_*"],
        &["nothing*"],
    ] {
        let patterns = patterns(texts);
        let expected = select(&text, &traceable, &patterns);
        assert_eq!(select(&table, &traceable, &patterns), expected, "{texts:?}");
    }
}
