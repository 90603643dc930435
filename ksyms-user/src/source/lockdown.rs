//! Whether the kernel keeps its insides from root.

use std::fmt;

use super::files::Filesystem;

/// How far the kernel is locked down (security/lockdown/lockdown.c, since
/// 5.4). [`Lockdown::Confidentiality`] closes tracefs; on kernels built to be
/// locked down, [`Lockdown::Integrity`] was seen to close its lists of
/// functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lockdown {
    /// Not at all.
    None,
    /// Root may not change the running kernel.
    Integrity,
    /// Nor read what the kernel keeps to itself.
    Confidentiality,
}

impl Lockdown {
    /// Parses the text of /sys/kernel/security/lockdown, where the level in
    /// force stands in brackets: `none [integrity] confidentiality`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.split_ascii_whitespace().find_map(|word| match word {
            "[none]" => Some(Self::None),
            "[integrity]" => Some(Self::Integrity),
            "[confidentiality]" => Some(Self::Confidentiality),
            _ => None,
        })
    }
}

impl fmt::Display for Lockdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Integrity => "integrity",
            Self::Confidentiality => "confidentiality",
        })
    }
}

/// Reads how far the running kernel is locked down.
///
/// `None` when it cannot be told: the file is for root, and kernels without
/// `CONFIG_SECURITY_LOCKDOWN_LSM` do not have it.
#[must_use]
pub fn lockdown() -> Option<Lockdown> {
    let text = Filesystem::SECURITYFS
        .open()
        .and_then(|securityfs| securityfs.read("lockdown".as_ref()))
        .ok()?;
    Lockdown::parse(str::from_utf8(&text).ok()?)
}
