//! Where the kernel's variables are that this module reads.

use crate::kallsyms::{Step, SymbolTable};

/// The begin of the kernel's code.
pub(super) const STEXT: &str = "_stext";

/// The names of the others.
pub(super) const NAMES: [&str; 10] = [
    "bpf_jit_harden",
    "bpf_jit_kallsyms",
    "bpf_kallsyms",
    "ftrace_mod_maps",
    "ftrace_ops_trampoline_list",
    "ftrace_pages_start",
    "kallsyms_seqs_of_names",
    "kprobe_insn_slots",
    "kprobe_optinsn_slots",
    "modules",
];

/// Addresses by name. A kernel does not have all of them, and static ones may
/// share a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    found: Vec<(&'static str, u64)>,
}

impl Variables {
    pub(super) fn add(&mut self, name: &'static str, address: u64) {
        self.found.push((name, address));
    }

    /// Looks them up in a table, which has to put its names in order for that.
    pub(super) fn of(table: &SymbolTable) -> Self {
        let mut variables = Self::default();
        for name in NAMES.into_iter().chain([STEXT]) {
            for place in table.range(Step::Sequence, name) {
                variables.add(name, table.address(table.placed(place)));
            }
        }
        variables
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = u64> {
        self.found
            .iter()
            .filter(move |(other, _)| *other == name)
            .map(|&(_, address)| address)
    }

    /// The first of a name.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.all(name).next()
    }
}

/// Up to how many letters in the first code the second is looked at.
const LETTERS: usize = 4;

/// Finds names among compressed ones by their codes.
///
/// Nearly all names are told apart from all that are sought by their first
/// two codes.
pub(super) struct Matcher<'t> {
    names: &'t [&'static str],
    tokens: Box<[&'t [u8]; 256]>,
    /// For each first code the names that may begin with it, a bit each.
    first: Box<[u32; 256]>,
    /// How many letters of the name the first code has.
    letters: Box<[usize; 256]>,
    /// For so many letters and each second code the names that may go on so.
    second: Box<[[u32; 256]; LETTERS]>,
}

impl<'t> Matcher<'t> {
    /// Takes at most 32 names. The tokens need not be sound: a code that has
    /// none stands for nothing.
    pub(super) fn new(
        names: &'t [&'static str],
        token_table: &'t [u8],
        token_index: &'t [u16],
    ) -> Self {
        let bits = |letters, token: &[u8]| {
            names.iter().rev().fold(0, |bits, name| {
                let rest = name.as_bytes().get(letters..);
                bits << 1 | u32::from(rest.is_some_and(|rest| rest.starts_with(token)))
            })
        };
        let mut matcher = Self {
            names,
            tokens: Box::new([&[]; 256]),
            first: Box::new([0; 256]),
            letters: Box::new([0; 256]),
            second: Box::new([[0; 256]; LETTERS]),
        };
        for (code, &start) in token_index.iter().enumerate().take(256) {
            let rest = token_table.get(usize::from(start)..).unwrap_or_default();
            let len = rest.iter().position(|&byte| byte == 0);
            let token = &rest[..len.unwrap_or_default()];
            matcher.tokens[code] = token;
            if let [_, name @ ..] = token {
                matcher.first[code] = bits(0, name);
                matcher.letters[code] = name.len();
            }
            for letters in 0..LETTERS {
                matcher.second[letters][code] = bits(letters, token);
            }
        }
        matcher
    }

    /// Which of the names the codes stand for, behind the type letter.
    #[inline]
    pub(super) fn find(&self, codes: &[u8]) -> Option<&'static str> {
        let &[first, ref rest @ ..] = codes else {
            return None;
        };
        let mut bits = self.first[usize::from(first)];
        if bits == 0 {
            return None;
        }
        if let (Some(&second), Some(by_code)) = (
            rest.first(),
            self.second.get(self.letters[usize::from(first)]),
        ) {
            bits &= by_code[usize::from(second)];
        }
        self.compare(bits, codes)
    }

    fn compare(&self, mut bits: u32, codes: &[u8]) -> Option<&'static str> {
        while bits != 0 {
            let name = self.names[bits.trailing_zeros() as usize];
            let mut rest = Some(name.as_bytes());
            let mut skip = 1;
            for &code in codes {
                let token = self.tokens[usize::from(code)];
                rest = rest.and_then(|rest| rest.strip_prefix(token.get(skip..)?));
                if rest.is_none() {
                    break;
                }
                skip = 0;
            }
            if rest == Some(&[]) {
                return Some(name);
            }
            bits &= bits - 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kallsyms::Symbols;

    #[test]
    fn both_ways_find_the_same() {
        let text = "1 T _stext\n2 d modules\n3 d module\n4 d modulesx\n5 b modules\n\
                    6 t ftrace_pages_start\n7 t ftrace_pages_start.cold\n8 b ftrace_pages\n";
        let table = SymbolTable::encode(&Symbols::parse(text).unwrap()).unwrap();
        let mut by_codes = Variables::default();
        let parts = table.to_parts();
        let matcher = Matcher::new(&NAMES, &parts.token_table, &parts.token_index);
        let mut rest = &parts.names[..];
        for index in 0..parts.count {
            let len = usize::from(rest[0]);
            if let Some(name) = matcher.find(&rest[1..=len]) {
                by_codes.add(name, table.address(index));
            }
            rest = &rest[1 + len..];
        }
        assert_eq!(by_codes.get(STEXT), None);
        let all = Variables::of(&table);
        assert_eq!(all.get(STEXT), Some(1));
        for variables in [by_codes, all] {
            assert_eq!(variables.all("modules").collect::<Vec<_>>(), [2, 5]);
            assert_eq!(variables.all("ftrace_pages_start").collect::<Vec<_>>(), [6]);
            assert_eq!(variables.get("bpf_kallsyms"), None);
        }
    }

    #[test]
    fn tokens_that_are_not_there_match_nothing() {
        let matcher = Matcher::new(&NAMES, b"modules", &[0, 100]);
        for codes in [&[][..], &[0], &[1, 0], &[9, 9, 9]] {
            assert_eq!(matcher.find(codes), None);
        }
    }
}
