//! What the two ends of a test VM agree on: `xtask` on the host and
//! `guest-init`, the `/init` it packs into the guest.
//!
//! The host describes the work in three files of the initramfs, each a list of
//! NUL-terminated strings, so nothing is ever quoted. The guest answers with
//! [`Frame`]s on its second serial port: the kernel's console has the first to
//! itself, and a serial port works on every kernel without a module.

pub mod protocol;

pub use protocol::{Decoder, Frame};

/// The command to run and its arguments.
pub const COMMAND_FILE: &str = "/etc/ksyms/command";
/// On the kernel's command line it has the guest wait until the kernel has done
/// what it does late while booting. Costs no real time where the clock counts
/// instructions, and keeps them out of what is measured there.
pub const SETTLE: &str = "ksyms.settle";

/// `NAME=value` for each variable of the command's environment.
pub const ENVIRONMENT_FILE: &str = "/etc/ksyms/environment";
/// The kernel modules to load before the command, in this order.
pub const MODULES_FILE: &str = "/etc/ksyms/modules";
/// Where the guest sends its frames.
pub const REPORT_PORT: &str = "/dev/ttyS1";

/// Joins strings for one of the files above.
pub fn join_strings<S: AsRef<[u8]>>(strings: impl IntoIterator<Item = S>) -> Vec<u8> {
    let mut joined = Vec::new();
    for string in strings {
        joined.extend_from_slice(string.as_ref());
        joined.push(0);
    }
    joined
}

/// Splits what [`join_strings`] joined.
pub fn split_strings(joined: &[u8]) -> impl Iterator<Item = &[u8]> {
    joined
        .split_inclusive(|&byte| byte == 0)
        .map(|string| string.strip_suffix(&[0]).unwrap_or(string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_whatever_they_hold() {
        let strings: [&[u8]; 4] = [b"sh", b"", b"a b\n'\"$x", b"\xff"];
        let joined = join_strings(strings);
        assert_eq!(split_strings(&joined).collect::<Vec<_>>(), strings);
        assert_eq!(split_strings(&[]).count(), 0);
    }
}
