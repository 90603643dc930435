//! What the workspace builds for xtask to run.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{
    setup::Setup,
    workspace::{cargo, display},
};

/// The programs that go into a guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) init: PathBuf,
    pub(crate) workload: PathBuf,
    /// `None` where it was not asked for.
    pub(crate) attach: Option<PathBuf>,
}

impl Guest {
    /// Builds them, with or without ksyms-attach.
    pub(crate) fn build(setup: &Setup, with_attach: bool) -> Result<Self> {
        let mut arguments = vec![
            "build",
            "--release",
            "-p",
            "xtask",
            "--bin",
            "guest-init",
            "--bin",
            "ksyms-workload",
        ];
        if with_attach {
            setup.toolchain()?;
            arguments.extend(["-p", "ksyms-user", "--bin", "ksyms-attach"]);
        }
        let built = build(&arguments)?;
        Ok(Self {
            init: built.find("guest-init")?,
            workload: built.find("ksyms-workload")?,
            attach: with_attach
                .then(|| built.find("ksyms-attach"))
                .transpose()?,
        })
    }
}

/// Builds the release ksyms-attach alone.
pub(crate) fn build_attach(setup: &Setup) -> Result<PathBuf> {
    setup.toolchain()?;
    build(&[
        "build",
        "--release",
        "-p",
        "ksyms-user",
        "--bin",
        "ksyms-attach",
    ])?
    .find("ksyms-attach")
}

/// Builds the tests that run in a guest.
pub(crate) fn build_kernel_tests(setup: &Setup) -> Result<PathBuf> {
    setup.toolchain()?;
    build(&[
        "test",
        "--release",
        "-p",
        "ksyms-user",
        "--test",
        "kernel",
        "--no-run",
    ])?
    .find("kernel")
}

/// The executables of a build by the names of their targets.
struct Built(Vec<(String, PathBuf)>);

impl Built {
    fn find(&self, name: &str) -> Result<PathBuf> {
        self.0
            .iter()
            .find(|(built, _)| built == name)
            .map(|(_, path)| path.clone())
            .with_context(|| format!("cargo built no executable {name}"))
    }
}

fn build(arguments: &[&str]) -> Result<Built> {
    let mut command = cargo();
    command
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let line = display(&command);
    let output = command
        .output()
        .with_context(|| format!("cannot run `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: see above");
    }
    Ok(Built(parse_messages(&String::from_utf8_lossy(
        &output.stdout,
    ))))
}

fn parse_messages(messages: &str) -> Vec<(String, PathBuf)> {
    messages
        .lines()
        .filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let executable = message.get("executable")?.as_str()?;
            let name = message.get("target")?.get("name")?.as_str()?;
            Some((name.to_owned(), executable.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_the_messages() {
        let messages = r#"
            {"reason":"compiler-artifact","target":{"name":"ksyms"},"executable":null}
            {"reason":"compiler-artifact","target":{"name":"kernel"},"executable":"/t/kernel-1f"}
            {"reason":"build-finished","success":true}
            not JSON"#;
        assert_eq!(
            parse_messages(messages),
            [("kernel".to_owned(), "/t/kernel-1f".into())]
        );
    }
}
