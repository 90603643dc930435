//! Type information (Documentation/bpf/btf.rst) with some of the structures
//! that are sought in it.

/// Type information, and where the numbers are in it.
pub(crate) struct Btf {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spots: Vec<usize>,
}

/// A type's name, kind, what follows it, and its size or what it refers to; a
/// member is a name, a type and an offset in bits.
type Type<'t> = (&'t str, u32, &'t [Word<'t>], u32);

/// A word of what follows a type.
#[derive(Clone, Copy)]
enum Word<'t> {
    Number(u32),
    Name(&'t str),
}

use Word::{Name, Number as N};

/// A `long`, pointers, arrays, and structures one in another, also nameless.
pub(crate) fn kernel() -> Btf {
    let types: [Type<'_>; 15] = [
        ("long", 1, &[N(64)], 8),
        ("int", 1, &[N(32)], 4),
        ("char", 1, &[N(8)], 1),
        ("", 2, &[], 13), // a pointer to what comes later
        ("u32", 8, &[], 2),
        ("", 10, &[], 5), // const
        ("", 3, &[N(3), N(2), N(56)], 0),
        (
            "list_head",
            4,
            &[Name("next"), N(4), N(0), Name("prev"), N(4), N(64)],
            16,
        ),
        ("state", 6, &[Name("LIVE"), N(0), Name("GOING"), N(2)], 4),
        (
            "",
            5,
            &[Name("index"), N(6), N(0), Name("order"), N(6), N(0)],
            4,
        ),
        (
            "ftrace_page",
            4,
            &[
                Name("next"),
                N(4),
                N(0),
                Name("records"),
                N(4),
                N(64),
                Name(""),
                N(10),
                N(128),
            ],
            24,
        ),
        ("dyn_ftrace", 4, &[Name("ip"), N(1), N(0)], 16),
        (
            "module",
            4,
            &[
                Name("state"),
                N(9),
                N(0),
                Name("list"),
                N(8),
                N(64),
                Name("name"),
                N(7),
                N(192),
                Name("kallsyms"),
                N(4),
                N(640),
            ],
            88,
        ),
        ("visit", 13, &[Name("module"), N(4)], 2),
        ("kernel_symbol", 4, &[Name("value_offset"), N(2), N(0)], 12),
    ];
    let mut strings = vec![0];
    let mut name = |text: &str| {
        if text.is_empty() {
            return 0;
        }
        let at = u32::try_from(strings.len()).expect("few strings");
        strings.extend(text.bytes().chain([0]));
        at
    };
    let mut words = Vec::new();
    for (called, kind, rest, size) in types {
        let count = match kind {
            4 | 5 => rest.len() / 3,
            6 | 13 => rest.len() / 2,
            _ => 0,
        };
        let info = kind << 24 | u32::try_from(count).expect("few members");
        words.extend([name(called), info, size]);
        words.extend(rest.iter().map(|word| match word {
            Name(text) => name(text),
            N(number) => *number,
        }));
    }
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    let len = |len: usize| u32::try_from(len).expect("a short one");
    let (types, strings_len) = (len(4 * words.len()), len(strings.len()));
    let header = [24, 0, types, types, strings_len];
    for word in header.iter().chain(&words) {
        bytes.extend(word.to_ne_bytes());
    }
    let spots = (4..bytes.len()).step_by(4).collect();
    bytes.extend(strings);
    Btf { bytes, spots }
}
