//! How the kernel lays out its structures, from its type information (BTF).

use std::ops::Range;

use super::{KcoreError, memory::field};

/// The structures, and of each the members, that this module reads.
const WANTED: [(&str, &[&str]); 11] = [
    ("ftrace_page", &["next", "records", "index"]),
    ("dyn_ftrace", &["ip"]),
    (
        "module",
        &["state", "list", "name", "syms", "num_syms", "kallsyms"],
    ),
    (
        "mod_kallsyms",
        &["symtab", "num_symtab", "strtab", "typetab"],
    ),
    ("kernel_symbol", &["value_offset", "name_offset"]),
    ("bpf_ksym", &["start", "name", "lnode"]),
    ("ftrace_mod_map", &["list", "mod", "funcs"]),
    ("ftrace_mod_func", &["list", "name", "ip"]),
    ("ftrace_ops", &["trampoline", "list"]),
    ("kprobe_insn_cache", &["sym", "pages"]),
    ("kprobe_insn_page", &["list", "insns"]),
];

/// Where the kernel has the members of its structures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layouts {
    structures: Vec<Structure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Structure {
    name: &'static str,
    size: usize,
    members: Vec<(&'static str, Member)>,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it begins in the structure, in bytes.
    pub offset: usize,
    /// How many bytes it has.
    pub size: usize,
}

impl Layouts {
    /// Finds the structures that this crate reads in the content of
    /// /sys/kernel/btf/vmlinux (Documentation/bpf/btf.rst).
    ///
    /// One pass over the types. What this kernel does not have is missed when
    /// it is needed.
    ///
    /// # Errors
    ///
    /// [`KcoreError::Btf`] says what is malformed, and where.
    pub fn parse(btf: &[u8]) -> Result<Self, KcoreError> {
        Self::find(btf, &WANTED)
    }

    fn find(
        btf: &[u8],
        wanted: &[(&'static str, &'static [&'static str])],
    ) -> Result<Self, KcoreError> {
        Types::new(btf)?.find(wanted)
    }

    /// The bytes of a structure.
    pub(super) fn size(&self, name: &'static str) -> Result<usize, KcoreError> {
        self.structure(name, "size").map(|found| found.size)
    }

    /// A member of a structure, which lies within it.
    pub(super) fn member(
        &self,
        name: &'static str,
        member: &'static str,
    ) -> Result<Member, KcoreError> {
        self.structure(name, member)?
            .members
            .iter()
            .find(|(other, _)| *other == member)
            .map(|&(_, member)| member)
            .ok_or(KcoreError::Layout { name, member })
    }

    fn structure(
        &self,
        name: &'static str,
        member: &'static str,
    ) -> Result<&Structure, KcoreError> {
        self.structures
            .iter()
            .find(|structure| structure.name == name)
            .ok_or(KcoreError::Layout { name, member })
    }
}

/// Kinds of types (include/uapi/linux/btf.h).
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// For each kind the bytes that follow a type's first twelve, and those that
/// follow for each of its members.
const TRAILING: [(usize, usize); 20] = [
    (0, 0),
    (4, 0), // an integer's encoding
    (0, 0),
    (12, 0), // an array's element, index and length
    (0, 12), // members
    (0, 12),
    (0, 8), // enumerators
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 8),  // parameters
    (4, 0),  // a variable's linkage
    (0, 12), // variables of a section
    (0, 0),
    (4, 0), // which member a tag is on
    (0, 0),
    (0, 12), // enumerators of 64 bits
];

/// How many types lie from one whose place is kept to the next.
const MARKED: usize = 512;

/// How deep types may be nested that are looked into: the kernel's own come
/// to less than half.
const MAX_DEPTH: usize = 16;

/// How many members are looked at in all. The structures that are wanted have
/// some 500.
const MAX_MEMBERS: usize = 100_000;

struct Types<'b> {
    btf: &'b [u8],
    range: Range<usize>,
    strings: &'b [u8],
    /// Where every so manyth type begins, as far as they were walked.
    marks: Vec<usize>,
}

/// A type's first twelve bytes.
#[derive(Clone, Copy)]
struct Type {
    at: usize,
    name: u32,
    kind: u32,
    count: usize,
    /// Its size in bytes, or the type that it refers to.
    size: u32,
    /// Whether members' offsets share their word with a bit field's width.
    flagged: bool,
}

impl Type {
    fn end(self) -> usize {
        let (fixed, each) = TRAILING[self.kind as usize];
        self.at + 12 + fixed + each * self.count
    }
}

const fn wrong(what: &'static str, offset: usize) -> KcoreError {
    KcoreError::Btf { what, offset }
}

impl<'b> Types<'b> {
    fn new(btf: &'b [u8]) -> Result<Self, KcoreError> {
        let word = |offset| {
            field(btf, offset)
                .map(u32::from_ne_bytes)
                .and_then(|word| usize::try_from(word).ok())
                .ok_or(wrong("the end of a header", btf.len()))
        };
        if field(btf, 0).map(u16::from_ne_bytes) != Some(0xeb9f) {
            return Err(wrong("no BTF of this machine's byte order", 0));
        }
        let header = word(4)?;
        let section = |at| {
            let start = header.saturating_add(word(at)?);
            let end = start.saturating_add(word(at + 4)?);
            if end > btf.len() {
                return Err(wrong("a section that ends outside", at));
            }
            Ok(start..end)
        };
        let range = section(8)?;
        let strings = &btf[section(16)?];
        Ok(Self {
            btf,
            range,
            strings,
            marks: Vec::new(),
        })
    }

    /// The type that begins at `at`.
    fn type_at(&self, at: usize) -> Result<Type, KcoreError> {
        let &[n0, n1, n2, n3, i0, i1, i2, i3, s0, s1, s2, s3] = self.btf[..self.range.end]
            .get(at..)
            .and_then(|rest| rest.first_chunk::<12>())
            .ok_or(wrong("the end of the types within a type", at))?;
        let info = u32::from_ne_bytes([i0, i1, i2, i3]);
        let found = Type {
            at,
            name: u32::from_ne_bytes([n0, n1, n2, n3]),
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            size: u32::from_ne_bytes([s0, s1, s2, s3]),
            flagged: info >> 31 != 0,
        };
        if found.kind == 0 || found.kind as usize >= TRAILING.len() {
            return Err(wrong("a type of an unknown kind", at));
        }
        if found.end() > self.range.end {
            return Err(wrong("a type longer than the types", at));
        }
        Ok(found)
    }

    fn find(
        mut self,
        wanted: &[(&'static str, &'static [&'static str])],
    ) -> Result<Layouts, KcoreError> {
        // Nearly all names differ from those that are wanted in their first
        // byte.
        let mut begins = [false; 256];
        for (name, _) in wanted {
            begins[usize::from(name.as_bytes()[0])] = true;
        }
        let mut found = vec![None; wanted.len()];
        let mut missing = wanted.len();
        let (mut at, mut until_mark) = (self.range.start, 1);
        while at < self.range.end && missing > 0 {
            until_mark -= 1;
            if until_mark == 0 {
                self.marks.push(at);
                until_mark = MARKED;
            }
            let next = self.type_at(at)?;
            if next.kind == kind::STRUCT && begins[usize::from(self.first_byte(next.name))] {
                for (slot, (name, _)) in found.iter_mut().zip(wanted) {
                    if slot.is_none() && self.has_name(next.name, name) {
                        *slot = Some(next);
                        missing -= 1;
                    }
                }
            }
            at = next.end();
        }
        let mut budget = MAX_MEMBERS;
        let mut structures = Vec::with_capacity(wanted.len());
        for (&(name, members), found) in wanted.iter().zip(found) {
            let Some(found) = found else { continue };
            let mut structure = Structure {
                name,
                size: found.size as usize,
                members: Vec::with_capacity(members.len()),
            };
            self.members(found, 0, 0, &mut budget, members, &mut structure)?;
            structures.push(structure);
        }
        Ok(Layouts { structures })
    }

    /// Adds the members that are `wanted` of a structure or union, which begins
    /// at `base`, and of those without a name in it.
    fn members(
        &self,
        of: Type,
        base: usize,
        depth: usize,
        budget: &mut usize,
        wanted: &[&'static str],
        into: &mut Structure,
    ) -> Result<(), KcoreError> {
        for member in self.btf[of.at + 12..of.end()].as_chunks::<12>().0 {
            let word = |at| u32::from_ne_bytes(field(member, at).unwrap_or_default());
            let (name, id, bits) = (word(0), word(4), word(8));
            *budget = budget
                .checked_sub(1)
                .ok_or(wrong("structures nested without end", of.at))?;
            let bits = if of.flagged { bits & 0xff_ffff } else { bits };
            let offset = base + bits as usize / 8;
            if self.has_name(name, "") {
                let inner = self.by_id(id)?;
                if depth < MAX_DEPTH && matches!(inner.kind, kind::STRUCT | kind::UNION) {
                    self.members(inner, offset, depth + 1, budget, wanted, into)?;
                }
            } else if let Some(&name) = wanted.iter().find(|wanted| self.has_name(name, wanted)) {
                let size = self.size_of(id)?;
                if offset.saturating_add(size) > into.size {
                    return Err(wrong("a member that ends outside of its structure", of.at));
                }
                into.members.push((name, Member { offset, size }));
            }
        }
        Ok(())
    }

    /// The bytes of a type.
    fn size_of(&self, mut id: u32) -> Result<usize, KcoreError> {
        let mut factor: usize = 1;
        for _ in 0..MAX_DEPTH {
            let of = self.by_id(id)?;
            let one = match of.kind {
                kind::INT
                | kind::STRUCT
                | kind::UNION
                | kind::ENUM
                | kind::ENUM64
                | kind::FLOAT => of.size as usize,
                kind::POINTER => size_of::<u64>(),
                kind::ARRAY => {
                    let word =
                        |at| u32::from_ne_bytes(field(self.btf, of.at + at).unwrap_or_default());
                    id = word(12);
                    factor = factor.saturating_mul(word(20) as usize);
                    continue;
                }
                kind::TYPEDEF..=kind::RESTRICT | kind::TYPE_TAG => {
                    id = of.size;
                    continue;
                }
                _ => return Err(wrong("a member of a type without size", of.at)),
            };
            return Ok(one.saturating_mul(factor));
        }
        Err(wrong("types nested without end", self.range.start))
    }

    /// The type of a number; they are counted from 1.
    fn by_id(&self, id: u32) -> Result<Type, KcoreError> {
        let index = (id as usize)
            .checked_sub(1)
            .ok_or(wrong("a member without a type", self.range.start))?;
        // After the last mark, there may be many more.
        let mark = (index / MARKED).min(self.marks.len().saturating_sub(1));
        let mut at = self.marks.get(mark).copied().unwrap_or(self.range.start);
        for _ in mark * MARKED..index {
            at = self.type_at(at)?.end();
        }
        self.type_at(at)
    }

    /// The first byte of the string at `offset`; NUL if there is none.
    fn first_byte(&self, offset: u32) -> u8 {
        self.strings
            .get(offset as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Whether the string at `offset` is `name`.
    fn has_name(&self, offset: u32, name: &str) -> bool {
        self.strings
            .get(offset as usize..)
            .and_then(|rest| rest.strip_prefix(name.as_bytes()))
            .is_some_and(|rest| rest.first() == Some(&0))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes type information.
    #[derive(Default)]
    pub(in super::super) struct Builder {
        types: Vec<u8>,
        strings: Vec<u8>,
        count: u32,
    }

    impl Builder {
        fn string(&mut self, text: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if text.is_empty() {
                return 0;
            }
            let at = u32::try_from(self.strings.len()).unwrap();
            self.strings.extend(text.bytes().chain([0]));
            at
        }

        pub(in super::super) fn add(
            &mut self,
            kind: u32,
            name: &str,
            size: u32,
            rest: &[u32],
        ) -> u32 {
            let each = TRAILING[kind as usize].1 / 4;
            let count = rest.len().checked_div(each).unwrap_or_default();
            let info = kind << 24 | u32::try_from(count).unwrap();
            for word in [self.string(name), info, size].iter().chain(rest) {
                self.types.extend(word.to_ne_bytes());
            }
            self.count += 1;
            self.count
        }

        /// Members are name, type and offset in bytes.
        pub(in super::super) fn structure(
            &mut self,
            kind: u32,
            name: &str,
            size: u32,
            members: &[(&str, u32, u32)],
        ) -> u32 {
            let rest: Vec<u32> = members
                .iter()
                .flat_map(|&(name, id, offset)| [self.string(name), id, offset * 8])
                .collect();
            self.add(kind, name, size, &rest)
        }

        pub(in super::super) fn build(&self) -> Vec<u8> {
            let len = |part: &[u8]| u32::try_from(part.len()).unwrap();
            let mut btf = 0xeb9f_u16.to_ne_bytes().to_vec();
            btf.extend([1, 0]);
            let (types, strings) = (len(&self.types), len(&self.strings));
            for word in [24, 0, types, types, strings] {
                btf.extend(word.to_ne_bytes());
            }
            btf.extend(&self.types);
            btf.extend(&self.strings);
            btf
        }
    }

    const SOUGHT: [(&str, &[&str]); 2] = [
        ("outer", &["pointer", "text", "deep", "absent"]),
        ("absent", &["x"]),
    ];

    fn sample() -> Builder {
        let mut types = Builder::default();
        let int = types.add(kind::INT, "int", 4, &[32]);
        let alias = types.add(kind::TYPEDEF, "alias", int, &[]);
        // Refers to a type that comes later.
        types.structure(
            kind::STRUCT,
            "outer",
            64,
            &[
                ("pointer", 4, 8),
                ("text", 5, 16),
                ("", 6, 32),
                ("last", alias, 60),
            ],
        );
        types.add(kind::POINTER, "", 3, &[]);
        types.add(kind::ARRAY, "", 0, &[alias, int, 3]);
        types.structure(kind::UNION, "", 16, &[("", 7, 0), ("other", int, 0)]);
        types.structure(kind::STRUCT, "", 16, &[("deep", alias, 12)]);
        types.structure(kind::STRUCT, "outerspace", 4, &[("pointer", int, 0)]);
        types
    }

    #[test]
    fn members_are_found_also_in_nameless_ones() {
        let layouts = Layouts::find(&sample().build(), &SOUGHT).unwrap();
        assert_eq!(layouts.size("outer").unwrap(), 64);
        for (member, offset, size) in [("pointer", 8, 8), ("text", 16, 12), ("deep", 44, 4)] {
            let expected = Member { offset, size };
            assert_eq!(layouts.member("outer", member).unwrap(), expected);
        }
        for (name, member) in [("outer", "absent"), ("absent", "x")] {
            let error = layouts.member(name, member).unwrap_err();
            assert!(matches!(error, KcoreError::Layout { .. }), "{error}");
        }
    }

    #[test]
    fn types_past_many_others_are_found() {
        let mut types = Builder::default();
        for _ in 0..3 * MARKED {
            types.add(kind::POINTER, "", 0, &[]);
        }
        let last = types.count + 2 + u32::try_from(MARKED).unwrap();
        types.structure(kind::STRUCT, "outer", 64, &[("text", last, 0)]);
        for _ in 0..MARKED {
            types.add(kind::POINTER, "", 0, &[]);
        }
        types.add(kind::INT, "long", 8, &[64]);
        for sought in [&SOUGHT[..], &SOUGHT[..1]] {
            let layouts = Layouts::find(&types.build(), sought).unwrap();
            assert_eq!(layouts.member("outer", "text").unwrap().size, 8);
        }
    }

    #[test]
    fn what_is_malformed_is_named() {
        let good = sample().build();
        for len in 0..good.len() {
            let error = Layouts::find(&good[..len], &SOUGHT).unwrap_err();
            assert!(matches!(error, KcoreError::Btf { .. }), "{len}: {error}");
        }
        // Any byte may be any other: an answer or an error, but no panic.
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = Layouts::find(&bad, &SOUGHT);
            }
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let mut itself = Builder::default();
        itself.structure(kind::STRUCT, "outer", 64, &vec![("", 1, 0); 1000]);
        let mut alias = Builder::default();
        alias.add(kind::TYPEDEF, "t", 1, &[]);
        alias.structure(kind::STRUCT, "outer", 64, &[("text", 1, 0)]);
        for types in [itself, alias] {
            let error = Layouts::find(&types.build(), &SOUGHT).unwrap_err();
            assert!(error.to_string().contains("nested without end"), "{error}");
        }
    }

    #[test]
    fn members_lie_in_their_structure() {
        for members in [&[("text", 1, 4)][..], &[("text", 2, 0)], &[("", 3, 4)]] {
            let mut types = Builder::default();
            let long = types.add(kind::INT, "long", 8, &[64]);
            types.add(kind::ARRAY, "", 0, &[long, long, u32::MAX]);
            types.structure(kind::STRUCT, "", 8, &[("deep", long, 0)]);
            types.structure(kind::STRUCT, "outer", 8, members);
            let error = Layouts::find(&types.build(), &SOUGHT).unwrap_err();
            assert!(error.to_string().contains("outside"), "{error}");
        }
    }
}
