//! The running kernel's own structures, read out of its memory.
//!
//! /proc/kcore shows the kernel's memory as an ELF file. The kernel tells in
//! it where its symbol table is; the symbols tell where everything else is,
//! and its type information (BTF) how it is laid out. That is read several
//! times faster than the text that the kernel formats from the same
//! structures, and needs `CAP_SYS_RAWIO`, `CONFIG_PROC_KCORE` and kernel 6.0.
//!
//! The kernel goes on meanwhile and takes no lock for us. Whatever is read is
//! bounded and checked, and what does not fit together is an error
//! ([`SourceError::Kcore`]): read it again, or the text.

mod elf;
mod error;
mod ftrace;
mod layouts;
mod memory;
mod modules;
mod table;
mod variables;
mod vmcoreinfo;

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

pub use error::KcoreError;
pub use layouts::{Layouts, Member};
pub use memory::Memory;
use rustix::{io::Errno, thread::CapabilitySet};
use variables::Variables;
pub use vmcoreinfo::VmcoreInfo;

use super::{Locations, SourceError, files::Failure};
use crate::kallsyms::{Symbol, SymbolTable};

const KCORE: &str = "/proc/kcore";

const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The running kernel's memory: its own structures, as it has them.
///
/// Needs `CAP_SYS_RAWIO` and a kernel with `CONFIG_PROC_KCORE`. The kernel goes
/// on meanwhile: what does not fit together is an error, after which its text
/// is to be read.
#[derive(Debug)]
pub struct Kcore {
    file: File,
    path: PathBuf,
    segments: elf::Segments,
    info: VmcoreInfo,
    /// Known once the table was read.
    variables: OnceLock<Variables>,
}

impl Kcore {
    /// Opens /proc/kcore and reads its headers and its note VMCOREINFO.
    ///
    /// # Errors
    ///
    /// [`SourceError::NotPermitted`] without `CAP_SYS_RAWIO`,
    /// [`SourceError::LockedDown`], [`SourceError::Unavailable`] on a kernel
    /// without `CONFIG_PROC_KCORE`, and [`SourceError::Kcore`] when the headers
    /// are not what they should be.
    pub fn open() -> Result<Self, SourceError> {
        Self::open_path(Path::new(KCORE))
    }

    fn open_path(path: &Path) -> Result<Self, SourceError> {
        let fail = |call| move |source| Failure::new(call, path, source);
        let file = File::open(path).map_err(fail("open")).map_err(|failure| {
            if failure.is_absent() {
                SourceError::unavailable(
                    failure,
                    "use /proc/kallsyms, or a kernel with CONFIG_PROC_KCORE",
                )
            } else {
                SourceError::kernel_for(failure, CapabilitySet::SYS_RAWIO)
            }
        })?;
        let read = |offset, len: usize| {
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, offset)
                .map_err(fail("read"))
                .map_err(SourceError::kernel)
                .map(|()| bytes)
        };
        let wrong = |source| SourceError::Kcore {
            path: path.into(),
            source,
        };
        let header = elf::Header::parse(&read(0, elf::HEADER_BYTES)?).map_err(wrong)?;
        let segments = elf::Segments::parse(&read(header.offset, header.bytes)?, header.offset)
            .map_err(wrong)?;
        let (offset, len) = segments.notes().map_err(wrong)?;
        let notes = read(offset, len)?;
        let info = VmcoreInfo::parse(elf::vmcoreinfo(&notes, offset).map_err(wrong)?);
        Ok(Self {
            file,
            path: path.into(),
            segments,
            info,
            variables: OnceLock::new(),
        })
    }

    /// The file, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kernel tells those who read its memory.
    #[must_use]
    pub const fn info(&self) -> &VmcoreInfo {
        &self.info
    }

    /// Reads the symbol table of the core kernel, compressed as it is.
    ///
    /// # Errors
    ///
    /// [`SourceError::Unavailable`] when the kernel does not tell where its
    /// table is (before 6.0), and else [`SourceError::Kcore`].
    pub fn table(&self) -> Result<SymbolTable, SourceError> {
        if !table::is_told(&self.info) {
            return Err(SourceError::Unavailable {
                call: "read",
                path: self.path.clone(),
                advice: "use /proc/kallsyms, or kernel 6.0 or later, which tells where its \
                         symbol table is",
                source: None,
            });
        }
        let (table, variables) =
            table::read(self, &self.info).map_err(|source| self.wrong(source))?;
        self.variables.get_or_init(|| variables);
        Ok(table)
    }

    /// Reads where ftrace patches functions out of its own records: what
    /// [`Traceable::read`](super::Traceable::read) has from
    /// `available_filter_functions_addrs`.
    ///
    /// In the core kernel only what lies at the entry of one of `table`'s
    /// functions; in modules whatever ftrace has.
    ///
    /// # Errors
    ///
    /// [`SourceError::Kcore`].
    pub fn ftrace_locations(
        &self,
        table: &SymbolTable,
        layouts: &Layouts,
    ) -> Result<Locations, SourceError> {
        ftrace::locations(self, table, self.variables(table), layouts)
            .map_err(|source| self.wrong(source))
    }

    /// Calls `visit` with every symbol that /proc/kallsyms lists with a module,
    /// in its order: those of modules, and of code that was made at run time,
    /// whose modules are `bpf`, `__builtin__ftrace` and `__builtin__kprobes`.
    ///
    /// # Errors
    ///
    /// [`SourceError::Kcore`]. What was visited until then may be wrong.
    pub fn module_symbols(
        &self,
        table: &SymbolTable,
        layouts: &Layouts,
        mut visit: impl FnMut(Symbol<'_>),
    ) -> Result<(), SourceError> {
        modules::visit(self, self.variables(table), layouts, &mut visit)
            .map_err(|source| self.wrong(source))
    }

    /// Where variables are; `table` is asked if it came from elsewhere.
    fn variables(&self, table: &SymbolTable) -> &Variables {
        self.variables.get_or_init(|| Variables::of(table))
    }

    fn wrong(&self, source: KcoreError) -> SourceError {
        SourceError::Kcore {
            path: self.path.clone(),
            source,
        }
    }
}

impl Layouts {
    /// Reads how the running kernel lays out the structures that [`Kcore`]
    /// reads.
    ///
    /// # Errors
    ///
    /// [`SourceError::Unavailable`] without `CONFIG_DEBUG_INFO_BTF`, and else
    /// [`SourceError::Kcore`] or what reading a file can come to.
    pub fn read() -> Result<Self, SourceError> {
        let path = Path::new(BTF);
        let btf = std::fs::read(path)
            .map_err(|source| Failure::new("read", path, source))
            .map_err(|failure| {
                if failure.is_absent() {
                    SourceError::unavailable(
                        failure,
                        "use its text files, or a kernel with CONFIG_DEBUG_INFO_BTF",
                    )
                } else {
                    SourceError::kernel(failure)
                }
            })?;
        Self::parse(&btf).map_err(|source| SourceError::Kcore {
            path: path.into(),
            source,
        })
    }
}

impl Memory for Kcore {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = self
            .segments
            .offset_of(address, into.len())
            .ok_or(Errno::FAULT)?;
        self.file.read_exact_at(into, offset)
    }
}

#[cfg(test)]
mod tests;
