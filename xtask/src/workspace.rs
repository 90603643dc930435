//! Where things are, and how other programs are called.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest_dir
        .parent()
        .map_or(manifest_dir.clone(), Path::to_path_buf)
}

/// Where the set-up keeps what it made. Not below `CARGO_TARGET_DIR`: it
/// serves all target directories.
pub(crate) fn setup_dir() -> PathBuf {
    root().join("target/setup")
}

/// The cargo that runs us, in the workspace so that its configuration counts.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// The file of this name on PATH.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    // The administrators' directories hold programs that users can run too.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether sudo needs no password now.
pub(crate) fn sudo_works() -> bool {
    Command::new("sudo")
        .args(["-n", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs `command` to its end and returns its standard output. Where it fails
/// the error has the command and the end of what it said.
pub(crate) fn read_output(command: &mut Command) -> Result<String> {
    let line = display(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{line}`"))?;
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    if !status.success() {
        let said = format!("{stdout}{}", String::from_utf8_lossy(&stderr));
        bail!("`{line}` failed ({status}):\n{}", last_lines(&said, 20));
    }
    Ok(stdout)
}

/// The command as one would type it, near enough to recognise it.
pub(crate) fn display(command: &Command) -> String {
    let words: Vec<OsString> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsString::from)
        .collect();
    words.join(" ".as_ref()).to_string_lossy().into_owned()
}

/// The last `count` lines of `text` that are not blank, indented.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|line| format!("    {}", line.trim_end()))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_leaves_out_blank_ones() {
        assert_eq!(last_lines("a\n\n b\r\n\nc\n", 2), "     b\n    c");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn a_failed_command_says_what_it_was_and_what_it_said() {
        let error = read_output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let text = format!("{:#}", error.unwrap_err());
        assert!(
            text.contains("sh -c") && text.contains("why") && text.contains('3'),
            "{text}"
        );
    }
}
