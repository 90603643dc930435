//! The text form: `ADDRESS TYPE NAME [MODULE]`, a symbol a line.

use std::ops::Range;

use super::{Symbols, is_text, plain::Builder};

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
    /// The names come to more than a table can hold, 4 GiB.
    #[error("4 GiB of names are more than any kernel has")]
    TooLarge,
    /// There are more than 65,535 modules.
    #[error("65536 modules are more than any kernel has")]
    TooManyModules,
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

/// A text that is parsed line by line, as it comes.
pub(crate) trait Lines {
    /// The form that a line has.
    const FORMAT: &'static str;

    /// Takes the line that `text` begins with, and says where it ends; `None`
    /// when neither it nor any that follows is wanted.
    fn line(&mut self, text: &[u8]) -> Result<Option<usize>, Fault>;
}

/// Hands a text to its parser, whole lines of it at a time.
pub(crate) struct Feed<P> {
    parser: P,
    line: usize,
}

impl<P: Lines> Feed<P> {
    pub(crate) const fn new(parser: P) -> Self {
        Self { parser, line: 0 }
    }

    /// Parses the whole lines that `text` begins with, and says where they
    /// end: what follows is to be given again, with more behind it. `None` when
    /// there need be no more.
    pub(crate) fn feed(&mut self, text: &[u8]) -> Result<Option<usize>, ParseError> {
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n') else {
            return Ok(Some(0));
        };
        let text = &text[..=end];
        let mut at = 0;
        while at < text.len() {
            self.line += 1;
            match self.parser.line(&text[at..]) {
                Ok(Some(end)) => at += end,
                Ok(None) => return Ok(None),
                Err(fault) => return Err(fault.at(self.line, P::FORMAT)),
            }
        }
        Ok(Some(at))
    }

    /// The parser, after a [`Feed::feed`] that needs no more.
    pub(crate) fn into_parser(self) -> P {
        self.parser
    }

    /// The parser, when `rest` is what the last [`Feed::feed`] left: nothing,
    /// or the text was cut off.
    pub(crate) fn finish(mut self, rest: &[u8]) -> Result<P, ParseError> {
        if rest.is_empty() {
            return Ok(self.parser);
        }
        let fault = match self.parser.line(rest) {
            Err(fault) => fault,
            Ok(_) => ParseErrorKind::Truncated.into(),
        };
        Err(fault.at(self.line + 1, P::FORMAT))
    }

    /// Parses a text that is there as a whole.
    pub(crate) fn parse(mut self, text: &[u8]) -> Result<P, ParseError> {
        match self.feed(text)? {
            Some(end) => self.finish(&text[end..]),
            None => Ok(self.into_parser()),
        }
    }
}

/// The modules whose lines are wanted beside the core kernel's. The lines of a
/// module follow each other, behind all of the core kernel's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Those that have not come yet; `None` if all are wanted.
    left: Option<Vec<Box<[u8]>>>,
    current: Box<[u8]>,
}

impl Wanted {
    /// These modules, by their names or those of their files (`nf-nat`); all of
    /// them when it is `None`.
    pub(crate) fn new(modules: Option<&[&str]>) -> Self {
        let name = |module: &&str| module.replace('-', "_").into_bytes().into();
        Self {
            left: modules.map(|modules| modules.iter().map(name).collect()),
            current: Box::default(),
        }
    }

    /// Whether a line of `module` shows that all that is wanted has passed.
    #[inline]
    pub(crate) fn have_passed(&mut self, module: &[u8]) -> bool {
        let Some(left) = &mut self.left else {
            return false;
        };
        if module.is_empty() || *module == *self.current {
            return false;
        }
        if left.is_empty() {
            return true;
        }
        left.retain(|wanted| **wanted != *module);
        self.current = module.into();
        false
    }
}

/// Parses lines of /proc/kallsyms, System.map or nm(1).
pub(crate) struct SymbolLines {
    symbols: Builder,
    wanted: Wanted,
    any_text: bool,
    any_address: bool,
}

impl SymbolLines {
    /// A parser for a text of about `bytes` bytes.
    pub(crate) fn new(bytes: usize, wanted: Wanted) -> Self {
        Self {
            // The kernel's own lines average 44 bytes.
            symbols: Builder::with_room_for(bytes / 44),
            wanted,
            any_text: false,
            any_address: false,
        }
    }

    /// The table; that there is no symbol is an error.
    pub(crate) fn finish(self) -> Result<Symbols, ParseError> {
        if self.symbols.len() == 0 {
            return Err(Fault::from(ParseErrorKind::Empty).at(1, Self::FORMAT));
        }
        let hidden = self.any_text && !self.any_address;
        Ok(Symbols::of(None, self.symbols.build(), hidden))
    }
}

impl Lines for SymbolLines {
    const FORMAT: &'static str = "ADDRESS TYPE NAME [MODULE]";

    #[inline]
    fn line(&mut self, text: &[u8]) -> Result<Option<usize>, Fault> {
        let fields = Fields::parse(text)?;
        let name = &text[fields.label.name];
        let module = &text[fields.label.module];
        if self.wanted.have_passed(module) {
            return Ok(None);
        }
        // arm64 and RISC-V: include/linux/module_symbol.h, is_mapping_symbol().
        if name[0] != b'$' {
            let is_text = is_text(fields.kind);
            self.any_text |= is_text;
            self.any_address |= is_text && fields.address != 0;
            self.symbols
                .push_line(fields.address, fields.kind, name, module)?;
        }
        Ok(Some(fields.label.end))
    }
}

pub(super) fn utf8(text: &[u8]) -> Result<&str, Fault> {
    str::from_utf8(text).map_err(|_| ParseErrorKind::InvalidUtf8(excerpt(text)).into())
}

/// The fields of one line; the ranges count from its start.
struct Fields {
    address: u64,
    kind: u8,
    label: Label,
}

impl Fields {
    /// Parses the line that `text` begins with.
    #[inline]
    fn parse(text: &[u8]) -> Result<Self, Fault> {
        // As the kernel has it: 16 digits, a space, a letter, a space.
        if let Some((digits, &[b' ', kind, b' '])) = text
            .split_first_chunk::<16>()
            .and_then(|(digits, rest)| Some((digits, rest.first_chunk::<3>()?)))
            && kind.is_ascii_graphic()
            && let Some(address) = hex16(*digits)
        {
            return Ok(Self {
                address,
                kind,
                label: Label::parse(text, 19)?,
            });
        }
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
    #[inline]
    pub(crate) fn parse(text: &[u8], at: usize) -> Result<Self, Fault> {
        let start = skip_blanks(text, at);
        let field = Field::at(&text[start..])?;
        let name = start..start + field.len;
        if name.is_empty() {
            return Err(ParseErrorKind::MissingName.into());
        }
        if !field.is_ascii {
            utf8(&text[name.clone()])?;
        }
        // Most lines of the core kernel's.
        if text[name.end] == b'\n' {
            return Ok(Self {
                module: name.end..name.end,
                end: name.end + 1,
                name,
            });
        }
        Self::with_module(text, name)
    }

    fn with_module(text: &[u8], name: Range<usize>) -> Result<Self, Fault> {
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

/// The 16 digits of a 64-bit kernel, eight at once.
#[inline]
fn hex16(digits: [u8; 16]) -> Option<u64> {
    let (words, _) = digits.as_chunks::<8>();
    let [high, low] = [hex8(words[0])?, hex8(words[1])?];
    Some(u64::from(high) << 32 | u64::from(low))
}

/// Eight digits, each in its byte of a word, the first in the highest.
#[inline]
fn hex8(digits: [u8; 8]) -> Option<u32> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let digits = u64::from_be_bytes(digits);
    // What a letter is more than the digit of the same low four bits: bit 6.
    let is_letter = digits >> 6 & EACH;
    let nibbles = (digits & (EACH * 0x0f)) + is_letter * 9;
    // The characters that these are in lower case must be those that there are.
    let is_above_9 = (nibbles + EACH * 6) >> 4 & EACH;
    let lower = digits | is_letter << 5;
    if nibbles & (EACH * 0xf0) != 0 || nibbles + EACH * 0x30 + is_above_9 * 0x27 != lower {
        return None;
    }
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    Some(((fours | fours >> 16) & 0xffff_ffff) as u32)
}

/// The field that a text begins with: up to the first blank, control character
/// or end of line.
struct Field {
    len: usize,
    /// Whether it is ASCII; not told when something behind it is not.
    is_ascii: bool,
}

impl Field {
    /// A file that ends within a field is cut off.
    #[inline]
    fn at(text: &[u8]) -> Result<Self, Fault> {
        // Eight bytes at a time. A byte below 0x21 borrows when 0x21 is taken
        // from it, which sets its high bit; the lowest byte so marked is right,
        // whatever the borrow does to those above.
        const EACH: u64 = 0x0101_0101_0101_0101;
        let (words, tail) = text.as_chunks::<8>();
        let mut all = 0;
        for (index, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            all |= word;
            let ends = word.wrapping_sub(EACH * 0x21) & !word & (EACH * 0x80);
            if ends != 0 {
                return Ok(Self {
                    len: index * 8 + ends.trailing_zeros() as usize / 8,
                    is_ascii: all & (EACH * 0x80) == 0,
                });
            }
        }
        let len = tail
            .iter()
            .position(|&byte| byte <= b' ')
            .ok_or_else(|| Fault::from(ParseErrorKind::Truncated))?;
        Ok(Self {
            len: words.len() * 8 + len,
            is_ascii: all & (EACH * 0x80) == 0 && tail[..len].is_ascii(),
        })
    }
}

fn field_len(text: &[u8]) -> Result<usize, Fault> {
    Field::at(text).map(|field| field.len)
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
