//! Globs over symbol names.

/// A glob: `*` any characters, `?` one, `[a-z]` one of these, `[!a-z]` one of
/// the others, `\x` the character x itself. It is case sensitive and has to
/// match the whole name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    /// What a name must begin with. Most names fail here.
    prefix: String,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    /// `?`
    One,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// `*`
    Star,
}

/// Why a text is no glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GlobError {
    UnclosedClass,
    ReversedRange(char, char),
    TrailingBackslash,
}

impl Glob {
    pub(super) fn parse(text: &str) -> Result<Self, GlobError> {
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let token = match char {
                '*' => Token::Star,
                '?' => Token::One,
                '[' => class(&mut chars)?,
                '\\' => Token::Literal(chars.next().ok_or(GlobError::TrailingBackslash)?.into()),
                char => Token::Literal(char.into()),
            };
            match (tokens.last_mut(), token) {
                (Some(Token::Literal(literal)), Token::Literal(more)) => literal.push_str(&more),
                (Some(Token::Star), Token::Star) => {}
                (_, token) => tokens.push(token),
            }
        }
        let prefix = match tokens.first_mut() {
            Some(Token::Literal(literal)) => {
                let prefix = std::mem::take(literal);
                tokens.remove(0);
                prefix
            }
            _ => String::new(),
        };
        Ok(Self { prefix, tokens })
    }

    /// The one name that it matches, if there is no wildcard in it.
    pub(super) fn literal(&self) -> Option<&str> {
        self.tokens.is_empty().then_some(self.prefix.as_str())
    }

    /// The parts without a wildcard, in their order, none of them empty.
    pub(super) fn literals(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.prefix.as_str())
            .filter(|prefix| !prefix.is_empty())
            .chain(self.tokens.iter().filter_map(|token| match token {
                Token::Literal(literal) => Some(literal.as_str()),
                _ => None,
            }))
    }

    /// What a name must begin with; empty if that may be anything.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether `literal` is what names have to end with.
    pub(super) fn ends_with(&self, literal: &str) -> bool {
        matches!(self.tokens.last(), Some(Token::Literal(last)) if last == literal)
    }

    /// Whether it is `*`.
    pub(super) fn is_everything(&self) -> bool {
        self.prefix.is_empty() && self.tokens == [Token::Star]
    }

    /// Whether it matches the whole of `name`.
    ///
    /// Only the last `*` is ever tried again: whatever an earlier one might
    /// take in addition, this one can. So the time is bounded by the product
    /// of the lengths.
    pub(super) fn matches(&self, name: &str) -> bool {
        let mut text = name;
        // Comparing with an empty string costs 70 ns where memcmp() does it by
        // a masked load from the string's dangling pointer (AVX-512).
        if !self.prefix.is_empty() {
            let Some(rest) = text.strip_prefix(self.prefix.as_str()) else {
                return false;
            };
            text = rest;
        }
        let mut tokens = self.tokens.as_slice();
        // What follows the last `*`, and where that is to be tried next.
        let mut retry: Option<(&[Token], &str)> = None;
        loop {
            match tokens {
                [] if text.is_empty() => return true,
                [Token::Star] => return true,
                [Token::Star, Token::Literal(end)] => return text.ends_with(end.as_str()),
                [Token::Star, after @ ..] => retry = Some((after, text)),
                [token, after @ ..] => {
                    if let Some(rest) = token.strip_from(text) {
                        (tokens, text) = (after, rest);
                        continue;
                    }
                }
                [] => {}
            }
            let Some((after, from)) = retry else {
                return false;
            };
            let start = match after {
                [Token::Literal(literal), ..] => find(from, literal),
                _ => Some(from),
            };
            let Some(start) = start else { return false };
            (tokens, text) = (after, start);
            let mut chars = start.chars();
            retry = chars.next().map(|_| (after, chars.as_str()));
        }
    }
}

/// The rest of `text` from where `literal`, which is not empty, first stands.
fn find<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let (text_bytes, literal) = (text.as_bytes(), literal.as_bytes());
    let mut at = 0;
    loop {
        at += text_bytes[at..].iter().position(|&b| b == literal[0])?;
        if text_bytes[at..].starts_with(literal) {
            return text.get(at..);
        }
        at += 1;
    }
}

impl Token {
    /// What is left of `text` when this has matched its beginning; no `Star`.
    fn strip_from<'t>(&self, text: &'t str) -> Option<&'t str> {
        if let Self::Literal(literal) = self {
            return text.strip_prefix(literal.as_str());
        }
        let mut chars = text.chars();
        let char = chars.next()?;
        let matches = match self {
            Self::Class { negated, ranges } => {
                ranges
                    .iter()
                    .any(|&(first, last)| (first..=last).contains(&char))
                    != *negated
            }
            _ => true,
        };
        matches.then_some(chars.as_str())
    }
}

/// Parses a class, whose `[` is taken. A `]` that comes first stands for
/// itself, and so does a `-` that comes first or last.
fn class(chars: &mut std::str::Chars<'_>) -> Result<Token, GlobError> {
    let mut rest = chars.clone();
    let negated = matches!(rest.next(), Some('!' | '^'));
    if negated {
        chars.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match chars.next().ok_or(GlobError::UnclosedClass)? {
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => chars.next().ok_or(GlobError::UnclosedClass)?,
            char => char,
        };
        let mut ahead = chars.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *chars = ahead;
                if last == '\\' {
                    chars.next().ok_or(GlobError::UnclosedClass)?
                } else {
                    last
                }
            }
            _ => first,
        };
        if last < first {
            return Err(GlobError::ReversedRange(first, last));
        }
        ranges.push((first, last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, name: &str) -> bool {
        Glob::parse(glob).unwrap().matches(name)
    }

    #[test]
    fn wildcards() {
        for (glob, name, expected) in [
            ("tcp_*", "tcp_", true),
            ("tcp_*", "tcp_v4_rcv", true),
            ("tcp_*", "__pfx_tcp_v4_rcv", false),
            ("tcp_*", "TCP_v4_rcv", false),
            ("bio*init", "bio_init", true),
            ("bio*init", "bioinit", true),
            ("bio*init", "bio_alloc_init", true),
            ("bio*init", "bio_init_x", false),
            ("bio*init", "bininit", false),
            ("foo??", "foo1", false),
            ("foo??", "foo12", true),
            ("foo??", "foo123", false),
            ("foo??", "foo1\u{e9}", true),
            ("*", "", true),
            ("*", "x", true),
            ("**", "x", true),
            ("?", "", false),
            ("", "", true),
            ("", "x", false),
            ("tcp_v[46]_rcv", "tcp_v4_rcv", true),
            ("tcp_v[46]_rcv", "tcp_v5_rcv", false),
            ("[!a-z]*", "_x", true),
            ("[!a-z]*", "x_", false),
            ("[^a-z]*", "_x", true),
            ("[^a-z]*", "x_", false),
            ("[]x]", "]", true),
            ("[!]x]", "]", false),
            ("[!]x]", "y", true),
            ("[a-]", "-", true),
            ("[a-]", "b", false),
            ("[-a]", "-", true),
            ("[a-cx-z]", "y", true),
            ("[a-cx-z]", "d", false),
            ("[\\]]", "]", true),
            ("[a-\\c]", "b", true),
            ("[\u{e0}-\u{ef}]", "\u{e9}", true),
            ("[*]", "*", true),
            ("[*]", "x", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\b", "ab", true),
            ("*.isra.*", "f.isra.0", true),
            ("*ab", "aab", true),
            ("*aab*", "aaab", true),
            ("a*", "b", false),
        ] {
            assert_eq!(matches(glob, name), expected, "{glob} on {name}");
        }
    }

    #[test]
    fn faults() {
        for (glob, error) in [
            ("tcp_[", GlobError::UnclosedClass),
            ("[]", GlobError::UnclosedClass),
            ("[!]", GlobError::UnclosedClass),
            ("[a-", GlobError::UnclosedClass),
            ("[a\\", GlobError::UnclosedClass),
            ("[a-\\", GlobError::UnclosedClass),
            ("[z-a]", GlobError::ReversedRange('z', 'a')),
            ("x\\", GlobError::TrailingBackslash),
        ] {
            assert_eq!(Glob::parse(glob), Err(error), "{glob}");
        }
    }

    #[test]
    fn literals() {
        let literal = |glob| Glob::parse(glob).unwrap().literal().map(str::to_owned);
        assert_eq!(literal("tcp_v4_rcv").as_deref(), Some("tcp_v4_rcv"));
        assert_eq!(literal("a\\*b").as_deref(), Some("a*b"));
        for glob in ["*", "a?", "a[b]", "*a"] {
            assert_eq!(literal(glob), None);
        }
        let everything = |glob| Glob::parse(glob).unwrap().is_everything();
        assert!(everything("*") && everything("***"));
        assert!(!everything("**a") && !everything("?*") && !everything("\\*"));
    }

    /// A glob matches if its first token takes some beginning of the name, and
    /// the rest matches the rest.
    fn naive(glob: &[&str], name: &[char]) -> bool {
        let Some((token, glob)) = glob.split_first() else {
            return name.is_empty();
        };
        if *token == "*" {
            return (0..=name.len()).any(|taken| naive(glob, &name[taken..]));
        }
        let Some((char, name)) = name.split_first() else {
            return false;
        };
        let matches = match *token {
            "?" => true,
            "[ab]" => "ab".contains(*char),
            "[!a]" => *char != 'a',
            literal => literal.contains(*char),
        };
        matches && naive(glob, name)
    }

    /// Every sequence of up to `len` of the `parts`.
    fn sequences<T: Copy>(parts: &[T], len: usize) -> Vec<Vec<T>> {
        let mut all = vec![vec![]];
        let mut from = 0;
        for _ in 0..len {
            let to = all.len();
            for index in from..to {
                for part in parts {
                    all.push([all[index].as_slice(), &[*part]].concat());
                }
            }
            from = to;
        }
        all
    }

    #[test]
    fn agrees_with_a_naive_matcher() {
        let names = sequences(&['a', 'b', '\u{e9}'], 5);
        let (mut matching, mut total) = (0, 0);
        for tokens in sequences(&["a", "b", "*", "?", "[ab]", "[!a]"], 4) {
            let glob = Glob::parse(&tokens.concat()).unwrap();
            for name in &names {
                let text: String = name.iter().collect();
                let expected = naive(&tokens, name);
                assert_eq!(glob.matches(&text), expected, "{tokens:?} on {text:?}");
                matching += usize::from(expected);
                total += 1;
            }
        }
        assert!(matching > total / 20 && matching < total / 2);
    }

    /// With a retry for each `*` this would not end.
    #[test]
    fn many_stars_on_a_long_name() {
        let name = "a".repeat(511);
        let stars = "*a".repeat(100);
        assert!(!matches(&format!("{stars}*b"), &name));
        assert!(!matches(&format!("{stars}b*"), &name));
        assert!(!matches(&format!("{stars}?*[!a]*"), &name));
        assert!(matches(&format!("{stars}*a"), &name));
        assert!(matches(&stars, &name));
    }
}
