//! The patterns that say which functions are meant.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use regex::Regex;

use super::{
    Scope,
    glob::{Glob, GlobError},
};
use crate::kallsyms::Symbol;

/// What the core kernel is called where a pattern asks for a module.
pub(super) const CORE: &str = "vmlinux";

/// More than a list of all functions of the largest kernel.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A set of patterns: those that take functions in, and those that take them
/// away again.
///
/// | pattern | means |
/// |---|---|
/// | `tcp_*` | a glob over names: `*`, `?`, `[a-z]`, `[!a-z]`, `\` before a character to take it literally; the whole name, case sensitive |
/// | `nf_nat:*`, `nf_nat:` | the same in one module, a glob too; `vmlinux` is the core kernel; `-` and `_` are one |
/// | `/^tcp_v[46]_/` | a regular expression, found anywhere in the name; `nf_nat:/re/` in one module |
/// | `@FILE` | a pattern a line; blank lines and those that begin with `#` are skipped; `@-` is standard input |
/// | `!PAT` | take away what PAT, any of the above, stands for |
///
/// The order does not matter: what is meant is all that the positive patterns
/// match, less all that the negative ones match. A `::`, as in paths of Rust
/// functions, separates no module.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    pub(super) positive: PatternSet,
    pub(super) negative: PatternSet,
}

impl Patterns {
    /// Parses patterns, reading each `@FILE` through the file system and `@-`
    /// from standard input.
    ///
    /// # Errors
    ///
    /// As for [`Patterns::parse_with`].
    pub fn parse<P: AsRef<str>>(
        patterns: impl IntoIterator<Item = P>,
    ) -> Result<Self, PatternError> {
        Self::parse_with(patterns, read_file)
    }

    /// Parses patterns, with `read_file` to fetch the text of each `@FILE`.
    ///
    /// # Errors
    ///
    /// [`PatternError`] quotes the first pattern that cannot be understood, or
    /// says that none of them takes anything in.
    pub fn parse_with<P: AsRef<str>>(
        patterns: impl IntoIterator<Item = P>,
        mut read_file: impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, PatternError> {
        let mut parsed = Self::default();
        for pattern in patterns {
            parsed.add(pattern.as_ref(), &mut read_file)?;
        }
        if parsed.positive.patterns.is_empty() {
            let kind = match parsed.negative.patterns.first() {
                Some(_) => PatternErrorKind::OnlyNegative,
                None => PatternErrorKind::NoPattern,
            };
            return Err(PatternError {
                pattern: parsed
                    .negative
                    .patterns
                    .first()
                    .map(|pattern| format!("!{}", pattern.text))
                    .unwrap_or_default(),
                place: None,
                kind,
            });
        }
        Ok(parsed)
    }

    fn add(
        &mut self,
        text: &str,
        read_file: &mut impl FnMut(&Path) -> io::Result<String>,
    ) -> Result<(), PatternError> {
        let (negative, body) = split_sign(text);
        let Some(file) = body.strip_prefix('@') else {
            return self
                .add_plain(negative, body)
                .map_err(|kind| PatternError::new(text, None, kind));
        };
        let fail = |kind| PatternError::new(text, None, kind);
        if file.is_empty() {
            return Err(fail(PatternErrorKind::MissingFileName));
        }
        let lines =
            read_file(file.as_ref()).map_err(|error| fail(PatternErrorKind::File(error)))?;
        for (index, line) in lines.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |kind| PatternError::new(line, Some((file.into(), index + 1)), kind);
            let (line_negative, body) = split_sign(line);
            if negative && line_negative {
                return Err(fail(PatternErrorKind::DoubleNegative));
            }
            if body.starts_with('@') {
                return Err(fail(PatternErrorKind::NestedFile));
            }
            self.add_plain(negative || line_negative, body)
                .map_err(fail)?;
        }
        Ok(())
    }

    /// Adds a glob or a regular expression, with or without a module.
    fn add_plain(&mut self, negative: bool, body: &str) -> Result<(), PatternErrorKind> {
        let pattern = Pattern::parse(body)?;
        if negative {
            self.negative.push(pattern);
        } else {
            self.positive.push(pattern);
        }
        Ok(())
    }

    /// The positive patterns as they were written, those of files among them.
    pub fn positive(&self) -> impl Iterator<Item = &str> {
        self.positive
            .patterns
            .iter()
            .map(|pattern| pattern.text.as_str())
    }

    /// The modules in which functions are meant; `None` when that may be any.
    #[must_use]
    pub fn modules(&self) -> Option<Vec<&str>> {
        let mut modules = Vec::new();
        for pattern in &self.positive.patterns {
            match pattern.module.as_ref()?.literal()? {
                CORE => {}
                module => modules.push(module),
            }
        }
        Some(modules)
    }

    /// Whether some positive pattern means every function of the kernel: `*`.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.positive
            .patterns
            .iter()
            .any(|pattern| pattern.module.is_none() && pattern.name.is_everything())
    }
}

/// Splits a leading `!` off.
fn split_sign(text: &str) -> (bool, &str) {
    text.strip_prefix('!')
        .map_or((false, text), |body| (true, body))
}

fn read_file(path: &Path) -> io::Result<String> {
    let reader: Box<dyn Read> = if path == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path)?)
    };
    let mut text = String::new();
    reader.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// One pattern, without its sign.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// As it was written.
    pub(super) text: String,
    module: Option<Glob>,
    name: NamePattern,
}

#[derive(Clone, Debug)]
enum NamePattern {
    Glob(Glob),
    Regex(Regex),
}

impl NamePattern {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.matches(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }

    fn literal(&self) -> Option<&str> {
        match self {
            Self::Glob(glob) => glob.literal(),
            Self::Regex(_) => None,
        }
    }

    /// What every name that matches begins with.
    fn prefix(&self) -> &str {
        match self {
            Self::Glob(glob) => glob.prefix(),
            Self::Regex(_) => "",
        }
    }

    fn is_everything(&self) -> bool {
        match self {
            Self::Glob(glob) => glob.is_everything(),
            Self::Regex(_) => false,
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, PatternErrorKind> {
        if text.is_empty() {
            return Err(PatternErrorKind::Empty);
        }
        if text.starts_with('!') {
            return Err(PatternErrorKind::DoubleNegative);
        }
        let (module, name) = split_module(text);
        let module = match module {
            Some("") => return Err(PatternErrorKind::EmptyModule),
            // Modules are known by their file names too, nf-nat.ko.
            Some(module) if module.contains('[') => Some(Glob::parse(module)?),
            Some(module) => Some(Glob::parse(&module.replace('-', "_"))?),
            None => None,
        };
        let name = match name.strip_prefix('/') {
            Some(rest) => match rest.strip_suffix('/') {
                Some("") => return Err(PatternErrorKind::EmptyRegex),
                Some(regex) => NamePattern::Regex(
                    Regex::new(regex).map_err(|error| PatternErrorKind::Regex(Box::new(error)))?,
                ),
                None => return Err(PatternErrorKind::UnclosedRegex),
            },
            None if name.is_empty() => NamePattern::Glob(Glob::parse("*")?),
            None => NamePattern::Glob(Glob::parse(name)?),
        };
        Ok(Self {
            text: text.into(),
            module,
            name,
        })
    }

    fn matches(&self, symbol: &Symbol<'_>) -> bool {
        self.name.matches(symbol.name) && self.matches_module(symbol)
    }

    fn matches_module(&self, symbol: &Symbol<'_>) -> bool {
        self.may_be_in(symbol.module.unwrap_or(CORE))
    }

    fn may_be_in_core(&self) -> bool {
        self.may_be_in(CORE)
    }

    fn may_be_in(&self, module: &str) -> bool {
        self.module.as_ref().is_none_or(|glob| glob.matches(module))
    }
}

/// Splits `module:` off: at the first colon, unless that is one of a `::`, is
/// escaped, or is in a regular expression.
pub(super) fn split_module(text: &str) -> (Option<&str>, &str) {
    if text.starts_with('/') {
        return (None, text);
    }
    let mut escaped = false;
    let colon = text.bytes().position(|byte| {
        let found = byte == b':' && !escaped;
        escaped = byte == b'\\' && !escaped;
        found
    });
    match colon {
        Some(colon) if !text[colon + 1..].starts_with(':') => {
            (Some(&text[..colon]), &text[colon + 1..])
        }
        _ => (None, text),
    }
}

/// Patterns of one sign, ready to be matched against many names.
#[derive(Clone, Debug, Default)]
pub(super) struct PatternSet {
    pub(super) patterns: Vec<Pattern>,
    /// Those without a wildcard, by name: lists of thousands are common.
    exact: HashMap<String, Vec<usize>>,
    /// The others.
    wild: Vec<usize>,
}

impl PatternSet {
    fn push(&mut self, pattern: Pattern) {
        let index = self.patterns.len();
        match pattern.name.literal() {
            Some(name) => self.exact.entry(name.into()).or_default().push(index),
            None => self.wild.push(index),
        }
        self.patterns.push(pattern);
    }

    pub(super) const fn len(&self) -> usize {
        self.patterns.len()
    }

    /// Whether any pattern matches.
    pub(super) fn matches(&self, symbol: &Symbol<'_>) -> bool {
        self.exact(symbol).next().is_some()
            || self
                .wild
                .iter()
                .any(|&index| self.patterns[index].matches(symbol))
    }

    /// Whether any pattern matches; notes in `used` each one that does, which
    /// has room for all of them.
    pub(super) fn matches_noting(&self, symbol: &Symbol<'_>, used: &mut [bool]) -> bool {
        let mut any = false;
        for index in self.exact(symbol) {
            used[index] = true;
            any = true;
        }
        for &index in &self.wild {
            // Once it is known that it does, a pattern has no more to say.
            if !(any && used[index]) && self.patterns[index].matches(symbol) {
                used[index] = true;
                any = true;
            }
        }
        any
    }

    /// The names of patterns without a wildcard that are not noted in `used`.
    pub(super) fn unused_names(&self, used: &[bool]) -> impl Iterator<Item = &str> {
        self.exact
            .iter()
            .filter(|(_, patterns)| patterns.iter().any(|&index| !used[index]))
            .map(|(name, _)| name.as_str())
    }

    /// The symbols of the core kernel that can match at all.
    pub(super) fn scope(&self) -> Scope<'_> {
        let in_core = |&index: &usize| self.patterns[index].may_be_in_core();
        let mut prefixes = Vec::new();
        for &index in self.wild.iter().filter(|index| in_core(index)) {
            match self.patterns[index].name.prefix() {
                "" => return Scope::All,
                prefix => prefixes.push(prefix),
            }
        }
        Scope::Narrow {
            names: self
                .exact
                .iter()
                .filter(|(_, patterns)| patterns.iter().any(in_core))
                .map(|(name, _)| name.as_str())
                .collect(),
            prefixes,
        }
    }

    /// The patterns without a wildcard that match.
    pub(super) fn exact(&self, symbol: &Symbol<'_>) -> impl Iterator<Item = usize> {
        let named = if self.exact.is_empty() {
            None
        } else {
            self.exact.get(symbol.name)
        };
        named
            .into_iter()
            .flatten()
            .copied()
            .filter(|&index| self.patterns[index].matches_module(symbol))
    }
}

/// A pattern that cannot be understood; what it displays quotes it, and ends
/// in what to write instead.
#[derive(Debug)]
pub struct PatternError {
    /// The pattern as it was written, without its file.
    pub pattern: String,
    /// The file that it stands in and the line, counted from 1.
    pub place: Option<(PathBuf, usize)>,
    /// What is wrong with it.
    pub kind: PatternErrorKind,
}

impl PatternError {
    fn new(pattern: &str, place: Option<(PathBuf, usize)>, kind: PatternErrorKind) -> Self {
        Self {
            pattern: pattern.into(),
            place,
            kind,
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((path, line)) = &self.place {
            write!(f, "{}:{line}: ", path.display())?;
        }
        write!(f, "pattern `{}`: {}", self.pattern, self.kind)
    }
}

impl Error for PatternError {
    /// What the kind rests on, since the kind itself is displayed.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

/// What is wrong with a pattern.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternErrorKind {
    /// No pattern was given, or the files hold none.
    #[error("there is none; give one, such as 'tcp_*'")]
    NoPattern,
    /// All patterns take away.
    #[error("there is nothing to take it away from; give a pattern without `!` too, such as '*'")]
    OnlyNegative,
    /// The pattern is empty.
    #[error("it is empty; '*' means every function")]
    Empty,
    /// Nothing stands before the colon.
    #[error("nothing stands before the `:`; write 'vmlinux:NAME' for the core kernel")]
    EmptyModule,
    /// Nothing stands between the slashes.
    #[error("the regular expression is empty; '*' means every function")]
    EmptyRegex,
    /// A regular expression does not end in a slash.
    #[error("the regular expression has no end; write '/RE/'")]
    UnclosedRegex,
    /// The regular expression cannot be understood.
    #[error("the regular expression is not valid; a glob needs no slashes around it")]
    Regex(#[source] Box<regex::Error>),
    /// A class has no `]`.
    #[error("a `[` has no `]`; write '\\[' to mean the character")]
    UnclosedClass,
    /// A range in a class ends before it begins.
    #[error("the range {0}-{1} runs backwards; write {1}-{0}")]
    ReversedRange(char, char),
    /// A backslash has nothing behind it.
    #[error("nothing follows the `\\`; write '\\\\' to mean the character")]
    TrailingBackslash,
    /// Two signs.
    #[error("it is taken away twice; write one `!`, or none to take it in")]
    DoubleNegative,
    /// `@` without a name.
    #[error("the file's name is missing; write '@FILE', or '@-' for standard input")]
    MissingFileName,
    /// A file of patterns names another.
    #[error("a file of patterns cannot name another; give each with an '@FILE' of its own")]
    NestedFile,
    /// The file cannot be read.
    #[error("the file cannot be read; check its name, and that it holds lines of text")]
    File(#[source] io::Error),
}

impl From<GlobError> for PatternErrorKind {
    fn from(error: GlobError) -> Self {
        match error {
            GlobError::UnclosedClass => Self::UnclosedClass,
            GlobError::ReversedRange(first, last) => Self::ReversedRange(first, last),
            GlobError::TrailingBackslash => Self::TrailingBackslash,
        }
    }
}
