//! What /proc/kallsyms lists behind the core kernel's symbols (kernel/kallsyms.c,
//! `update_iter_mod()`): those of modules, and of code that was made at run
//! time.

use super::{
    KcoreError, Layouts, Memory,
    memory::{self, Structure, bytes, list, list_head, text, u32_at},
    variables::Variables,
};
use crate::kallsyms::Symbol;

/// The largest modules have some 60,000 symbols.
const MAX_SYMBOLS: usize = 1 << 20;

/// The largest modules have some 2 MB of names.
const MAX_STRINGS: usize = 64 << 20;

/// `KSYM_NAME_LEN` (include/linux/kallsyms.h, since 6.1), with the NUL.
const NAME_BYTES: usize = 512;

/// `MODULE_STATE_UNFORMED` (include/linux/module.h).
const UNFORMED: u64 = 3;

/// The bytes of an `Elf64_Sym`.
const SYMBOL_BYTES: usize = 24;

/// Visits them in the kernel's order.
pub(super) fn visit(
    memory: &impl Memory,
    variables: &Variables,
    layouts: &Layouts,
    visit: &mut impl FnMut(Symbol<'_>),
) -> Result<(), KcoreError> {
    let walk = Walk {
        memory,
        variables,
        layouts,
    };
    walk.modules(visit)?;
    walk.freed_functions(visit)?;
    walk.trampolines(visit)?;
    walk.programs(visit)?;
    walk.slots("kprobe_insn_slots", visit)?;
    walk.slots("kprobe_optinsn_slots", visit)
}

struct Walk<'w, M> {
    memory: &'w M,
    variables: &'w Variables,
    layouts: &'w Layouts,
}

impl<M: Memory> Walk<'_, M> {
    /// Calls `each` with the structures of a list whose head is the symbol
    /// `head`; nothing if this kernel does not have it.
    fn each(
        &self,
        head: &'static str,
        (name, member): (&'static str, &'static str),
        each: impl FnMut(&memory::Read<'_>) -> Result<(), KcoreError>,
    ) -> Result<(), KcoreError> {
        match list_head(self.memory, self.variables, head) {
            Some(address) => self.each_at(head, address, (name, member), each),
            None => Ok(()),
        }
    }

    fn each_at(
        &self,
        what: &'static str,
        head: u64,
        (name, member): (&'static str, &'static str),
        mut each: impl FnMut(&memory::Read<'_>) -> Result<(), KcoreError>,
    ) -> Result<(), KcoreError> {
        let nodes = list(self.memory, what, head)?;
        if nodes.is_empty() {
            return Ok(());
        }
        let structure = Structure::new(self.layouts, name)?;
        let offset = self.layouts.member(name, member)?.offset as u64;
        for node in &nodes {
            each(&structure.read(self.memory, node.wrapping_sub(offset))?)?;
        }
        // What was unlinked may since have been something else's memory.
        if list(self.memory, what, head)? == nodes {
            Ok(())
        } else {
            Err(KcoreError::Changed(what))
        }
    }

    /// kernel/module/kallsyms.c, `module_get_kallsym()`.
    fn modules(&self, visit: &mut impl FnMut(Symbol<'_>)) -> Result<(), KcoreError> {
        self.each("modules", ("module", "list"), |module| {
            if module.int("state")? == UNFORMED {
                return Ok(());
            }
            self.symbols_of(module, visit)
        })
    }

    fn symbols_of(
        &self,
        module: &memory::Read<'_>,
        visit: &mut impl FnMut(Symbol<'_>),
    ) -> Result<(), KcoreError> {
        let name = module.text("name")?;
        let tables = Structure::new(self.layouts, "mod_kallsyms")?
            .read(self.memory, module.pointer("kallsyms")?)?;
        let count = tables.count("num_symtab", MAX_SYMBOLS)?;
        let symbols = bytes(
            self.memory,
            "a module's symbols",
            tables.pointer("symtab")?,
            count * SYMBOL_BYTES,
        )?;
        let kinds = bytes(
            self.memory,
            "a module's types of symbols",
            tables.pointer("typetab")?,
            count,
        )?;
        let entries = symbols.as_chunks::<SYMBOL_BYTES>().0.iter().map(|entry| {
            let name = memory::field(entry, 0).map_or(0, u32::from_ne_bytes);
            let address = memory::field(entry, 8).map_or(0, u64::from_ne_bytes);
            (name, address)
        });
        let strings = tables.pointer("strtab")?;
        let last = entries.clone().map(|(name, _)| name).max();
        let last = strings.saturating_add(last.unwrap_or(0).into());
        let names = Strings::read(self.memory, strings, last)?;
        let exports = self.exports(module)?;
        for ((offset, address), kind) in entries.zip(kinds) {
            let symbol = names.get(strings.wrapping_add(offset.into()))?;
            if symbol.is_empty() {
                continue;
            }
            visit(Symbol {
                address,
                kind: if exports.has(symbol, address)? {
                    kind.to_ascii_uppercase()
                } else {
                    kind.to_ascii_lowercase()
                },
                name: symbol,
                module: Some(name),
            });
        }
        Ok(())
    }

    /// kernel/module/kallsyms.c, `is_exported()`: before 7.0 not those that are
    /// for the GPL only.
    fn exports(&self, module: &memory::Read<'_>) -> Result<Exports, KcoreError> {
        let count = module.count("num_syms", MAX_SYMBOLS)?;
        if count == 0 {
            return Ok(Exports::default());
        }
        let export = Structure::new(self.layouts, "kernel_symbol")?;
        let size = export.size();
        let value = export.member("value_offset")?.offset;
        let name = export.member("name_offset")?.offset;
        let start = module.pointer("syms")?;
        let symbols = bytes(self.memory, "a module's exports", start, count * size)?;
        // CONFIG_HAVE_ARCH_PREL32_RELOCATIONS: each is relative to itself.
        let target = |index: usize, offset: usize| {
            let at = index * size + offset;
            let relative = memory::field(&symbols, at).map_or(0, i32::from_ne_bytes);
            start
                .wrapping_add(at as u64)
                .wrapping_add_signed(relative.into())
        };
        let mut exported: Vec<(u64, u64)> = (0..count)
            .map(|index| (target(index, value), target(index, name)))
            .collect();
        exported.sort_unstable();
        let names = exported.iter().map(|&(_, name)| name);
        let (first, last) = (names.clone().min(), names.max());
        let names = Strings::read(
            self.memory,
            first.unwrap_or_default(),
            last.unwrap_or_default(),
        )?;
        Ok(Exports { exported, names })
    }

    /// kernel/trace/ftrace.c, `ftrace_mod_get_kallsym()`: functions of modules
    /// that ran while the module was loaded, as far as they were traced.
    fn freed_functions(&self, visit: &mut impl FnMut(Symbol<'_>)) -> Result<(), KcoreError> {
        self.each("ftrace_mod_maps", ("ftrace_mod_map", "list"), |map| {
            let owner =
                Structure::new(self.layouts, "module")?.read(self.memory, map.pointer("mod")?)?;
            let module = owner.text("name")?;
            let head = map.address_of("funcs")?;
            self.each_at(
                "ftrace_mod_map.funcs",
                head,
                ("ftrace_mod_func", "list"),
                |function| {
                    let at = function.pointer("name")?;
                    visit(Symbol {
                        address: function.pointer("ip")?,
                        kind: b'T',
                        name: Strings::read(self.memory, at, at)?.get(at)?,
                        module: Some(module),
                    });
                    Ok(())
                },
            )
        })
    }

    /// kernel/trace/ftrace.c, `ftrace_get_trampoline_kallsym()`, since 5.8.
    fn trampolines(&self, visit: &mut impl FnMut(Symbol<'_>)) -> Result<(), KcoreError> {
        self.each(
            "ftrace_ops_trampoline_list",
            ("ftrace_ops", "list"),
            |ops| {
                let address = ops.int("trampoline")?;
                if address != 0 {
                    visit(Symbol {
                        address,
                        kind: b't',
                        name: "ftrace_trampoline",
                        module: Some("__builtin__ftrace"),
                    });
                }
                Ok(())
            },
        )
    }

    /// kernel/bpf/core.c, `bpf_get_kallsym()`.
    fn programs(&self, visit: &mut impl FnMut(Symbol<'_>)) -> Result<(), KcoreError> {
        let is = |name, value| match self.variables.get(name) {
            Some(address) => u32_at(self.memory, name, address).map(|found| found == value),
            None => Ok(false),
        };
        // include/linux/filter.h, bpf_jit_kallsyms_enabled()
        if !is("bpf_jit_harden", 0)? || !is("bpf_jit_kallsyms", 1)? {
            return Ok(());
        }
        self.each("bpf_kallsyms", ("bpf_ksym", "lnode"), |program| {
            visit(Symbol {
                address: program.pointer("start")?,
                kind: b't',
                name: program.text("name")?,
                module: Some("bpf"),
            });
            Ok(())
        })
    }

    /// kernel/kprobes.c, `kprobe_cache_get_kallsym()`: pages with the
    /// instructions that probes replaced.
    fn slots(
        &self,
        cache: &'static str,
        visit: &mut impl FnMut(Symbol<'_>),
    ) -> Result<(), KcoreError> {
        let Some(address) = self.variables.get(cache) else {
            return Ok(());
        };
        let cached =
            Structure::new(self.layouts, "kprobe_insn_cache")?.read(self.memory, address)?;
        let head = cached.address_of("pages")?;
        self.each_at(cache, head, ("kprobe_insn_page", "list"), |page| {
            let at = cached.pointer("sym")?;
            visit(Symbol {
                address: page.pointer("insns")?,
                kind: b't',
                name: Strings::read(self.memory, at, at)?.get(at)?,
                module: Some("__builtin__kprobes"),
            });
            Ok(())
        })
    }
}

/// What a module exports: addresses in order, and where each one's name is.
#[derive(Default)]
struct Exports {
    exported: Vec<(u64, u64)>,
    names: Strings,
}

impl Exports {
    fn has(&self, name: &str, address: u64) -> Result<bool, KcoreError> {
        let first = self.exported.partition_point(|&(value, _)| value < address);
        for &(value, at) in &self.exported[first..] {
            if value != address {
                break;
            }
            if self.names.get(at)? == name {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A stretch of memory with strings that end in a NUL.
#[derive(Default)]
struct Strings {
    start: u64,
    bytes: Vec<u8>,
}

impl Strings {
    /// Reads from one string up to the last that is asked for.
    fn read(memory: &impl Memory, start: u64, last: u64) -> Result<Self, KcoreError> {
        const WHAT: &str = "names of symbols";
        let len = usize::try_from(last - start).unwrap_or(usize::MAX);
        if len > MAX_STRINGS {
            return Err(KcoreError::Implausible {
                what: "names that lie too far apart",
                address: start,
                value: last,
            });
        }
        // Behind the last one there may be no memory.
        let page = NAME_BYTES.min(4096 - usize::try_from(last % 4096).unwrap_or_default());
        let bytes = bytes(memory, WHAT, start, len + NAME_BYTES)
            .or_else(|_| bytes(memory, WHAT, start, len + page))?;
        Ok(Self { start, bytes })
    }

    fn get(&self, at: u64) -> Result<&str, KcoreError> {
        let offset = usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        text(self.bytes.get(offset..).unwrap_or_default(), at)
    }
}
