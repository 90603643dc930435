//! What is said on stderr.

use std::io::{IsTerminal as _, Write as _, stderr};

use log::{Log, Metadata, Record};

/// Says something the user should know. A stderr that is gone is no reason to
/// stop.
pub(crate) fn say(text: &str) {
    let _ = writeln!(stderr(), "ksyms-attach: {text}");
}

/// What more there is to say, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    verbose: bool,
    terminal: bool,
}

impl Talk {
    pub(crate) fn new(verbose: bool) -> Self {
        Self {
            verbose,
            terminal: stderr().is_terminal(),
        }
    }

    pub(crate) fn is_verbose(self) -> bool {
        self.verbose
    }

    /// Says something only who asked for more wants to know.
    pub(crate) fn explain(self, text: &str) {
        if self.verbose {
            say(text);
        }
    }

    /// Shows how far something is; on a terminal only.
    pub(crate) fn progress(self, what: &str, done: usize, all: usize) {
        // Every probe would flicker; the last one clears the line.
        if self.terminal && (done == all || done.is_multiple_of(16)) {
            let end = if done == all { "\r\x1b[K" } else { "" };
            let _ = write!(stderr(), "\r{what} {done}/{all}{end}");
            let _ = stderr().flush();
        }
    }
}

/// The eBPF side's diagnostics are talk as well.
impl Log for Talk {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        self.verbose
    }

    fn log(&self, record: &Record<'_>) {
        self.explain(&format!("eBPF: {}", record.args()));
    }

    fn flush(&self) {}
}
