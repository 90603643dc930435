//! Opening the file.

use std::io::Write as _;

use super::*;

fn opened(bytes: &[u8]) -> Result<Kcore, SourceError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    Kcore::open_path(file.path())
}

#[test]
fn a_missing_file_is_unavailable() {
    let error = Kcore::open_path(Path::new("/nonexistent/kcore")).unwrap_err();
    assert!(matches!(error, SourceError::Unavailable { .. }));
    assert!(error.is_environment());
    assert!(error.to_string().contains("CONFIG_PROC_KCORE"), "{error}");
}

#[test]
fn what_is_no_kcore_is_refused() {
    let error = opened(b"short").unwrap_err();
    assert!(matches!(error, SourceError::Io { call: "read", .. }));
    let error = opened(&[0; 4096]).unwrap_err();
    assert!(matches!(error, SourceError::Kcore { .. }));
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "no ELF header at offset 0x0");
    assert!(error.to_string().contains("/proc/kallsyms"), "{error}");
}

mod structures {
    //! A kernel's structures in memory that is made up.

    use std::{fmt::Write as _, sync::LazyLock};

    use super::super::{
        layouts::tests::Builder,
        memory::{Fake, list},
        variables::{STEXT, Variables},
        *,
    };
    use crate::kallsyms::{Symbols, TableParts};

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const TABLES: u64 = 0xffff_ffff_8200_0000;
    const HEAP: u64 = 0xffff_8880_0000_0000;

    fn compressed() -> TableParts {
        let mut text = format!("{TEXT:x} T _stext\n{TEXT:x} t first\n");
        for index in 1..600 {
            writeln!(text, "{:x} t function_{index}", TEXT + 32 * index).unwrap();
        }
        for (name, offset) in [("kallsyms_names", 0), ("kallsyms_seqs_of_names", 0x10_0000)] {
            writeln!(text, "{:x} R {name}", TABLES + offset).unwrap();
        }
        let symbols = Symbols::parse(text).unwrap();
        let table = SymbolTable::encode(&symbols).unwrap();
        let _ = table.first(crate::kallsyms::Step::Sequence, "first");
        table.to_parts()
    }

    /// The tables in memory, and the text of VMCOREINFO.
    fn image(parts: &TableParts, place_relative: bool) -> (Fake, String) {
        let table = SymbolTable::from_parts(parts.clone()).unwrap();
        let start = TABLES + 0x30_0000;
        let offsets: Vec<u8> = (0..table.len())
            .flat_map(|index| {
                let address = table.address(index);
                let offset = if place_relative {
                    address.wrapping_sub(start + 4 * index as u64).cast_signed()
                } else {
                    -1 - (address - TEXT).cast_signed()
                };
                i32::try_from(offset).unwrap().to_ne_bytes()
            })
            .collect();
        let mut info = format!("OSRELEASE=7\nSYMBOL(_stext)={TEXT:x}\n");
        let mut memory = Fake::default();
        let index = parts.token_index.iter();
        let mut names = parts.names.clone();
        names.resize(0x1_0000, 0xa5);
        let mut tokens = parts.token_table.clone();
        tokens.resize(0x1000, 0);
        for (name, offset, bytes) in [
            ("kallsyms_names", 0, names),
            ("kallsyms_token_table", 0x1_0000, tokens),
            (
                "kallsyms_token_index",
                0x1_1000,
                index.flat_map(|at| at.to_ne_bytes()).collect(),
            ),
            (
                "kallsyms_seqs_of_names",
                0x10_0000,
                parts.seqs_of_names.clone().unwrap(),
            ),
            (
                "kallsyms_num_syms",
                0x20_0000,
                u32::try_from(parts.count).unwrap().to_ne_bytes().into(),
            ),
            (
                "kallsyms_relative_base",
                0x20_0010,
                TEXT.to_ne_bytes().into(),
            ),
            ("kallsyms_offsets", 0x30_0000, offsets),
        ] {
            memory.0.push((TABLES + offset, bytes));
            let told = !(name.contains("seqs") || place_relative && name.contains("base"));
            if told {
                writeln!(info, "SYMBOL({name})={:x}", TABLES + offset).unwrap();
            }
        }
        (memory, info)
    }

    fn table_of(memory: &Fake, info: &str) -> Result<SymbolTable, KcoreError> {
        table::read(memory, &VmcoreInfo::parse(info.as_bytes())).map(|(table, _)| table)
    }

    #[test]
    fn a_table_is_read_in_both_encodings() {
        let parts = compressed();
        let expected = SymbolTable::from_parts(parts.clone()).unwrap();
        for place_relative in [false, true] {
            let (memory, info) = image(&parts, place_relative);
            let table = table_of(&memory, &info).unwrap();
            assert_eq!(table.len(), expected.len());
            let same = |index| table.address(index) == expected.address(index);
            assert!((0..table.len()).all(same));
            let read = table.to_parts();
            assert_eq!(read.names, parts.names);
            assert_eq!(read.seqs_of_names, parts.seqs_of_names);
        }
    }

    #[test]
    fn bad_tables_are_refused() {
        let (memory, info) = image(&compressed(), false);
        let with = |at: u64, bytes: &[u8]| {
            let mut memory = memory.clone();
            memory.0.insert(0, (at, bytes.to_vec()));
            table_of(&memory, &info).unwrap_err()
        };
        let count = TABLES + 0x20_0000;
        for number in [0, 1 << 25, u32::MAX] {
            let error = with(count, &number.to_ne_bytes());
            assert!(matches!(error, KcoreError::Implausible { .. }), "{error}");
        }
        // More than there is memory for, then more than there are names.
        let error = with(count, &(1_u32 << 24).to_ne_bytes());
        assert!(matches!(error, KcoreError::Read { .. }), "{error}");
        let error = with(TABLES, &vec![0xff; 0x1_0000]);
        assert!(matches!(error, KcoreError::Table(_)), "{error}");
        let error = with(TABLES, &vec![0; 0x1_0000]);
        assert!(matches!(error, KcoreError::Table(_)), "{error}");
        // Names of 4 GiB.
        let far = info.replace(
            &format!("(kallsyms_names)={TABLES:x}"),
            "(kallsyms_names)=10",
        );
        let error = table_of(&memory, &far).unwrap_err();
        assert!(matches!(error, KcoreError::Implausible { .. }), "{error}");
        // Another place than the table has it at.
        let moved = info.replace(
            &format!("(_stext)={TEXT:x}"),
            &format!("(_stext)={:x}", TEXT + 32),
        );
        let error = table_of(&memory, &moved).unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no symbol _stext");
        for line in info.lines().filter(|line| !line.contains("base")).skip(1) {
            let error = table_of(&memory, &info.replace(line, "")).unwrap_err();
            assert!(
                matches!(error, KcoreError::Info(_) | KcoreError::Implausible { .. }),
                "{line}: {error}"
            );
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn layouts() -> Layouts {
        let mut types = Builder::default();
        let long = types.add(1, "long", 8, &[64]);
        let head = types.structure(4, "list_head", 16, &[("next", long, 0), ("prev", long, 8)]);
        let char = types.add(1, "char", 1, &[8]);
        let name = types.add(3, "", 0, &[char, long, 16]);
        let word = types.add(1, "int", 4, &[32]);
        let page = [("next", long, 0), ("records", long, 8), ("index", word, 16)];
        types.structure(4, "ftrace_page", 24, &page);
        types.structure(4, "dyn_ftrace", 16, &[("ip", long, 0)]);
        let module = [
            ("state", word, 0),
            ("list", head, 8),
            ("name", name, 24),
            ("syms", long, 40),
            ("num_syms", word, 48),
            ("kallsyms", long, 56),
        ];
        types.structure(4, "module", 64, &module);
        let kallsyms = [
            ("symtab", long, 0),
            ("num_symtab", word, 8),
            ("strtab", long, 16),
            ("typetab", long, 24),
        ];
        types.structure(4, "mod_kallsyms", 32, &kallsyms);
        types.structure(
            4,
            "kernel_symbol",
            12,
            &[("value_offset", word, 0), ("name_offset", word, 4)],
        );
        Layouts::parse(&types.build()).unwrap()
    }

    fn found(memory: &Fake) -> Result<Vec<u64>, KcoreError> {
        // Compressing takes longer than all that is tested with it.
        static TABLE: LazyLock<SymbolTable> =
            LazyLock::new(|| SymbolTable::from_parts(compressed()).unwrap());
        let mut variables = Variables::default();
        variables.add(STEXT, TEXT);
        variables.add("ftrace_pages_start", HEAP);
        ftrace::locations(memory, &TABLE, &variables, &layouts())
            .map(|locations| locations.as_slice().to_vec())
    }

    /// One group of two records, another of three.
    fn records() -> Fake {
        let module = 0xffff_ffff_c000_0010;
        Fake(vec![
            (HEAP, words(&[HEAP + 0x100])),
            (HEAP + 0x100, words(&[HEAP + 0x200, HEAP + 0x1000, 2])),
            (HEAP + 0x200, words(&[0, HEAP + 0x2000, 3])),
            (HEAP + 0x1000, words(&[TEXT + 4, 0, TEXT + 64, 0])),
            // The second is within a function, the third in a module.
            (
                HEAP + 0x2000,
                words(&[TEXT + 100, 0, TEXT + 50, 0, module, 0]),
            ),
        ])
    }

    #[test]
    fn ftrace_records_are_read() {
        let expected = [TEXT + 4, TEXT + 64, TEXT + 100, 0xffff_ffff_c000_0010];
        assert_eq!(found(&records()).unwrap(), expected);
    }

    #[test]
    fn torn_ftrace_records_are_refused() {
        for (at, bytes) in [
            // Zeros, a cycle, a wild pointer, a claim of 4 GiB.
            (HEAP + 0x2000, vec![0; 48]),
            (HEAP + 0x200, words(&[HEAP + 0x100, HEAP + 0x2000, 3])),
            (HEAP + 0x200, words(&[HEAP + 0x200, HEAP + 0x2000, 0])),
            (HEAP + 0x100, words(&[HEAP + 0x9000, HEAP + 0x1000, 2])),
            (HEAP + 0x100, words(&[8, HEAP + 0x1000, 2])),
            (HEAP + 0x100, words(&[0, 0, 2])),
            (HEAP + 0x100, words(&[0, HEAP + 0x1000, 0xffff_ffff])),
            (HEAP + 0x100, words(&[0, HEAP + 0x1000, 3])),
        ] {
            let mut memory = records();
            memory.0.insert(0, (at, bytes));
            let error = found(&memory).unwrap_err();
            assert!(
                matches!(
                    error,
                    KcoreError::Implausible { .. } | KcoreError::Read { .. }
                ),
                "{error}"
            );
        }
    }

    fn symbols_of(memory: &Fake) -> Result<Vec<String>, KcoreError> {
        let mut variables = Variables::default();
        variables.add("modules", HEAP + 8);
        variables.add("modules", HEAP);
        let mut lines = Vec::new();
        modules::visit(memory, &variables, &layouts(), &mut |symbol| {
            lines.push(format!(
                "{:x} {} {} {:?}",
                symbol.address,
                char::from(symbol.kind),
                symbol.name,
                symbol.module
            ));
        })?;
        Ok(lines)
    }

    /// One module with four symbols: one without a name, two at one address of
    /// which one is exported.
    fn module() -> Fake {
        let at = HEAP + 0x100;
        let mut module = words(&[0, HEAP, HEAP]);
        module.extend(b"m_1\0............");
        module.extend(words(&[HEAP + 0x1000, 1, HEAP + 0x2000]));
        let symbol = |name: u64, address: u64| words(&[name, address, 0]);
        let strings = HEAP + 0x3000;
        let mut names = b"\0run\0alias\0".to_vec();
        names.resize(0x1000, 0);
        let mut export = (0x10_i32).to_ne_bytes().to_vec();
        export.extend((0x3001_i32 - 0x1004).to_ne_bytes());
        export.extend([0; 4]);
        Fake(vec![
            (HEAP, words(&[at + 8, at + 8])),
            (at, module),
            (HEAP + 0x1000, export),
            (
                HEAP + 0x2000,
                words(&[HEAP + 0x2100, 3, strings, HEAP + 0x2200]),
            ),
            (
                HEAP + 0x2100,
                [
                    symbol(0, 0),
                    symbol(5, HEAP + 0x1010),
                    symbol(1, HEAP + 0x1010),
                ]
                .concat(),
            ),
            (HEAP + 0x2200, b"?tt".to_vec()),
            (strings, names),
        ])
    }

    #[test]
    fn symbols_of_modules_are_read() {
        let at = HEAP + 0x1010;
        let expected = [
            format!("{at:x} t alias Some(\"m_1\")"),
            format!("{at:x} T run Some(\"m_1\")"),
        ];
        assert_eq!(symbols_of(&module()).unwrap(), expected);
        // Not yet a module.
        let mut memory = module();
        memory.0[1].1[0] = 3;
        assert!(symbols_of(&memory).unwrap().is_empty());
    }

    #[test]
    fn torn_modules_are_refused() {
        for (region, offset, bytes) in [
            (0, 0, words(&[8])),
            (1, 8, words(&[HEAP + 0x5000])),
            // Its own next one; its previous is a poison.
            (1, 8, words(&[HEAP + 0x108])),
            (1, 16, words(&[0xdead_0000_0000_0122])),
            (1, 24, vec![b'x'; 16]),
            (1, 24, vec![0xff; 15]),
            (1, 48, words(&[0xffff_ffff])),
            (1, 56, words(&[0])),
            (3, 8, words(&[0xffff_ffff])),
            (3, 16, words(&[u64::MAX])),
            (4, 24, words(&[0x7fff_ffff])),
            (6, 5, vec![0xff; 3]),
        ] {
            let mut memory = module();
            memory.0[region].1[offset..offset + bytes.len()].copy_from_slice(&bytes);
            let error = symbols_of(&memory).unwrap_err();
            assert!(
                matches!(
                    error,
                    KcoreError::Implausible { .. } | KcoreError::Read { .. }
                ),
                "{region} {offset}: {error}"
            );
        }
    }

    /// A kernel in which anything may be anything: an error or an answer of
    /// bounded size, without a panic and without end.
    #[test]
    fn damaged_memory_is_survived() {
        let mut state = 71_u64;
        let mut number = move |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let mut damaged = |memory: &Fake| {
            let mut memory = memory.clone();
            for _ in 0..=number(3) {
                let region = number(memory.0.len());
                let bytes = &mut memory.0[region].1;
                // What is zero at the end is padding.
                let used = bytes.iter().rposition(|&byte| byte != 0);
                let at = number(used.map_or(1, |last| last + 1));
                match number(4) {
                    0 => bytes[at] ^= 1 << number(8),
                    1 => bytes[at] = [0, 0x7f, 0x80, 0xff][number(4)],
                    2 => bytes.truncate(at + 1),
                    // A pointer to anywhere near.
                    _ => {
                        let near = (HEAP + 8 * number(0x800) as u64).to_ne_bytes();
                        let at = at & !7;
                        let len = near.len().min(bytes.len() - at);
                        bytes[at..at + len].copy_from_slice(&near[..len]);
                    }
                }
            }
            memory
        };
        let (mut good, mut bad) = (0, 0);
        let (records, module) = (records(), module());
        for _ in 0..2_000 {
            let results = [
                found(&damaged(&records)).map(|found| found.len()),
                symbols_of(&damaged(&module)).map(|lines| lines.len()),
            ];
            for result in results {
                match result {
                    Ok(len) => {
                        assert!(len <= 16, "{len}");
                        good += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().len() < 200, "{error}");
                        bad += 1;
                    }
                }
            }
        }
        assert!(good > 200 && bad > 200, "{good} good, {bad} bad");
    }

    #[test]
    fn lists_have_an_end() {
        let (a, b) = (HEAP + 0x10, HEAP + 0x20);
        let memory = Fake(vec![(HEAP, words(&[a, b, b, HEAP, HEAP, a]))]);
        assert_eq!(list(&memory, "a list", HEAP).unwrap(), [a, b]);
        let memory = Fake(vec![(HEAP, words(&[a, b, b, HEAP, a, a]))]);
        let error = list(&memory, "a list", HEAP).unwrap_err();
        assert!(error.to_string().contains("torn"), "{error}");
    }
}
