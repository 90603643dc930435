//! Where the kernel's variables are that this module reads.

use crate::kallsyms::{Step, SymbolTable};

/// Their names.
pub(super) const NAMES: [&str; 11] = [
    "_stext",
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
        for name in NAMES {
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

/// Finds names among compressed ones by their codes.
///
/// Nearly all names are told apart from all that are sought by their first
/// code, or by the second where the first is the type letter alone.
pub(super) struct Matcher<'t> {
    names: &'t [&'static str],
    token_table: &'t [u8],
    token_index: &'t [u16],
    /// For each first code the names that may begin with it, a bit each.
    first: Box<[u32; 256]>,
    /// For each second code the same.
    second: Box<[u32; 256]>,
}

impl<'t> Matcher<'t> {
    /// Takes at most 32 names. The tokens need not be sound: a code that has
    /// none stands for nothing.
    pub(super) fn new(
        names: &'t [&'static str],
        token_table: &'t [u8],
        token_index: &'t [u16],
    ) -> Self {
        let mut matcher = Self {
            names,
            token_table,
            token_index,
            first: Box::new([0; 256]),
            second: Box::new([0; 256]),
        };
        for code in 0..=u8::MAX {
            let token = matcher.token(code);
            let begin = |token: &[u8]| {
                names.iter().rev().fold(0, |bits, name| {
                    bits << 1 | u32::from(name.as_bytes().starts_with(token))
                })
            };
            let bits = (token.get(1..).map_or(0, begin), begin(token));
            matcher.first[usize::from(code)] = bits.0;
            matcher.second[usize::from(code)] = bits.1;
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
        if let &[second, ..] = rest {
            // Whatever follows the type letter alone.
            if bits.count_ones() as usize == self.names.len() {
                bits = self.second[usize::from(second)];
            }
        }
        if bits == 0 {
            None
        } else {
            self.compare(bits, codes)
        }
    }

    fn compare(&self, mut bits: u32, codes: &[u8]) -> Option<&'static str> {
        while bits != 0 {
            let name = self.names[bits.trailing_zeros() as usize];
            let mut text = codes.iter().flat_map(|&code| self.token(code)).skip(1);
            if name.bytes().all(|byte| text.next() == Some(&byte)) && text.next().is_none() {
                return Some(name);
            }
            bits &= bits - 1;
        }
        None
    }

    fn token(&self, code: u8) -> &'t [u8] {
        let rest = self
            .token_index
            .get(usize::from(code))
            .and_then(|&start| self.token_table.get(usize::from(start)..))
            .unwrap_or_default();
        let len = rest.iter().position(|&byte| byte == 0);
        &rest[..len.unwrap_or_default()]
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
        let table = SymbolTable::encode(&Symbols::parse(text.into()).unwrap()).unwrap();
        let mut matched = Variables::default();
        let parts = table.to_parts();
        let matcher = Matcher::new(&NAMES, &parts.token_table, &parts.token_index);
        let mut rest = &parts.names[..];
        for index in 0..parts.count {
            let len = usize::from(rest[0]);
            if let Some(name) = matcher.find(&rest[1..=len]) {
                matched.add(name, table.address(index));
            }
            rest = &rest[1 + len..];
        }
        for variables in [matched, Variables::of(&table)] {
            assert_eq!(variables.all("modules").collect::<Vec<_>>(), [2, 5]);
            assert_eq!(variables.get("_stext"), Some(1));
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
