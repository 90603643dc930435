//! From patterns to the functions that are meant and can be probed, with a
//! reason for each that cannot.
//!
//! A kernel function is its address; names are labels on it. A pattern that
//! matches any of a function's names selects it, a negative one that matches
//! any of them takes it away, and each function is selected once.
//!
//! ```
//! use ksyms::{
//!     kallsyms::Symbols,
//!     select::{Patterns, Reason, select},
//!     source::{Locations, Traceable},
//! };
//!
//! let symbols = Symbols::parse(b"\
//! ffffffff81000a20 t __pfx___do_sys_getpid
//! ffffffff81000a30 t __do_sys_getpid
//! ffffffff81000a30 T __x64_sys_getpid
//! ".to_vec())?;
//! // ftrace patches behind the ENDBR64.
//! let traceable = Traceable::Locations(Locations::new(vec![0xffff_ffff_8100_0a34]));
//! let selection = select(&symbols, &traceable, &Patterns::parse(["*sys_getpid"])?);
//! assert_eq!(selection.targets[0].address, 0xffff_ffff_8100_0a30);
//! assert_eq!(selection.targets[0].name, "__do_sys_getpid");
//! assert_eq!(selection.targets[0].aliases, ["__x64_sys_getpid"]);
//! assert_eq!(selection.rejected[0].reason, Reason::Padding);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod glob;
mod pattern;
mod reason;
mod suggest;

pub use pattern::{PatternError, PatternErrorKind, Patterns};
pub use reason::Reason;
pub use suggest::{missing_modules, suggest};

use crate::{
    kallsyms::{Symbol, Symbols},
    source::{Prober, Traceable, Verdict},
};

/// A function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The symbol's address: the function's first byte, never 0. ftrace's own
    /// location may lie behind it.
    pub address: u64,
    /// The first of its names that a pattern matches, in the table's order.
    pub name: &'a str,
    /// The module of that name; `None` for the core kernel.
    pub module: Option<&'a str>,
    /// The other names of text at this address, in the table's order.
    pub aliases: Vec<&'a str>,
    /// ftrace lists fewer functions of this name than there are, and does not
    /// tell which: the kernel may refuse this one. Only on kernels before 6.5.
    pub ambiguous: bool,
}

/// A symbol that a pattern matches and that is not probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// The symbol's address; 0 where it is hidden.
    pub address: u64,
    /// The first of its names that a pattern matches.
    pub name: &'a str,
    /// The module of that name; `None` for the core kernel.
    pub module: Option<&'a str>,
    /// Why it is not probed.
    pub reason: Reason,
}

/// What the patterns mean on this kernel, from [`select`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection<'a> {
    /// What can be probed, by address, each once.
    pub targets: Vec<Target<'a>>,
    /// What cannot, by address.
    pub rejected: Vec<Rejected<'a>>,
    /// The positive patterns that match no symbol, as they were written, in
    /// their order. What a negative pattern took away was matched.
    pub unmatched: Vec<String>,
}

impl<'a> Selection<'a> {
    /// How many functions and other symbols the patterns match.
    #[must_use]
    pub const fn matched(&self) -> usize {
        self.targets.len() + self.rejected.len()
    }

    /// Moves the targets for which `reason` has one to the rejected.
    ///
    /// For what only a way of attaching knows: kprobes have a blacklist,
    /// fentry needs BTF.
    pub fn reject(&mut self, mut reason: impl FnMut(&Target<'a>) -> Option<Reason>) {
        self.targets.retain(|target| {
            let Some(reason) = reason(target) else {
                return true;
            };
            self.rejected.push(Rejected {
                address: target.address,
                name: target.name,
                module: target.module,
                reason,
            });
            false
        });
        self.rejected.sort_by_key(|rejected| rejected.address);
    }
}

/// Finds the functions that `patterns` mean, and tells those that can be
/// probed from those that cannot.
///
/// Globs and regular expressions are matched against the names of text symbols
/// alone. A name without a wildcard that only data has is told as
/// [`Reason::NotAFunction`].
///
/// Where `traceable` has locations, a function can be probed if one lies at its
/// entry. Where it has names only, on kernels before 6.5, it can be if any of
/// its names is listed for its module; when fewer functions of a name are
/// listed than exist, which of them are meant cannot be told, and all become
/// [ambiguous](Target::ambiguous) targets, of which the kernel refuses the
/// wrong ones one by one. Where nothing is known, every text symbol becomes a
/// target that no other reason speaks against.
#[must_use]
pub fn select<'a>(
    symbols: &'a Symbols,
    traceable: &Traceable,
    patterns: &Patterns,
) -> Selection<'a> {
    // Until the last target is found.
    let _batch = symbols.batch_start();
    let mut selection = Selection::default();
    let mut used = vec![false; patterns.positive.len()];
    let mut prober = Prober::new(traceable, symbols);
    for_each_function(symbols, &patterns.positive.scope(), |names, next| {
        let mut shown = None;
        for (position, symbol) in names.iter().enumerate() {
            if patterns.positive.matches_noting(symbol, &mut used) && shown.is_none() {
                shown = Some(position);
            }
        }
        let Some(shown) = shown else { return };
        if names.iter().any(|name| patterns.negative.matches(name)) {
            return;
        }
        let symbol = names[shown];
        let verdict = prober.verdict(names, next);
        match Reason::of(&symbol, verdict) {
            Some(reason) => selection.rejected.push(reject(&symbol, reason)),
            None => selection.targets.push(Target {
                address: symbol.address,
                name: symbol.name,
                module: symbol.module,
                aliases: [&names[..shown], &names[shown + 1..]]
                    .into_iter()
                    .flatten()
                    .map(|alias| alias.name)
                    .collect(),
                ambiguous: verdict == Verdict::SomeOfThem,
            }),
        }
    });
    reject_data(symbols, patterns, &mut used, &mut selection);
    selection.unmatched = used
        .iter()
        .zip(&patterns.positive.patterns)
        .filter(|(used, _)| !**used)
        .map(|(_, pattern)| pattern.text.clone())
        .collect();
    selection
}

/// Which symbols have to be looked at.
enum Scope<'p> {
    All,
    /// Those that have one of `names` or begin with one of `prefixes`, and all
    /// of modules.
    Narrow {
        names: Vec<&'p str>,
        prefixes: Vec<&'p str>,
    },
}

impl Scope<'_> {
    const fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Narrow { names, prefixes } => names.is_empty() && prefixes.is_empty(),
        }
    }

    /// The indices of these symbols, and maybe of more, in order.
    fn indices(&self, symbols: &Symbols) -> Box<dyn Iterator<Item = usize>> {
        match self {
            Self::Narrow { names, prefixes } if symbols.table().is_some() => {
                Box::new(symbols.narrowed(names, prefixes).into_iter())
            }
            _ => Box::new(0..symbols.len()),
        }
    }
}

/// Calls `visit` for each function within `scope`, in address order, with its
/// names and the address of the following symbol.
///
/// Symbols whose address is hidden share no code, only that nobody says where
/// it is, so each is visited alone.
fn for_each_function<'a>(
    symbols: &'a Symbols,
    scope: &Scope<'_>,
    mut visit: impl FnMut(&[Symbol<'a>], u64),
) {
    let mut names = Vec::new();
    for group in symbols.groups(scope.indices(symbols)) {
        let end = group.end;
        names.clear();
        names.extend(
            group
                .filter_map(|index| symbols.get(index))
                .filter(Symbol::is_text),
        );
        let next = if end < symbols.len() {
            symbols.address(end)
        } else {
            u64::MAX
        };
        match names.first() {
            None => {}
            Some(first) if first.address == 0 => names.chunks(1).for_each(|name| visit(name, next)),
            Some(_) => visit(&names, next),
        }
    }
}

/// Adds names without a wildcard that no text symbol has, though data has it.
fn reject_data<'a>(
    symbols: &'a Symbols,
    patterns: &Patterns,
    used: &mut [bool],
    selection: &mut Selection<'a>,
) {
    let scope = Scope::Narrow {
        names: patterns.positive.unused_names(used).collect(),
        prefixes: Vec::new(),
    };
    if scope.is_empty() {
        return;
    }
    let texts = used.to_vec();
    for symbol in scope
        .indices(symbols)
        .filter_map(|index| symbols.get(index))
        .filter(|symbol| !symbol.is_text())
    {
        let mut missed = false;
        for index in patterns.positive.exact(&symbol) {
            if !texts[index] {
                used[index] = true;
                missed = true;
            }
        }
        if missed && !patterns.negative.matches(&symbol) {
            selection
                .rejected
                .push(reject(&symbol, Reason::NotAFunction));
        }
    }
    selection.rejected.sort_by_key(|rejected| rejected.address);
}

const fn reject<'a>(symbol: &Symbol<'a>, reason: Reason) -> Rejected<'a> {
    Rejected {
        address: symbol.address,
        name: symbol.name,
        module: symbol.module,
        reason,
    }
}

#[cfg(test)]
mod tests;
