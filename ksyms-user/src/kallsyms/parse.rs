//! The text form: `ADDRESS TYPE NAME [MODULE]`, a symbol a line.

use std::{collections::HashMap, ops::Range, sync::OnceLock};

use super::{Entry, Symbols, is_text};

/// A line that is not what its file consists of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}; each line reads `{format}`: read the file again, or name another")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub kind: ParseErrorKind,
    /// The form that a line has.
    pub format: &'static str,
}

/// What is wrong with a line.
///
/// Quoted text is cut to 32 characters, and what is not UTF-8 in it replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// There is no line at all.
    #[error("the file holds no symbol")]
    Empty,
    /// The last line has no newline at its end, so the file was cut off.
    #[error("the line has no end: the file was cut off here")]
    Truncated,
    /// The file is larger than a table can hold, 4 GiB.
    #[error("{0} bytes are more than any kernel's symbols")]
    TooLarge(usize),
    /// The line begins with a blank, or is empty.
    #[error("the address is missing")]
    MissingAddress,
    /// The line does not begin with an address of 1 to 16 hexadecimal digits.
    #[error("`{0}` is not an address")]
    BadAddress(String),
    /// Nothing follows the address.
    #[error("the type letter is missing")]
    MissingKind,
    /// The type is not one letter.
    #[error("`{0}` is not a type letter")]
    BadKind(String),
    /// Nothing follows the type, or nothing stands where a name is due.
    #[error("the name is missing")]
    MissingName,
    /// The name is longer than 65,535 bytes; the kernel's longest is 511
    /// (`KSYM_NAME_LEN` - 1, include/linux/kallsyms.h, since 6.1).
    #[error("a name of {0} bytes is longer than any symbol's")]
    NameTooLong(usize),
    /// The name or the module is not UTF-8.
    #[error("`{0}` is not UTF-8")]
    InvalidUtf8(String),
    /// What follows the name is not a module in brackets and the line's end.
    #[error("`{0}` is not a module in brackets")]
    BadModule(String),
}

const FORMAT: &str = "ADDRESS TYPE NAME [MODULE]";

/// A [`ParseErrorKind`] that has no line yet. In a box, since a parser's time
/// goes into moving its results, nearly all of which are good.
pub(crate) struct Fault(Box<ParseErrorKind>);

impl From<ParseErrorKind> for Fault {
    #[cold]
    fn from(kind: ParseErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

impl Fault {
    /// The error for line `line`, where each should be of the form `format`.
    #[cold]
    pub(crate) fn at(self, line: usize, format: &'static str) -> ParseError {
        ParseError {
            line,
            kind: *self.0,
            format,
        }
    }
}

pub(super) fn parse(mut text: Vec<u8>) -> Result<Symbols, ParseError> {
    let fail = |line, kind| Fault::from(kind).at(line, FORMAT);
    if u32::try_from(text.len()).is_err() {
        return Err(fail(1, ParseErrorKind::TooLarge(text.len())));
    }
    // The kernel's own lines average 44 bytes.
    let mut entries = Vec::with_capacity(text.len() / 44);
    let mut modules = Modules::default();
    let (mut any_text, mut any_address) = (false, false);
    let (mut read, mut write, mut line) = (0, 0, 0);
    while read < text.len() {
        line += 1;
        let fields = Fields::parse(&text[read..]).map_err(|fault| fault.at(line, FORMAT))?;
        let name = read + fields.label.name.start..read + fields.label.name.end;
        let module = modules
            .id(&text[read..][fields.label.module])
            .map_err(|fault| fault.at(line, FORMAT))?;
        read += fields.label.end;
        // arm64 and RISC-V: include/linux/module_symbol.h, is_mapping_symbol().
        if text[name.start] == b'$' {
            continue;
        }
        any_text |= is_text(fields.kind);
        any_address |= is_text(fields.kind) && fields.address != 0;
        let len = name.len();
        entries.push(Entry {
            address: fields.address,
            name: offset(write),
            module,
            name_len: u16::try_from(len)
                .map_err(|_| fail(line, ParseErrorKind::NameTooLong(len)))?,
            kind: fields.kind,
        });
        // The names move to the front of the text they came in.
        text.copy_within(name, write);
        text[write + len] = b'\n';
        write += len + 1;
    }
    if entries.is_empty() {
        return Err(fail(1, ParseErrorKind::Empty));
    }
    text.truncate(write);
    text.shrink_to_fit();
    entries.shrink_to_fit();
    if !entries.is_sorted_by_key(|entry| entry.address) {
        entries.sort_by_key(|entry| entry.address);
    }
    Ok(Symbols {
        // Each name was checked on the way, so this does not fail.
        names: String::from_utf8(text)
            .map_err(|error| fail(line, ParseErrorKind::InvalidUtf8(error.to_string())))?,
        entries,
        modules: modules.names,
        addresses_hidden: any_text && !any_address,
        by_name: OnceLock::new(),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "parse() refuses texts of 4 GiB, and numbers of modules are far smaller"
)]
const fn offset(at: usize) -> u32 {
    at as u32
}

/// The fields of one line; the ranges count from its start.
struct Fields {
    address: u64,
    kind: u8,
    label: Label,
}

impl Fields {
    /// Parses the line that `text` begins with.
    fn parse(text: &[u8]) -> Result<Self, Fault> {
        let (address, at) = address(text)?;
        let start = skip_blanks(text, at);
        let end = start + field_len(&text[start..])?;
        let kind = match text[start..end] {
            [kind] if kind.is_ascii_graphic() => kind,
            [] => return Err(ParseErrorKind::MissingKind.into()),
            _ => return Err(ParseErrorKind::BadKind(excerpt(&text[start..end])).into()),
        };
        Ok(Self {
            address,
            kind,
            label: Label::parse(text, end)?,
        })
    }
}

/// `NAME [MODULE]` and the end of the line, as kallsyms and ftrace's lists
/// have them.
pub(crate) struct Label {
    /// Not empty, and UTF-8.
    pub(crate) name: Range<usize>,
    /// Without the brackets; empty for the core kernel.
    pub(crate) module: Range<usize>,
    /// Where the next line begins.
    pub(crate) end: usize,
}

impl Label {
    /// Parses the rest of the line, from `text[at..]` on.
    pub(crate) fn parse(text: &[u8], at: usize) -> Result<Self, Fault> {
        let start = skip_blanks(text, at);
        let name = start..start + field_len(&text[start..])?;
        if name.is_empty() {
            return Err(ParseErrorKind::MissingName.into());
        }
        if !text[name.clone()].is_ascii() && str::from_utf8(&text[name.clone()]).is_err() {
            return Err(ParseErrorKind::InvalidUtf8(excerpt(&text[name])).into());
        }
        let mut at = skip_blanks(text, name.end);
        let bad_module = |from: usize| ParseErrorKind::BadModule(excerpt(&text[from..])).into();
        let mut module = at..at;
        if text.get(at) == Some(&b'[') {
            let end = at + field_len(&text[at..])?;
            if end - at < 3 || text[end - 1] != b']' {
                return Err(bad_module(at));
            }
            module = at + 1..end - 1;
            at = skip_blanks(text, end);
        }
        match text[at..] {
            [b'\n', ..] => at += 1,
            [b'\r', b'\n', ..] => at += 2,
            [] | [b'\r'] => return Err(ParseErrorKind::Truncated.into()),
            _ => return Err(bad_module(at)),
        }
        Ok(Self {
            name,
            module,
            end: at,
        })
    }
}

/// Parses the address that `text` begins with, and where it ends.
pub(crate) fn address(text: &[u8]) -> Result<(u64, usize), Fault> {
    let end = field_len(text)?;
    match hex(&text[..end]) {
        Some(address) => Ok((address, end)),
        None if end == 0 && matches!(text[0], b' ' | b'\t' | b'\r' | b'\n') => {
            Err(ParseErrorKind::MissingAddress.into())
        }
        None => Err(ParseErrorKind::BadAddress(excerpt(text)).into()),
    }
}

/// 1 to 16 hexadecimal digits of either case, and nothing else.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    if let Ok(digits) = digits.try_into() {
        return hex16(digits);
    }
    if !(1..16).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

/// The 16 digits of a 64-bit kernel, all at once.
fn hex16(digits: [u8; 16]) -> Option<u64> {
    let mut value = 0;
    let mut valid = true;
    for digit in digits {
        let decimal = digit.wrapping_sub(b'0');
        // Both cases, and nothing else, end up at 0 to 5.
        let letter = (digit | 0x20).wrapping_sub(b'a');
        let nibble = if decimal < 10 {
            decimal
        } else {
            letter.wrapping_add(10)
        };
        valid &= decimal < 10 || letter < 6;
        value = value << 4 | u64::from(nibble & 15);
    }
    valid.then_some(value)
}

/// The length of the field that `text` begins with: up to the first blank,
/// control character or end of line. A file that ends within it is cut off.
fn field_len(text: &[u8]) -> Result<usize, Fault> {
    // Eight bytes at a time. A byte below 0x21 borrows when 0x21 is taken from
    // it, which sets its high bit; the lowest byte so marked is right, whatever
    // the borrow does to those above.
    const EACH: u64 = 0x0101_0101_0101_0101;
    let (words, tail) = text.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let ends = word.wrapping_sub(EACH * 0x21) & !word & (EACH * 0x80);
        if ends != 0 {
            return Ok(index * 8 + ends.trailing_zeros() as usize / 8);
        }
    }
    tail.iter()
        .position(|&byte| byte <= b' ')
        .map(|position| words.len() * 8 + position)
        .ok_or_else(|| ParseErrorKind::Truncated.into())
}

/// The first position from `at` on that is neither space nor tab.
fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    at
}

/// The beginning of the line, fit to be shown.
pub(crate) fn excerpt(text: &[u8]) -> String {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or(text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    String::from_utf8_lossy(&line[..line.len().min(128)])
        .chars()
        .take(32)
        .flat_map(char::escape_debug)
        .collect()
}

/// Numbers for module names: 0 is the core kernel, 1 the first of `names`.
#[derive(Default)]
pub(crate) struct Modules {
    pub(crate) names: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
    last: u32,
}

impl Modules {
    /// The number of `name`, a new one if need be. The lines of a module
    /// follow each other, so that most calls compare once.
    pub(crate) fn id(&mut self, name: &[u8]) -> Result<u32, Fault> {
        if name.is_empty() {
            return Ok(0);
        }
        let last = (self.last as usize).checked_sub(1);
        if last.is_some_and(|last| self.names[last].as_bytes() == name) {
            return Ok(self.last);
        }
        let name = str::from_utf8(name).map_err(|_| ParseErrorKind::InvalidUtf8(excerpt(name)))?;
        self.last = if let Some(&id) = self.ids.get(name) {
            id
        } else {
            self.names.push(name.into());
            let id = offset(self.names.len());
            self.ids.insert(name.into(), id);
            id
        };
        Ok(self.last)
    }
}
