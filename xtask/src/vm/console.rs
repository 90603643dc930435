//! What a guest's kernel says, and what of it is bad news.

use crate::workspace::last_lines;

/// What must not be in the console of a healthy kernel: each line has all of
/// the words of one row in it.
const COMPLAINTS: [&[&str]; 10] = [
    &["WARNING: ", "CPU"],
    &[" BUG: "],
    &[" Oops: "],
    &["general protection fault"],
    &["stack segment fault"],
    &["divide error: "],
    &["rcu: INFO: ", "stall"],
    &["INFO: task ", "blocked for more than"],
    &["possible circular locking"],
    &["Kernel panic"],
];

/// What makes it pointless to go on, and what that means.
const TROUBLES: [(&str, &str); 2] = [
    ("Kernel panic - not syncing", "its kernel panicked"),
    ("KVM internal error", "KVM cannot run it, try --accel tcg"),
];

/// The text of a guest's console so far.
#[derive(Debug, Default)]
pub(crate) struct Console {
    text: String,
    /// What was looked at for signs of trouble, up to the last whole line.
    checked: usize,
}

impl Console {
    /// Adds what came, and finds out whether that makes it pointless to go on.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.text.push_str(&String::from_utf8_lossy(bytes));
        let new = &self.text[self.checked..];
        let new = &new[..=new.rfind('\n')?];
        self.checked += new.len();
        new.lines().find_map(|line| {
            let (_, meaning) = TROUBLES.iter().find(|(sign, _)| line.contains(sign))?;
            Some(format!("{meaning}: {}", line.trim()))
        })
    }

    /// The last `count` lines.
    pub(crate) fn tail(&self, count: usize) -> String {
        let tail = last_lines(&self.text, count);
        if tail.is_empty() {
            "    (it is empty)".to_owned()
        } else {
            tail
        }
    }

    /// The lines with which the kernel says that something is wrong in it.
    pub(crate) fn complaints(&self) -> Vec<&str> {
        self.text
            .lines()
            .map(str::trim)
            .filter(|line| {
                COMPLAINTS
                    .iter()
                    .any(|words| words.iter().all(|word| line.contains(word)))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_and_nothing_else() {
        let mut console = Console::default();
        let trouble = console.push(
            b"[    0.1] Linux version 6.12\r\n\
              [    1.0] WARNING: CPU: 0 PID: 1 at kernel/trace/ftrace.c:2\r\n\
              [    1.1] WARNING: kernel/trace/ftrace.c:2 at ftrace_bug+0x1, CPU#0: x/1\r\n\
              [    1.2] BUG: kernel NULL pointer dereference\r\n\
              [    1.3] rcu: INFO: rcu_preempt detected stalls on CPUs\r\n\
              [    1.4] rcu: Hierarchical SRCU implementation.\r\n\
              [    1.5] DEBUG: fine\xff\r\n\
              [    1.6] MMIO Stale Data: Vulnerable, WARNING: see the docs\r\n",
        );
        assert_eq!(trouble, None);
        assert_eq!(console.complaints().len(), 4, "{:?}", console.complaints());
        assert_eq!(console.push(b"[    2.0] Kernel panic - not sync"), None);
        let trouble = console.push(b"ing: x\r\n[    2.1] more").unwrap();
        assert!(
            trouble.contains("panicked: [    2.0] Kernel panic - not syncing: x"),
            "{trouble}"
        );
        assert_eq!(console.push(b"\r\n"), None);
        assert!(console.tail(1).trim().starts_with("[    2.1]"));
    }
}
