//! Why a symbol is not probed.

use std::{fmt, io};

use crate::{kallsyms::Symbol, source::Verdict};

/// Why a symbol that a pattern matches is not probed.
///
/// [`Reason::as_str`] names it for programs and does not change;
/// what it displays explains it to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// ftrace has no location at its entry.
    NotTraceable,
    /// The padding before a function: `__pfx_NAME` (`CONFIG_CALL_PADDING`, x86,
    /// since 6.2), `__cfi_NAME` (`CONFIG_CFI_CLANG`).
    Padding,
    /// The unlikely part of a function, split off by the compiler: `NAME.cold`.
    Cold,
    /// Generated at run time: a BPF program (`[bpf]`), a trampoline
    /// (`[__builtin__ftrace]`), a kprobe's copied instruction
    /// (`[__builtin__kprobes]`).
    Bpf,
    /// Data.
    NotAFunction,
    /// In the kernel's list of places where kprobes are forbidden.
    Blacklisted,
    /// The kernel shows address 0.
    HiddenAddress,
    /// The kernel refused to attach to it.
    KernelRefused {
        /// What it said, a positive number as in errno(3).
        errno: i32,
    },
    /// Attaching was interrupted before its turn came.
    Interrupted,
}

impl Reason {
    /// A short name for programs, the same in every release.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotTraceable => "not-traceable",
            Self::Padding => "padding",
            Self::Cold => "cold",
            Self::Bpf => "bpf",
            Self::NotAFunction => "not-a-function",
            Self::Blacklisted => "blacklisted",
            Self::HiddenAddress => "hidden-address",
            Self::KernelRefused { .. } => "kernel-refused",
            Self::Interrupted => "interrupted",
        }
    }

    /// Why the function that is shown as `symbol` cannot be probed, if so.
    pub(super) fn of(symbol: &Symbol<'_>, verdict: Verdict) -> Option<Self> {
        if symbol.address == 0 {
            return Some(Self::HiddenAddress);
        }
        if symbol.is_made_at_run_time() {
            return Some(Self::Bpf);
        }
        if matches!(verdict, Verdict::Yes | Verdict::SomeOfThem) {
            return None;
        }
        let name = symbol.name;
        if name.starts_with("__pfx_") || name.starts_with("__cfi_") {
            Some(Self::Padding)
        } else if name.split('.').skip(1).any(|suffix| suffix == "cold") {
            Some(Self::Cold)
        } else {
            (verdict == Verdict::No).then_some(Self::NotTraceable)
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTraceable => {
                "ftrace has no location at its entry: notrace, freed init code, or not a function's entry"
            }
            Self::Padding => "padding before a function, not code that is called",
            Self::Cold => "the cold part of a function, which is jumped to and not called",
            Self::Bpf => "generated at run time: a BPF program or a trampoline",
            Self::NotAFunction => "data, not a function",
            Self::Blacklisted => "the kernel forbids kprobes there (kprobes/blacklist)",
            Self::HiddenAddress => "the kernel hides its address",
            Self::KernelRefused { errno } => {
                return write!(
                    f,
                    "the kernel refused it: {}",
                    io::Error::from_raw_os_error(*errno)
                );
            }
            Self::Interrupted => "interrupted before its turn came",
        })
    }
}
