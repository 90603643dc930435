//! The eBPF object: its maps, and its programs loaded one at a time, each as
//! what the way of attaching needs.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    fmt::Display,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use aya::maps::{Map, MapData, MapError};
use aya_obj::{EbpfSectionKind, generated::bpf_map_type};
use ksyms_ebpf::{Rows, globals, maps};
use thiserror::Error;

use super::{
    counters::Counters,
    sys::{self, ProgramKind, SyscallError},
};

/// Aligned as the ELF reader wants it.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/ksyms-ebpf.o")));

/// Why the eBPF programs could not be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The embedded object is not what this library was built for: a bug.
    #[error("the embedded eBPF object: {reason}; this is a bug in ksyms, please report it")]
    Object {
        /// What is wrong with it.
        reason: String,
    },
    /// A map could not be made.
    #[error("creating the map {map} failed: {source}; {}", advice(.source.as_errno()))]
    Map {
        /// Its name.
        map: String,
        /// The failing call.
        source: MapError,
    },
    /// A data map could not be filled or frozen, or the counters not be mapped.
    #[error("preparing the map {map}: {source}; {}", advice(.source.errno()))]
    Prepare {
        /// The map's name.
        map: &'static str,
        /// The failing call.
        source: SyscallError,
    },
    /// The kernel refused the program.
    #[error("the kernel refused the program {program}: {source}; {}{}", advice(.source.errno()), indented(.log))]
    Program {
        /// Its name.
        program: &'static str,
        /// The failing call.
        source: SyscallError,
        /// The last lines the verifier wrote.
        log: String,
    },
    /// More counters than one array map can hold.
    #[error(
        "{slots} functions on {cpus} CPUs need more counters than a map can hold; select fewer functions"
    )]
    TooMany {
        /// Functions.
        slots: u32,
        /// Possible CPUs.
        cpus: u32,
    },
    /// How many CPUs there may be is not known.
    #[error("reading {path} failed: {source}; is sysfs mounted?")]
    Cpus {
        /// The file.
        path: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl LoadError {
    /// The errno behind it, or 0.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Map { source, .. } => source.as_errno(),
            Self::Prepare { source, .. } | Self::Program { source, .. } => source.errno(),
            Self::Object { .. } | Self::TooMany { .. } | Self::Cpus { .. } => 0,
        }
    }
}

impl LoadError {
    /// Whether the program was refused because it calls a helper that this
    /// kernel does not have.
    pub(crate) fn is_missing_helper(&self) -> bool {
        // "unknown func bpf_x#174", "invalid func unknown#174" and "program of
        // this type cannot use helper bpf_x#174", check_helper_call in
        // kernel/bpf/verifier.c.
        matches!(self, Self::Program { log, .. } if
            ["unknown func", "invalid func", "cannot use helper"]
                .iter()
                .any(|words| log.contains(words)))
    }
}

trait AsErrno {
    fn as_errno(&self) -> i32;
}

impl AsErrno for MapError {
    fn as_errno(&self) -> i32 {
        let (Self::CreateError { io_error, .. } | Self::IoError(io_error)) = self else {
            return 0;
        };
        io_error.raw_os_error().unwrap_or(0)
    }
}

fn advice(errno: i32) -> &'static str {
    match errno {
        libc::EPERM | libc::EACCES => {
            "run as root (sudo), or with CAP_BPF and CAP_PERFMON; in a container the runtime's seccomp profile may forbid bpf(2); before Linux 5.11 maps count as locked memory: raise `ulimit -l`"
        }
        libc::EMFILE | libc::ENFILE => "too many open files: raise `ulimit -n`, at least to 64",
        libc::ENOMEM => "not enough memory for the counters: select fewer functions",
        libc::ENOSYS => "this kernel is built without CONFIG_BPF_SYSCALL",
        _ => "ksyms needs Linux 5.5 or newer with CONFIG_BPF_EVENTS",
    }
}

fn indented(log: &str) -> String {
    log.lines().flat_map(|line| ["\n    ", line]).collect()
}

fn broken(reason: impl Display) -> LoadError {
    LoadError::Object {
        reason: format!("{reason}"),
    }
}

/// What the maps are sized for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Functions to count.
    pub(crate) slots: u32,
    /// Whether the programs look addresses up, and the map for it is needed.
    pub(crate) by_address: bool,
    /// What aya-log lets through: 0 nothing, 5 everything.
    pub(crate) log_level: u8,
}

/// The object with its maps made, ready to load programs from.
pub(crate) struct Object {
    elf: aya_obj::Object,
    maps: HashMap<String, MapData>,
    sizes: Sizes,
    cpus: u32,
}

impl Object {
    /// Makes the maps and ties the programs to them.
    pub(crate) fn open(sizes: Sizes) -> Result<Self, LoadError> {
        let cpus = possible_cpus()?;
        let Sizes { slots, .. } = sizes;
        let rows = Rows::new(slots);
        let elements = rows
            .elements(cpus)
            .ok_or(LoadError::TooMany { slots, cpus })?;

        let mut elf = aya_obj::Object::parse(&OBJECT.0).map_err(broken)?;
        elf.patch_map_data(HashMap::from([
            (globals::SLOT_COUNT, (&slots.to_ne_bytes()[..], true)),
            (
                globals::ROW_STRIDE,
                (&rows.stride().to_ne_bytes()[..], true),
            ),
            (globals::LOG_LEVEL, (&[sizes.log_level][..], true)),
        ]))
        .map_err(broken)?;

        let mut maps = HashMap::new();
        for (name, definition) in &mut elf.maps {
            match name.as_str() {
                maps::COUNTS => definition.set_max_entries(elements),
                maps::SLOTS if sizes.by_address => definition.set_max_entries(slots.max(1)),
                // A page is the least a ring buffer takes.
                maps::LOGS if sizes.log_level == 0 => definition.set_max_entries(4096),
                _ => {}
            }
            maps.insert(name.clone(), make_map(name, definition)?);
        }

        let text: HashSet<usize> = elf.functions.keys().map(|(section, _)| *section).collect();
        let definitions = elf.maps.clone();
        elf.relocate_maps(
            definitions.iter().map(|(name, definition)| {
                (
                    name.as_str(),
                    maps[name].fd().as_fd().as_raw_fd(),
                    definition,
                )
            }),
            &text,
        )
        .map_err(broken)?;
        elf.relocate_calls(&text).map_err(broken)?;
        Ok(Self {
            elf,
            maps,
            sizes,
            cpus,
        })
    }

    /// Loads one program. Loading the same one twice makes two.
    pub(crate) fn load(
        &self,
        program: &'static str,
        kind: ProgramKind,
    ) -> Result<OwnedFd, LoadError> {
        let definition = self
            .elf
            .programs
            .get(program)
            .ok_or_else(|| broken(format!("no program {program}")))?;
        let function = self
            .elf
            .functions
            .get(&definition.function_key())
            .ok_or_else(|| broken(format!("no code for {program}")))?;
        let license: &CString = &definition.license;
        let load =
            |log: &mut [u8]| sys::program_load(kind, program, license, &function.instructions, log);
        load(&mut []).or_else(|source| {
            // Asking for the log makes loading slow, so only a refusal does.
            let mut log = vec![0; 1 << 20];
            match load(&mut log) {
                Ok(fd) => Ok(fd),
                Err(_) => Err(LoadError::Program {
                    program,
                    source,
                    log: last_lines(&log, 12),
                }),
            }
        })
    }

    /// Registers the address of each slot, in order, for the programs that
    /// count by address.
    pub(crate) fn register(&mut self, addresses: &[u64]) -> Result<(), LoadError> {
        let map = self
            .maps
            .remove(maps::SLOTS)
            .ok_or_else(|| broken("no map of slots"))?;
        let failed = |source| LoadError::Map {
            map: maps::SLOTS.to_owned(),
            source,
        };
        let mut map = Map::HashMap(map);
        {
            let mut slots =
                aya::maps::HashMap::<_, u64, u32>::try_from(&mut map).map_err(failed)?;
            for (slot, address) in (0_u32..).zip(addresses) {
                slots.insert(address, slot, 0).map_err(failed)?;
            }
        }
        let Map::HashMap(map) = map else {
            return Err(broken("the map of slots is no hash"));
        };
        self.maps.insert(maps::SLOTS.to_owned(), map);
        Ok(())
    }

    /// Maps the counters, and lets go of all the rest: loaded programs hold on
    /// to what they use.
    pub(crate) fn into_counters(mut self) -> Result<Counters, LoadError> {
        let mut take = |name| {
            let map = self.maps.remove(name);
            map.ok_or_else(|| broken(format!("no map {name}")))
        };
        let (counts, counting) = (take(maps::COUNTS)?, take(maps::COUNTING)?);
        Counters::new(&counts, counting, self.sizes.slots, self.cpus).map_err(|source| {
            LoadError::Prepare {
                map: maps::COUNTS,
                source,
            }
        })
    }
}

fn make_map(name: &str, definition: &mut aya_obj::Map) -> Result<MapData, LoadError> {
    if let aya_obj::Map::Btf(map) = definition {
        // We load no BTF: nothing here needs it, and that is one call less.
        map.def.btf_key_type_id = 0;
        map.def.btf_value_type_id = 0;
    }
    let map = MapData::create(definition.clone(), name, None).map_err(|source| LoadError::Map {
        map: name.to_owned(),
        source,
    })?;
    let prepared = |result: Result<(), SyscallError>| {
        result.map_err(|source| LoadError::Prepare {
            map: "of a data section",
            source,
        })
    };
    if definition.map_type() == bpf_map_type::BPF_MAP_TYPE_ARRAY as u32
        && !definition.data().is_empty()
    {
        prepared(sys::map_write_data(map.fd().as_fd(), definition.data()))?;
    }
    if definition.section_kind() == EbpfSectionKind::Rodata {
        prepared(sys::map_freeze(map.fd().as_fd()))?;
    }
    Ok(map)
}

/// CPUs that may ever come online: ids are below this number.
fn possible_cpus() -> Result<u32, LoadError> {
    aya::util::nr_cpus()
        .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX))
        .map_err(|(path, source)| LoadError::Cpus { path, source })
}

/// The end of a NUL-terminated log: what was wrong stands there.
fn last_lines(log: &[u8], count: usize) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_object_has_what_the_shared_names_promise() {
        let elf = aya_obj::Object::parse(&OBJECT.0).unwrap();
        for program in [
            ksyms_ebpf::programs::COUNT_BY_COOKIE,
            ksyms_ebpf::programs::COUNT_BY_ADDRESS,
        ] {
            assert!(elf.programs.contains_key(program), "{program}");
        }
        for map in [maps::COUNTS, maps::SLOTS, maps::LOGS, maps::COUNTING] {
            assert!(elf.maps.contains_key(map), "{map}");
        }
        assert_eq!(elf.maps[maps::COUNTING].value_size(), 4, "one u32");
    }

    #[test]
    fn a_log_is_cut_to_its_last_lines() {
        assert_eq!(last_lines(b"a\nb\nc\n\0junk", 2), "b\nc");
        assert_eq!(last_lines(b"one", 5), "one");
        assert_eq!(last_lines(b"", 5), "");
    }
}
