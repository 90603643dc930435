//! bpf-linker, built here because it has to share its LLVM with the rustc.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{make_atomically, toolchain::Toolchain};
use crate::workspace::{cargo, read_output, setup_dir};

/// The release that is built.
pub(crate) const VERSION: &str = "0.13.0";

fn directory() -> PathBuf {
    setup_dir().join("bpf-linker")
}

/// The linker, if it is there and runs with the LLVM of this toolchain.
pub(super) fn find(toolchain: &Toolchain) -> Option<PathBuf> {
    // It finds LLVM through this link, which goes with the toolchain.
    let llvm = fs::canonicalize(directory().join("llvm/lib/libLLVM.so")).ok()?;
    if llvm != fs::canonicalize(&toolchain.llvm).ok()? {
        return None;
    }
    let linker = directory().join("bin/bpf-linker");
    let mut command = Command::new(&linker);
    command.arg("--version");
    if let Some(library_path) = &toolchain.library_path {
        command.env("LD_LIBRARY_PATH", library_path);
    }
    read_output(&mut command)
        .is_ok_and(|said| said.contains(VERSION))
        .then_some(linker)
}

/// Builds the linker; [`find`] finds it after that.
pub(super) fn build(toolchain: &Toolchain) -> Result<()> {
    make_atomically(&directory(), |partial| {
        let llvm = partial.join("llvm/lib");
        fs::create_dir_all(&llvm)?;
        // By the one name it is linked, by the other it is loaded.
        let name = toolchain.llvm.file_name().context("LLVM has no name")?;
        for link in ["libLLVM.so".as_ref(), name] {
            symlink(&toolchain.llvm, llvm.join(link))?;
        }
        install(toolchain, partial)
            .context("the build takes a C compiler and cargo with a way to its registry")?;
        fs::remove_dir_all(partial.join("build")).context("cannot remove the build's leftovers")
    })
}

fn install(toolchain: &Toolchain, root: &Path) -> Result<()> {
    let mut command = cargo();
    for (name, _) in env::vars_os() {
        // What is meant for the workspace's builds is not meant for this one:
        // it must be dynamic, and for this machine.
        let name = name.to_string_lossy();
        if [
            "CARGO_BUILD_",
            "CARGO_TARGET_",
            "CARGO_PROFILE_",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTFLAGS",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(&*name);
        }
    }
    // The directory is renamed when it is done: LLVM will be looked for there.
    let mut flags = vec![format!(
        "-Clink-arg=-Wl,-rpath,{}",
        directory().join("llvm/lib").display()
    )];
    if let Some(library_path) = &toolchain.library_path {
        flags.push(format!(
            "-Clink-arg=-Wl,-rpath-link,{}",
            library_path.display()
        ));
    }
    command
        // Out of reach of the workspace's configuration.
        .current_dir("/")
        .env("LLVM_PREFIX", root.join("llvm"))
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--no-default-features"])
        .args(["--features", &format!("llvm-{}", toolchain.llvm_major)])
        .arg("--root")
        .arg(root)
        .arg("--target-dir")
        .arg(root.join("build"));
    read_output(&mut command).map(drop)
}
