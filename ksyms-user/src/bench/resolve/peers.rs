//! How others answer the same questions.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{BufRead as _, BufReader},
    ops::ControlFlow,
    path::Path,
};

use super::queries::{Names, Random};
use crate::kallsyms::SymbolTable;

/// std's hash map, of each name the first address.
pub(super) fn hash_map(table: &SymbolTable) -> HashMap<String, u64> {
    let mut map = HashMap::with_capacity(table.len());
    let _: ControlFlow<()> = table.walk(|_, symbol| {
        map.entry(symbol.name.to_owned()).or_insert(symbol.address);
        ControlFlow::Continue(())
    });
    map
}

/// Reads a text line by line until one has the name; whether one has.
pub(super) fn scan(path: &Path, name: &str) -> Option<bool> {
    let mut text = BufReader::new(File::open(path).ok()?);
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line).ok()? > 0 {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        if words.nth(2) == Some(name.as_bytes()) {
            return Some(true);
        }
        line.clear();
    }
    Some(false)
}

/// aya's map of the running kernel's symbols: by address, of each the last name.
pub(super) struct Aya {
    symbols: BTreeMap<u64, String>,
    pub(super) names: Names,
}

impl Aya {
    /// `None` where it cannot be read, or all addresses are hidden and so one.
    pub(super) fn read() -> Option<Self> {
        // More than it can be asked in the time there is.
        const ASKED: usize = 4096;
        let symbols = Self::read_symbols()?;
        if symbols.len() < 2 {
            return None;
        }
        let mut names: Vec<&str> = symbols.values().map(|name| &**name).collect();
        Random::new().shuffle(&mut names);
        names.truncate(ASKED);
        let names = Names::draw(names, &first(&symbols));
        Some(Self { symbols, names })
    }

    pub(super) fn read_symbols() -> Option<BTreeMap<u64, String>> {
        aya::util::kernel_symbols().ok()
    }

    /// The lowest address of each name.
    pub(super) fn first(&self) -> HashMap<&str, u64> {
        first(&self.symbols)
    }

    /// All addresses in random order, and how long their names are.
    pub(super) fn addresses(&self) -> Vec<(u64, usize)> {
        let all = self.symbols.iter();
        let mut all: Vec<_> = all.map(|(&address, name)| (address, name.len())).collect();
        Random::new().shuffle(&mut all);
        all
    }

    /// The first address of a name: all it offers is a search.
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        self.symbols
            .iter()
            .find_map(|(address, other)| (other == name).then_some(*address))
    }

    /// The name of what an address is in.
    pub(super) fn at(&self, address: u64) -> Option<&str> {
        self.symbols
            .range(..=address)
            .next_back()
            .map(|(_, name)| &**name)
    }
}

fn first(symbols: &BTreeMap<u64, String>) -> HashMap<&str, u64> {
    let mut first = HashMap::with_capacity(symbols.len());
    for (&address, name) in symbols {
        first.entry(&**name).or_insert(address);
    }
    first
}

/// blazesym, on a text.
#[cfg(feature = "blazesym")]
pub(super) struct Blazesym {
    symbolizer: blazesym::symbolize::Symbolizer,
    source: blazesym::symbolize::source::Source<'static>,
}

#[cfg(feature = "blazesym")]
impl Blazesym {
    pub(super) fn new(text: &Path) -> Self {
        use blazesym::{
            MaybeDefault,
            symbolize::{Symbolizer, source::Kernel},
        };
        Self {
            symbolizer: Symbolizer::new(),
            source: Kernel {
                kallsyms: MaybeDefault::Some(text.into()),
                vmlinux: MaybeDefault::None,
                debug_syms: false,
                ..Kernel::default()
            }
            .into(),
        }
    }

    /// Calls `with` with the name of what an address is in.
    pub(super) fn at<T>(&self, address: u64, with: impl FnOnce(&str) -> T) -> Option<T> {
        use blazesym::symbolize::{Input, Symbolized};
        match self
            .symbolizer
            .symbolize_single(&self.source, Input::AbsAddr(address))
        {
            Ok(Symbolized::Sym(symbol)) => Some(with(&symbol.name)),
            _ => None,
        }
    }
}
