//! Near names for patterns that match nothing.

use strsim::osa_distance;

use super::{
    Reason, Scope, for_each_function,
    glob::Glob,
    pattern::{CORE, split_module},
};
use crate::{
    kallsyms::Symbols,
    source::{Prober, Traceable, Verdict},
};

/// The modules that patterns which match nothing
/// ([`Selection::unmatched`](super::Selection::unmatched)) name and that are not
/// loaded. Of a module with a wildcard that cannot be said.
#[must_use]
pub fn missing_modules<'a>(symbols: &Symbols, unmatched: &'a [String]) -> Vec<&'a str> {
    unmatched
        .iter()
        .filter_map(|pattern| split_module(pattern).0)
        .filter(|module| !module.is_empty() && *module != CORE)
        .filter(|module| !module.contains(['*', '?', '[', '\\']))
        .filter(|module| !symbols.has_module(module))
        .collect()
}

/// As many names as a reader takes in.
const MAX_SUGGESTIONS: usize = 5;

/// Suggests up to five names of functions that may be meant by patterns that
/// match nothing ([`Selection::unmatched`](super::Selection::unmatched)), the
/// likeliest first.
///
/// Functions that can be probed come before others; among them, those that
/// are the name with a compiler's suffix (`NAME.isra.0`), then those that
/// contain it (`__x64_NAME`) and those that differ by a few characters. Of a
/// glob, its longest literal part is compared, with the beginning or the end
/// of names where it stands there. For a regular expression there is nothing
/// to compare. Only the first five patterns are looked at.
#[must_use]
pub fn suggest<'a>(
    symbols: &'a Symbols,
    traceable: &Traceable,
    unmatched: &[String],
) -> Vec<&'a str> {
    let needles: Vec<_> = unmatched
        .iter()
        .filter_map(|pattern| Needle::parse(pattern))
        .take(MAX_SUGGESTIONS)
        .collect();
    if needles.is_empty() {
        return Vec::new();
    }
    let mut prober = Prober::new(traceable, symbols);
    let mut near = Vec::new();
    for_each_function(symbols, &Scope::All, |names, next| {
        for symbol in names {
            let distances = needles.iter().filter_map(|n| n.distance(symbol.name));
            let Some(distance) = distances.min() else {
                continue;
            };
            let verdict = prober.verdict(names, next);
            if matches!(
                Reason::of(symbol, verdict),
                None | Some(Reason::NotTraceable)
            ) {
                let name = symbol.name;
                near.push((verdict == Verdict::No, distance, name.len(), name));
            }
        }
    });
    near.sort_unstable();
    let mut names: Vec<_> = near.into_iter().map(|(.., name)| name).collect();
    names.dedup();
    names.truncate(MAX_SUGGESTIONS);
    names
}

/// What is compared with names.
struct Needle {
    /// In lower case, since names hardly ever differ in nothing but case.
    literal: String,
    characters: u64,
    place: Place,
    /// How many characters may differ.
    tolerance: usize,
}

enum Place {
    Whole,
    Start,
    End,
    Anywhere,
}

impl Needle {
    fn parse(pattern: &str) -> Option<Self> {
        let (_, name) = split_module(pattern);
        if name.starts_with('/') {
            return None;
        }
        let glob = Glob::parse(name).ok()?;
        let (literal, place) = if let Some(literal) = glob.literal() {
            (literal, Place::Whole)
        } else {
            let literal = glob.literals().max_by_key(|literal| literal.len())?;
            let place = if glob.prefix() == literal {
                Place::Start
            } else if glob.ends_with(literal) {
                Place::End
            } else {
                Place::Anywhere
            };
            (literal, place)
        };
        // Shorter ones are in any name, and near to many.
        if literal.len() < 3 {
            return None;
        }
        let literal = literal.to_ascii_lowercase();
        Some(Self {
            characters: characters(&literal),
            place,
            tolerance: (literal.len() / 4).clamp(1, 4),
            literal,
        })
    }

    /// How far `name` is from it; `None` when it is not near. Small names and
    /// symbols' names are ASCII; others are near if they contain it.
    fn distance(&self, name: &str) -> Option<usize> {
        let len = self.literal.len();
        if let Place::Whole = self.place
            && name
                .strip_prefix(&self.literal)
                .is_some_and(|rest| rest.starts_with('.'))
        {
            return Some(0);
        }
        let part = match self.place {
            Place::Whole => (name.len().abs_diff(len) <= self.tolerance).then_some(name),
            Place::Start => name.get(..len),
            Place::End => name
                .len()
                .checked_sub(len)
                .and_then(|start| name.get(start..)),
            Place::Anywhere => None,
        };
        let edits = part
            .filter(|part| {
                let theirs = characters(part);
                // An edit brings in one character at most, and drops one.
                let edits = (theirs & !self.characters)
                    .count_ones()
                    .max((self.characters & !theirs).count_ones());
                edits as usize <= self.tolerance
            })
            .map(|part| osa_distance(&self.literal, &part.to_ascii_lowercase()))
            .filter(|edits| *edits <= self.tolerance)
            .map(|edits| edits.max(1));
        match edits {
            Some(1) => Some(1),
            edits if name.contains(&self.literal) => Some(edits.map_or(2, |edits| edits.min(2))),
            edits => edits,
        }
    }
}

/// Which characters occur, a bit for each; case does not count.
fn characters(text: &str) -> u64 {
    text.bytes().fold(0, |set, byte| {
        set | 1
            << match byte {
                b'0'..=b'9' => 32 + (byte & 15),
                _ => byte & 31,
            }
    })
}
