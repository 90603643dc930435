//! What ftrace can probe.

use rustix::io::Errno;

use super::{SourceError, Tracefs, files::parse_lines};
use crate::kallsyms::{
    Builder, Fault, Feed, Label, Lines, ParseError, Symbol, Symbols, Wanted, address,
};

/// How far behind a function's first byte ftrace's location may lie. x86 has
/// it at the entry, or 4 bytes on behind an ENDBR64 (arch/x86/kernel/ftrace.c,
/// `ENDBR_INSN_SIZE`); arm64 4 bytes on, or 8 behind a BTI
/// (arch/arm64/kernel/ftrace.c, `ftrace_call_adjust()`).
pub(super) const MAX_ENTRY_OFFSET: u64 = 8;

/// Stands for a location whose function the linker dropped
/// (`FTRACE_INVALID_FUNCTION`, kernel/trace/ftrace.c, since 5.19).
const INVALID_FUNCTION: &[u8] = b"__ftrace_invalid_address__";

const WITH_ADDRESSES: &str = "available_filter_functions_addrs";
const NAMES_ONLY: &str = "available_filter_functions";

const SHUT_DOWN: &str = "ftrace shut itself down after a fault, which the kernel's log (dmesg) \
                         tells of: reboot";

/// Which functions ftrace can probe, as far as the kernel tells.
#[derive(Debug)]
pub enum Traceable {
    /// Nobody can tell, since tracefs cannot be read.
    Unknown,
    /// By address: kernel 6.5 and later.
    Locations(Locations),
    /// By name and module: kernels before 6.5.
    Names(Box<Names>),
}

impl Traceable {
    /// Reads what ftrace can probe: `available_filter_functions_addrs`, or
    /// `available_filter_functions` where the kernel does not have it (it came
    /// with 6.5, commit 83f74441bcb1).
    ///
    /// # Errors
    ///
    /// [`SourceError::Unavailable`] on a kernel without
    /// `CONFIG_DYNAMIC_FTRACE`, or whose ftrace has shut itself down, and else
    /// what reading and parsing a file can come to. Never [`Self::Unknown`]:
    /// who can go on with it does.
    pub fn read(tracefs: &Tracefs) -> Result<Self, SourceError> {
        Self::read_wanted(tracefs, None)
    }

    /// [`Self::read`], of which only the functions of these modules and of the
    /// core kernel are wanted; all when it is `None`.
    pub(super) fn read_wanted(
        tracefs: &Tracefs,
        modules: Option<&[&str]>,
    ) -> Result<Self, SourceError> {
        let unavailable = |file, advice| SourceError::Unavailable {
            call: "open",
            path: tracefs.path(file),
            advice,
            source: None,
        };
        // kernel/trace/ftrace.c, ftrace_kill(): after that, opening the lists
        // says ENODEV.
        let open = |file| match tracefs.open_if_exists(file) {
            Err(SourceError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::NODEV.raw_os_error()) =>
            {
                Err(unavailable(file, SHUT_DOWN))
            }
            result => result,
        };
        let wanted = Wanted::new(modules);
        if let Some(file) = open(WITH_ADDRESSES)? {
            let lines = LocationLines::new(wanted);
            let lines = parse_lines(file, &tracefs.path(WITH_ADDRESSES), lines)?;
            Ok(Self::Locations(Locations::new(lines.addresses)))
        } else if let Some(file) = open(NAMES_ONLY)? {
            let lines = NameLines::new(wanted);
            let lines = parse_lines(file, &tracefs.path(NAMES_ONLY), lines)?;
            Ok(Self::Names(Box::new(lines.finish())))
        } else {
            Err(unavailable(
                NAMES_ONLY,
                "use one with CONFIG_DYNAMIC_FTRACE",
            ))
        }
    }

    /// How many functions ftrace lists, where it can be told.
    #[must_use]
    pub fn function_count(&self) -> Option<usize> {
        match self {
            Self::Unknown => None,
            Self::Locations(locations) => Some(locations.addresses.len()),
            Self::Names(names) => Some(names.functions.len()),
        }
    }
}

/// Asks a [`Traceable`] about functions in the order of their addresses, which
/// needs no search for each.
pub(crate) struct Prober<'t> {
    traceable: &'t Traceable,
    symbols: &'t Symbols,
    /// The locations from the last function on.
    locations: &'t [u64],
}

impl<'t> Prober<'t> {
    pub(crate) fn new(traceable: &'t Traceable, symbols: &'t Symbols) -> Self {
        Self {
            traceable,
            symbols,
            locations: match traceable {
                Traceable::Locations(locations) => locations.as_slice(),
                Traceable::Names(_) | Traceable::Unknown => &[],
            },
        }
    }

    /// Whether the function can be probed that has these names, at least one
    /// and all at one address, which is not below that of the call before; the
    /// following symbol is at `next`.
    pub(crate) fn verdict(&mut self, names: &[Symbol<'_>], next: u64) -> Verdict {
        match self.traceable {
            Traceable::Unknown => Verdict::Unknown,
            Traceable::Locations(_) => {
                let address = names.first().map_or(u64::MAX, |symbol| symbol.address);
                while self.locations.first().is_some_and(|&at| at < address) {
                    self.locations = &self.locations[1..];
                }
                if is_entry(self.locations.first(), address, next) {
                    Verdict::Yes
                } else {
                    Verdict::No
                }
            }
            Traceable::Names(listed) => names
                .iter()
                .map(|symbol| listed.verdict(self.symbols, symbol))
                .max()
                .unwrap_or(Verdict::No),
        }
    }
}

/// Whether `location`, the first that is not before `address`, is at the entry
/// of the function there, and not of the following one, at `next`.
fn is_entry(location: Option<&u64>, address: u64, next: u64) -> bool {
    location.is_some_and(|&at| at < next && at - address <= MAX_ENTRY_OFFSET)
}

/// What [`Traceable`] says of one function.
///
/// The greater one holds where a function's names get different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Unknown,
    No,
    /// Some functions of this name, it cannot be told which.
    SomeOfThem,
    Yes,
}

/// The addresses that ftrace patches, sorted.
///
/// Not the functions' own: on x86 with IBT compiled in, most lie 4 bytes
/// behind, after the ENDBR64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    addresses: Vec<u64>,
}

impl Locations {
    /// Takes ftrace's own addresses, in any order.
    #[must_use]
    pub fn new(mut addresses: Vec<u64>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        Self { addresses }
    }

    /// Parses the text of `available_filter_functions_addrs`: lines of
    /// `ADDRESS NAME [MODULE]`.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first line that is not of this form.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        let lines = LocationLines::new(Wanted::default());
        Ok(Self::new(Feed::new(lines).parse(text)?.addresses))
    }

    /// The addresses, sorted, each once.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.addresses
    }

    /// Whether ftrace has a location at the entry of the function at
    /// `address`, whose following symbol is at `next`. That one's own location
    /// is not to be taken for it, however short the function.
    #[must_use]
    pub fn covers(&self, address: u64, next: u64) -> bool {
        let first = self.addresses.partition_point(|&at| at < address);
        is_entry(self.addresses.get(first), address, next)
    }
}

/// Parses lines of `available_filter_functions_addrs`.
struct LocationLines {
    addresses: Vec<u64>,
    wanted: Wanted,
}

impl LocationLines {
    const fn new(wanted: Wanted) -> Self {
        Self {
            addresses: Vec::new(),
            wanted,
        }
    }
}

impl Lines for LocationLines {
    const FORMAT: &'static str = "ADDRESS NAME [MODULE]";

    fn line(&mut self, text: &[u8]) -> Result<Option<usize>, Fault> {
        let (address, at) = address(text)?;
        let label = Label::parse(text, at)?;
        if self.wanted.have_passed(&text[label.module]) {
            return Ok(None);
        }
        if !text[label.name].starts_with(INVALID_FUNCTION) {
            self.addresses.push(address);
        }
        Ok(Some(label.end))
    }
}

/// The names that ftrace lists, with their modules.
///
/// A name may be listed several times. When it is listed fewer times than
/// there are functions of that name, which of them are meant cannot be told.
#[derive(Debug)]
pub struct Names {
    /// Their addresses are not known.
    functions: Symbols,
}

impl Names {
    /// Parses the text of `available_filter_functions`: lines of
    /// `NAME [MODULE]`.
    ///
    /// # Errors
    ///
    /// [`ParseError`] names the first line that is not of this form.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, ParseError> {
        let lines = NameLines::new(Wanted::default());
        Ok(Feed::new(lines).parse(text.as_ref())?.finish())
    }

    /// How many functions of this name ftrace lists in this module; `None` is
    /// the core kernel.
    ///
    /// Kernels built with Clang's LTO strip `.llvm.HASH` here, though not from
    /// /proc/kallsyms, so a name that has it counts without it too.
    #[must_use]
    pub fn count(&self, name: &str, module: Option<&str>) -> usize {
        let exactly = |name| {
            self.functions
                .named(name)
                .filter(|function| function.module == module)
                .count()
        };
        match exactly(name) {
            0 => trim_llvm(name).map_or(0, exactly),
            count => count,
        }
    }

    /// Whether `symbol` is listed as often as there are functions like it.
    fn verdict(&self, symbols: &Symbols, symbol: &Symbol<'_>) -> Verdict {
        match self.count(symbol.name, symbol.module) {
            0 => Verdict::No,
            listed => {
                let existing = symbols
                    .named(symbol.name)
                    .filter(|other| other.is_text() && other.module == symbol.module)
                    .count();
                if listed < existing {
                    Verdict::SomeOfThem
                } else {
                    Verdict::Yes
                }
            }
        }
    }
}

/// Parses lines of `available_filter_functions`.
struct NameLines {
    functions: Builder,
    wanted: Wanted,
}

impl NameLines {
    fn new(wanted: Wanted) -> Self {
        Self {
            functions: Builder::default(),
            wanted,
        }
    }

    fn finish(self) -> Names {
        Names {
            functions: Symbols::new(None, self.functions),
        }
    }
}

impl Lines for NameLines {
    const FORMAT: &'static str = "NAME [MODULE]";

    fn line(&mut self, text: &[u8]) -> Result<Option<usize>, Fault> {
        let label = Label::parse(text, 0)?;
        let (name, module) = (&text[label.name], &text[label.module]);
        if self.wanted.have_passed(module) {
            return Ok(None);
        }
        if !name.starts_with(INVALID_FUNCTION) {
            self.functions.push_line(0, b't', name, module)?;
        }
        Ok(Some(label.end))
    }
}

/// The name without the suffix of Clang's LTO, if it has one.
fn trim_llvm(name: &str) -> Option<&str> {
    name.split_once(".llvm.").map(|(name, _)| name)
}
