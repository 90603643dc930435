//! The kernel that figures were measured on: what changes them most.

use std::{fs, io, path::Path};

/// What every report says of the machine, because figures mean little without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// CPUs online.
    pub cpus: usize,
    /// Whether eBPF programs are compiled to machine code
    /// (`net.core.bpf_jit_enable`); `None` when that cannot be read.
    pub jit: Option<bool>,
    /// Whether indirect branch tracking is on: the CPU flag `ibt`, which the
    /// kernel clears when it does not use it.
    pub ibt: bool,
    /// CPU vulnerabilities that the kernel mitigates, by the names of
    /// `/sys/devices/system/cpu/vulnerabilities`; they make entering the kernel,
    /// and indirect calls, dearer. `None` when that cannot be read.
    pub mitigations: Option<Vec<String>>,
}

impl Kernel {
    /// Asks the running kernel.
    #[must_use]
    pub fn running() -> Self {
        Self {
            release: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cpus: fs::read_to_string("/sys/devices/system/cpu/online")
                .ok()
                .and_then(|list| count_of_list(&list))
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            jit: fs::read_to_string("/proc/sys/net/core/bpf_jit_enable")
                .ok()
                .map(|value| value.trim() != "0"),
            ibt: fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| has_flag(&text, "ibt")),
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")).ok(),
        }
    }
}

/// How many numbers a list such as `0-3,5` has
/// (Documentation/admin-guide/cputopology.rst).
fn count_of_list(list: &str) -> Option<usize> {
    list.trim()
        .split(',')
        .map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
            Some(to.checked_sub(from)? + 1)
        })
        .sum()
}

/// Whether the first CPU of a `/proc/cpuinfo` has `flag`.
fn has_flag(cpuinfo: &str, flag: &str) -> bool {
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|word| word == flag))
}

fn mitigations(folder: &Path) -> io::Result<Vec<String>> {
    let mut mitigated = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if fs::read_to_string(entry.path())?.starts_with("Mitigation") {
            mitigated.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    mitigated.sort();
    Ok(mitigated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_whole_words_of_the_flags_line() {
        let text = "processor\t: 0\nflags\t\t: fpu ibtx shstk\nbugs\t\t: ibt\n";
        assert!(has_flag(text, "shstk"));
        assert!(!has_flag(text, "ibt"));
        assert!(!has_flag("", "ibt"));
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0\n", 1), ("0-1\n", 2), ("0-3,5,7-8\n", 7)] {
            assert_eq!(count_of_list(list), Some(count), "{list}");
        }
        for wrong in ["", "x", "3-1", "1-"] {
            assert_eq!(count_of_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_what_is_mitigated_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("spectre_v2", "Mitigation: Retpolines\n"),
            ("meltdown", "Not affected\n"),
            ("mds", "Vulnerable\n"),
            ("retbleed", "Mitigation: untrained return thunk\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(
            mitigations(folder.path()).unwrap(),
            ["retbleed", "spectre_v2"]
        );
        assert!(mitigations(&folder.path().join("absent")).is_err());
    }
}
