//! Where symbols come from, and what comes with them.

use std::{
    convert::Infallible,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use super::{
    ElfSymbols, Kcore, KptrRestrict, Layouts, SourceError, Traceable, Tracefs,
    files::{Ahead, MAX_TEXT_BYTES, parse_lines},
    vmlinux::{IMAGE_HEAD_BYTES, is_kernel_image, vmlinux},
};
use crate::kallsyms::{Builder, Lines as _, SymbolLines, Symbols, Wanted};

const KALLSYMS: &str = "/proc/kallsyms";

/// Room for its text. A distribution's kernel has 4 to 9 MB without modules.
const KALLSYMS_BYTES: usize = 8 << 20;

/// Where to read symbols from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SymbolSource {
    /// The fastest that works: the running kernel's memory, else its text.
    #[default]
    Auto,
    /// The running kernel's memory, /proc/kcore: kernel 6.0 and later.
    Kcore,
    /// The running kernel's text, /proc/kallsyms.
    Proc,
    /// A saved copy of /proc/kallsyms, a System.map or a vmlinux.
    File(PathBuf),
}

impl FromStr for SymbolSource {
    type Err = Infallible;

    /// `auto`, `kcore`, `proc`, or else the path of a file; `./auto` is one too.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "kcore" => Self::Kcore,
            "proc" => Self::Proc,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for SymbolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Kcore => f.write_str("kcore"),
            Self::Proc => f.write_str("proc"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Symbols and where they are from, from [`SymbolSource::read`].
#[derive(Debug)]
pub struct Reading {
    /// The symbols.
    pub symbols: Symbols,
    /// The file that they are from.
    pub path: PathBuf,
    /// Why it is not a faster one.
    pub passed_over: Option<SourceError>,
    kernel: Option<(Kcore, Layouts)>,
}

impl SymbolSource {
    /// Reads the symbols of the core kernel and of `modules`, by their names,
    /// or of all modules when that is `None`. More may be read: only text has
    /// its modules one after the other, and ends early.
    ///
    /// # Errors
    ///
    /// As for [`kallsyms`], [`kallsyms_from`], [`Kcore::open`] and
    /// [`Kcore::table`], whichever it is. [`Self::Auto`] fails as the text does,
    /// and says in [`Reading::passed_over`] why that was read.
    pub fn read(&self, modules: Option<&[&str]>) -> Result<Reading, SourceError> {
        match self {
            Self::Kcore => kcore(modules),
            Self::Auto => kcore(modules).or_else(|error| {
                Ok(Reading {
                    passed_over: Some(error),
                    ..proc(modules)?
                })
            }),
            Self::Proc => proc(modules),
            Self::File(path) => Ok(Reading::text(kallsyms_from(path)?, path.into())),
        }
    }
}

impl Reading {
    const fn text(symbols: Symbols, path: PathBuf) -> Self {
        Self {
            symbols,
            path,
            passed_over: None,
            kernel: None,
        }
    }

    /// Reads what ftrace can probe of the core kernel and of `modules`, or of
    /// all modules when that is `None`: ftrace's own records where the symbols
    /// are from the kernel's memory, else its list in tracefs.
    ///
    /// # Errors
    ///
    /// As for [`Tracefs::open`] and [`Traceable::read`]; and
    /// [`SourceError::OtherKernel`] when the symbols are from a file that is not
    /// of the running kernel, as it was loaded.
    pub fn traceable(&self, modules: Option<&[&str]>) -> Result<Traceable, SourceError> {
        if let (Some((kcore, layouts)), Some(table)) = (&self.kernel, self.symbols.table())
            && let Ok(locations) = kcore.ftrace_locations(table, layouts)
        {
            return Ok(Traceable::Locations(locations));
        }
        if self.kernel.is_none() && self.path != Path::new(KALLSYMS) {
            self.check_same_kernel()?;
        }
        Traceable::read_wanted(&Tracefs::open()?, modules)
    }

    /// Checks that each function of a file is where the file says. Where the
    /// running kernel does not tell where it has them, nothing is said.
    fn check_same_kernel(&self) -> Result<(), SourceError> {
        let Ok(running) = SymbolSource::Auto.read(None) else {
            return Ok(());
        };
        let moved = self.symbols.iter().find(|symbol| {
            symbol.is_text()
                && !symbol.is_made_at_run_time()
                && !running
                    .symbols
                    .at(symbol.address)
                    .any(|other| other.name == symbol.name && other.module == symbol.module)
        });
        match moved {
            None => Ok(()),
            Some(symbol) => Err(SourceError::OtherKernel {
                path: self.path.clone(),
                name: symbol.name.to_owned(),
                address: symbol.address,
                running: running
                    .symbols
                    .describe(symbol.address)
                    .map(|described| described.to_string()),
            }),
        }
    }
}

/// Reads all from the running kernel's memory.
fn kcore(modules: Option<&[&str]>) -> Result<Reading, SourceError> {
    let kcore = Kcore::open()?;
    let table = kcore.table()?;
    let layouts = Layouts::read()?;
    let mut symbols = Builder::default();
    if modules.is_none_or(|modules| !modules.is_empty()) {
        let mut pushed = Ok(());
        kcore.module_symbols(&table, &layouts, |symbol| {
            if pushed.is_ok() {
                pushed = symbols.push(&symbol);
            }
        })?;
        pushed.map_err(|fault| SourceError::Malformed {
            path: kcore.path().into(),
            source: fault.at(symbols.len() + 1, SymbolLines::FORMAT),
        })?;
    }
    Ok(Reading {
        symbols: Symbols::new(Some(table), symbols),
        path: kcore.path().into(),
        passed_over: None,
        kernel: Some((kcore, layouts)),
    })
}

fn proc(modules: Option<&[&str]>) -> Result<Reading, SourceError> {
    let path = Path::new(KALLSYMS);
    // The kernel says that the file is empty.
    let lines = SymbolLines::new(KALLSYMS_BYTES, Wanted::new(modules));
    let symbols = parse(Ahead::read(open_kallsyms()?), path, lines)?;
    if symbols.addresses_hidden() {
        return Err(SourceError::AddressesHidden(KptrRestrict::read()));
    }
    Ok(Reading::text(symbols, path.into()))
}

/// Reads the symbols of the running kernel and its modules from
/// /proc/kallsyms, once.
///
/// The kernel formats the lines while they are read, which takes several
/// times longer than parsing them.
///
/// # Errors
///
/// [`SourceError::AddressesHidden`] when the kernel shows zeros for addresses,
/// [`SourceError::Unavailable`] when it was built without `CONFIG_KALLSYMS`,
/// and else what reading a file can come to.
pub fn kallsyms() -> Result<Symbols, SourceError> {
    Ok(proc(None)?.symbols)
}

/// Reads symbols from a saved copy of /proc/kallsyms, a System.map, or a vmlinux
/// as [`vmlinux`] does.
///
/// # Errors
///
/// [`SourceError::NoAddresses`] when all text symbols are at address 0,
/// [`SourceError::Elf`] for an ELF file without symbols, and else what reading
/// and parsing a file can come to.
pub fn kallsyms_from(path: impl AsRef<Path>) -> Result<Symbols, SourceError> {
    let path = path.as_ref();
    let fail = |call| SourceError::io(call, path);
    let mut file = File::open(path).map_err(fail("open"))?;
    let mut head = Vec::new();
    (&mut file)
        .take(IMAGE_HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(fail("read"))?;
    if is_kernel_image(&head) {
        return Ok(match vmlinux(path)? {
            ElfSymbols::Table(table) => Symbols::new(Some(table), Builder::default()),
            ElfSymbols::Text(symbols) => symbols,
        });
    }
    let bytes = file.metadata().map_err(fail("stat"))?.len();
    let bytes = usize::try_from(bytes).unwrap_or(0).min(MAX_TEXT_BYTES);
    let lines = SymbolLines::new(bytes, Wanted::default());
    let symbols = parse(head.chain(file), path, lines)?;
    if symbols.addresses_hidden() {
        return Err(SourceError::NoAddresses { path: path.into() });
    }
    Ok(symbols)
}

fn parse(file: impl Read, path: &Path, lines: SymbolLines) -> Result<Symbols, SourceError> {
    parse_lines(file, path, lines)?
        .finish()
        .map_err(|source| SourceError::Malformed {
            path: path.into(),
            source,
        })
}

fn open_kallsyms() -> Result<File, SourceError> {
    File::open(KALLSYMS).map_err(|source| {
        let (call, path) = ("open", KALLSYMS.into());
        if source.kind() == io::ErrorKind::NotFound {
            SourceError::Unavailable {
                call,
                path,
                advice: "mount procfs at /proc, or use a kernel with CONFIG_KALLSYMS",
                source: Some(source),
            }
        } else {
            SourceError::Io { call, path, source }
        }
    })
}
