//! Reads what test harnesses print: the standard one and libtest-mimic.

use std::fmt;

/// A test that did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) test: String,
    pub(super) reason: String,
}

/// Results, added up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: Vec<Skip>,
    /// What failed: names of tests, and whatever else.
    pub(super) failures: Vec<String>,
    /// How many harnesses have summed themselves up.
    pub(super) results: usize,
    /// Skips since the last such sum.
    pub(super) pending_skips: Vec<Skip>,
}

impl Tally {
    /// Takes in one line. With `count_skips` off, skipped tests are left out.
    pub(super) fn read_line(&mut self, line: &str, count_skips: bool) {
        let line = line.trim();
        if let Some(result) = line.strip_prefix("test result: ") {
            self.read_result(result, count_skips);
            return;
        }
        let Some((test, outcome)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        let test = test.trim_end();
        if outcome == "FAILED" {
            self.failures.push(test.to_owned());
        } else if let Some(reason) = outcome.strip_prefix("ignored") {
            // ", reason" of the standard harness, " (reason)" of the other.
            let reason = reason.trim_start_matches([',', ' ']);
            let reason = reason
                .strip_prefix('(')
                .and_then(|reason| reason.strip_suffix(')'))
                .unwrap_or(reason);
            let reason = if reason.is_empty() {
                "it says not why"
            } else {
                reason
            };
            self.pending_skips.push(Skip {
                test: test.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }

    /// The numbers are taken from here: what a test prints can break the lines
    /// of single tests.
    fn read_result(&mut self, result: &str, count_skips: bool) {
        let number = |what: &str| {
            result
                .split([';', '.'])
                .find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
                .unwrap_or(0)
        };
        self.results += 1;
        self.passed += number("passed");
        self.failed += number("failed");
        let mut skips = std::mem::take(&mut self.pending_skips);
        skips.resize_with(number("ignored"), || Skip {
            test: "a test".to_owned(),
            reason: "its name and reason were lost in other output".to_owned(),
        });
        if count_skips {
            self.skipped.append(&mut skips);
        }
    }

    /// Adds a failure that is not a test's.
    pub(super) fn fail(&mut self, what: &str, why: &str) {
        self.failed += 1;
        self.failures.push(format!("{what}: {why}"));
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self {
            passed,
            failed,
            skipped,
            failures,
            results,
            pending_skips: _,
        } = other;
        self.passed += passed;
        self.failed += failed;
        self.results += results;
        self.skipped.extend_from_slice(skipped);
        self.failures.extend_from_slice(failures);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
            ..
        } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {} skipped",
            skipped.len()
        )
    }
}

/// The text without the escape sequences that colour it.
pub(super) fn strip_escapes(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|character: char| character.is_ascii_alphabetic());
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        let mut tally = Tally::default();
        for line in text.lines() {
            tally.read_line(line, true);
        }
        tally
    }

    #[test]
    fn both_harnesses_are_understood() {
        let tally = read(
            "running 3 tests\n\
             test a::b ... ok\n\
             test c ... ignored, needs root\n\
             test d ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             running 2 tests\n\
             test every_kernel::main_job   ... ok\n\
             test no_multi                 ... ignored (kernel 5.10 (no kprobe.multi))\n\
             test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 1.25s\n",
        );
        assert_eq!((tally.passed, tally.failed, tally.results), (8, 1, 2));
        assert_eq!(tally.failures, ["d"]);
        let skips: Vec<_> = tally
            .skipped
            .iter()
            .map(|skip| (skip.test.as_str(), skip.reason.as_str()))
            .collect();
        assert_eq!(
            skips,
            [
                ("c", "needs root"),
                ("no_multi", "kernel 5.10 (no kprobe.multi)")
            ]
        );
        assert_eq!(tally.to_string(), "8 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_skip_is_counted_even_if_its_line_was_broken() {
        let tally = read(
            "test a ... warning: x\nignored\n\
             test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
        );
        assert_eq!(tally.skipped.len(), 1);
        assert_eq!(tally.passed, 0);
    }

    #[test]
    fn colours_are_taken_out() {
        assert_eq!(
            strip_escapes("test result: \u{1b}[32mok\u{1b}[0m. 1"),
            "test result: ok. 1"
        );
        assert_eq!(strip_escapes("\u{1b}[1;31m"), "");
    }
}
