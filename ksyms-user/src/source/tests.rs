use std::{
    error::Error,
    io::{self, Read, Write},
};

use rustix::io::Errno;

use super::{files::Failure, *};
use crate::kallsyms::{ParseErrorKind, SymbolLines, Symbols, Wanted};

#[test]
fn lockdown_levels() {
    for (text, level) in [
        ("[none] integrity confidentiality\n", Some(Lockdown::None)),
        (
            "none [integrity] confidentiality\n",
            Some(Lockdown::Integrity),
        ),
        (
            "none integrity [confidentiality]\n",
            Some(Lockdown::Confidentiality),
        ),
        ("none integrity confidentiality\n", None),
        ("", None),
    ] {
        assert_eq!(Lockdown::parse(text), level);
    }
    assert!(Lockdown::None < Lockdown::Integrity);
    assert!(Lockdown::Integrity < Lockdown::Confidentiality);
}

fn denied(errno: Errno, root: bool, admin: bool, level: Option<Lockdown>) -> SourceError {
    let failure = Failure {
        call: "open",
        path: "/sys/kernel/tracing/available_filter_functions".into(),
        source: errno.into(),
    };
    SourceError::denied(failure, root, admin, level)
}

#[test]
fn lockdown_is_told_from_missing_permission() {
    let message = |error: SourceError| {
        assert!(error.is_environment());
        assert!(error.source().is_some());
        let message = error.to_string();
        assert!(message.starts_with("open /sys/kernel/tracing/available_filter_functions"));
        message
    };
    let (perm, access) = (Errno::PERM, Errno::ACCESS);
    for errno in [perm, access] {
        let message = message(denied(errno, true, true, Some(Lockdown::Confidentiality)));
        assert!(
            message.contains("locked down (confidentiality)"),
            "{message}"
        );
        assert!(message.contains("Secure Boot off"), "{message}");
    }
    let unknown = message(denied(perm, true, true, None));
    assert!(unknown.contains("probably locked down"), "{unknown}");
    // A security module, a container, and a user.
    for error in [
        denied(access, true, true, None),
        denied(perm, true, false, None),
        denied(perm, true, true, Some(Lockdown::None)),
    ] {
        let message = message(error);
        assert!(message.contains("--privileged"), "{message}");
    }
    let user = message(denied(access, false, false, None));
    assert!(
        user.ends_with("run as root, for example with sudo"),
        "{user}"
    );
}

#[test]
fn hidden_addresses_have_a_remedy() {
    for (level, syslog, remedy) in [
        (Some(2), true, "run `sysctl kernel.kptr_restrict=1`"),
        (Some(2), false, "run `sudo sysctl kernel.kptr_restrict=1`"),
        (Some(1), false, "run as root"),
        (Some(0), false, "run as root"),
        (None, false, "run as root"),
        (Some(1), true, "root of the host"),
    ] {
        let error = SourceError::AddressesHidden(KptrRestrict { level, syslog });
        assert!(error.is_environment());
        let message = error.to_string();
        assert!(message.contains(remedy), "{message}");
    }
}

fn saved(text: &[u8]) -> Result<Symbols, SourceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text).unwrap();
    kallsyms_from(file.path())
}

#[test]
fn saved_copies() {
    assert_eq!(saved(b"10 T f\n").unwrap().len(), 1);

    let error = saved(b"10 T f\n10 T\n").unwrap_err();
    assert!(!error.is_environment());
    assert!(error.to_string().contains(":2 cannot be read"), "{error}");
    assert!(
        matches!(
            &error,
            SourceError::Malformed { source, .. }
                if source.line == 2 && source.kind == ParseErrorKind::MissingName
        ),
        "{error:?}"
    );

    let error = saved(b"0000000000000000 T f\n").unwrap_err();
    assert!(matches!(error, SourceError::NoAddresses { .. }), "{error}");
    assert!(error.to_string().contains("again as root"), "{error}");

    let missing = tempfile::tempdir().unwrap().path().join("System.map");
    let error = kallsyms_from(&missing).unwrap_err();
    assert!(!error.is_environment());
    assert!(
        matches!(
            &error,
            SourceError::Io { call: "open", path, source }
                if *path == missing && source.kind() == io::ErrorKind::NotFound
        ),
        "{error:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let error = kallsyms_from(folder.path()).unwrap_err();
    assert!(
        matches!(error, SourceError::Io { call: "read", .. }),
        "{error:?}"
    );
}

#[test]
fn endless_files_are_not_read_to_their_end() {
    let error = kallsyms_from("/dev/zero").unwrap_err();
    assert!(
        matches!(&error, SourceError::Malformed { source, .. } if source.line == 1),
        "{error:?}"
    );
    // Lines that leave nothing behind.
    let line = format!("10 t ${}\n", "x".repeat(60_000));
    let endless = Endless(line.into_bytes(), 0);
    let lines = SymbolLines::new(0, Wanted::default());
    let error = files::parse_lines(endless, "endless".as_ref(), lines);
    assert!(matches!(error, Err(SourceError::TooLarge { .. })));
}

/// The same again and again.
struct Endless(Vec<u8>, usize);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = (&self.0[self.1..]).read(into)?;
        self.1 = (self.1 + len) % self.0.len();
        Ok(len)
    }
}

/// Lines come in any pieces.
#[test]
fn lines_are_parsed_as_they_are_read() {
    struct Pieces<'t>(&'t [u8], usize);
    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(into.len());
            self.0.read(&mut into[..len])
        }
    }
    let text = b"10 t f\n20 T longer_name\t[m]\r\n30 D g\n";
    let whole = Symbols::parse(text).unwrap();
    for piece in 1..=text.len() {
        let lines = SymbolLines::new(0, Wanted::default());
        let parsed = files::parse_lines(Pieces(text, piece), "pieces".as_ref(), lines);
        assert!(parsed.unwrap().finish().unwrap().iter().eq(&whole));
    }
    let cut = Pieces(&text[..text.len() - 1], 7);
    let lines = SymbolLines::new(0, Wanted::default());
    let error = files::parse_lines(cut, "cut".as_ref(), lines);
    assert!(
        matches!(&error, Err(SourceError::Malformed { source, .. }) if source.line == 3),
        "{:?}",
        error.err()
    );
}

/// The lines of modules are the slow ones.
#[test]
fn reading_ends_behind_the_wanted_modules() {
    let text =
        b"10 t f\n20 t a1\t[a]\n21 t a2\t[a]\n30 t b1\t[nf_b]\n31 t b2\t[nf_b]\n40 t c\t[c]\n";
    for (modules, names) in [
        (Some(&[][..]), &["f"][..]),
        (Some(&["a"]), &["f", "a1", "a2"]),
        (Some(&["nf-b"]), &["f", "a1", "a2", "b1", "b2"]),
        (Some(&["nf_b", "a"]), &["f", "a1", "a2", "b1", "b2"]),
        (Some(&["absent"]), &["f", "a1", "a2", "b1", "b2", "c"]),
        (None, &["f", "a1", "a2", "b1", "b2", "c"]),
    ] {
        let lines = SymbolLines::new(0, Wanted::new(modules));
        let parsed = files::parse_lines(&text[..], "text".as_ref(), lines).unwrap();
        let symbols = parsed.finish().unwrap();
        let found: Vec<_> = symbols.iter().map(|symbol| symbol.name).collect();
        assert_eq!(found, names, "{modules:?}");
    }
}

#[test]
fn locations() {
    let parse = |text: &[u8]| Locations::parse(text).unwrap();
    let text = b"ffffffff81000134 __traceiter_initcall_level\n\
        ffffffffc0a02400 fn [mod]\n\
        ffffffff81000010 __ftrace_invalid_address___16\n\
        ffffffffc0a02500 __ftrace_invalid_address___5 [mod]\n\
        ffffffff81000034 do_one_initcall\r\n\
        ffffffff81000034 do_one_initcall\n";
    assert_eq!(
        parse(text).as_slice(),
        [
            0xffff_ffff_8100_0034,
            0xffff_ffff_8100_0134,
            0xffff_ffff_c0a0_2400
        ]
    );
    assert!(parse(b"").as_slice().is_empty());
    for (text, line, kind) in [
        ("10 f\nf_g\n", 2, ParseErrorKind::BadAddress("f_g".into())),
        ("10 f\n20\n", 2, ParseErrorKind::MissingName),
        (
            "10 f\n20 g [m] h\n",
            2,
            ParseErrorKind::BadModule("h".into()),
        ),
        ("10 f\n20 g\n30 h", 3, ParseErrorKind::Truncated),
    ] {
        let error = Locations::parse(text.as_bytes()).unwrap_err();
        assert_eq!((error.line, error.kind), (line, kind), "{text:?}");
    }
}

#[test]
fn a_location_belongs_to_the_function_whose_entry_it_is_at() {
    let locations = Locations::new(vec![0x100, 0x204, 0x308, 0x409, 0x50c]);
    for (address, next, covered) in [
        (0x100, 0x110, true),
        // Behind ENDBR64 on x86, behind BTI on arm64.
        (0x200, 0x210, true),
        (0x300, 0x310, true),
        (0x400, 0x410, false),
        (0x500, 0x510, false),
        // It is the following one's.
        (0x200, 0x204, false),
        (0x200, 0x205, true),
        (0xff, 0x100, false),
        // In the middle, and behind the last.
        (0x101, 0x110, false),
        (0x600, u64::MAX, false),
        (0, 0x100, false),
        (u64::MAX, u64::MAX, false),
    ] {
        assert_eq!(locations.covers(address, next), covered, "{address:#x}");
    }
}

#[test]
fn names() {
    let names = Names::parse(
        b"t_stop\nicap_read [xclmgmt]\nicap_read [xocl]\nt_stop\n\
          __ftrace_invalid_address___80\ntry_to_wake_up\r\n",
    )
    .unwrap();
    for (name, module, count) in [
        ("t_stop", None, 2),
        ("t_stop", Some("xocl"), 0),
        ("icap_read", None, 0),
        ("icap_read", Some("xocl"), 1),
        ("__ftrace_invalid_address___80", None, 0),
        ("t_sto", None, 0),
        ("try_to_wake_up", None, 1),
        ("try_to_wake_up.llvm.1234567890", None, 1),
        ("try_to_wake_up.part.0", None, 0),
    ] {
        assert_eq!(names.count(name, module), count, "{name} {module:?}");
    }
    assert_eq!(Traceable::Names(Box::new(names)).function_count(), Some(5));
    assert_eq!(Traceable::Unknown.function_count(), None);
    assert_eq!(
        Traceable::Locations(Locations::new(vec![2, 1, 2])).function_count(),
        Some(2)
    );
    let error = Names::parse(b"f\ng h\n").unwrap_err();
    assert_eq!(
        (error.line, error.kind),
        (2, ParseErrorKind::BadModule("h".into()))
    );
    let error = Names::parse(b"f\ng\nh").unwrap_err();
    assert_eq!((error.line, error.kind), (3, ParseErrorKind::Truncated));
}

#[test]
fn blacklist() {
    let text = b"0xffffffff81000000-0xffffffff81000010\tname\n\
        0xffffffff81000100-0xffffffff81000140\ta\n\
        0xffffffff81000120-0xffffffff81000130\tb\n\
        0xffffffff81000140-0xffffffff81000150\tc\n\
        0xffffffff81000050-0xffffffff81000050\tempty\n";
    let blacklist = Blacklist::parse(text).unwrap().unwrap();
    for (offset, forbidden) in [
        (0, true),
        (0x0f, true),
        (0x10, false),
        (0x50, false),
        (0xff, false),
        (0x100, true),
        (0x12f, true),
        (0x135, true),
        (0x14f, true),
        (0x150, false),
    ] {
        let address = 0xffff_ffff_8100_0000 + offset;
        assert_eq!(blacklist.contains(address), forbidden, "{address:#x}");
    }
    assert!(!blacklist.contains(0) && !blacklist.contains(u64::MAX));
    assert!(!blacklist.is_empty());
}

#[test]
fn unknown_blacklist_is_not_an_empty_one() {
    let empty = Blacklist::parse(b"").unwrap().unwrap();
    assert!(empty.is_empty() && !empty.contains(0x10));
    let hidden = b"0x0000000000000000-0x0000000000000000\tf\n";
    assert_eq!(Blacklist::parse(hidden).unwrap(), None);
    for line in [
        "",
        "10-20\tf",
        "0x10\tf",
        "0x10-20\tf",
        "0xg-0x20\tf",
        "0x10-0x2z\tf",
    ] {
        let error = Blacklist::parse(format!("0x10-0x20\tf\n{line}\n").as_bytes()).unwrap_err();
        assert_eq!(error.line, 2, "{line}");
        assert!(error.to_string().contains("0xSTART-0xEND NAME"), "{error}");
    }
    let error = Blacklist::parse(b"0x10-0x20\tf").unwrap_err();
    assert_eq!((error.line, error.kind), (1, ParseErrorKind::Truncated));
}
