//! `cargo xtask setup`: gets what builds and runs ksyms, below
//! `target/setup/`. Each step is skipped when its result is in place, and is
//! done in full or not at all.

mod linker;
mod toolchain;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    deb,
    kernels::{self, Choice, Kernel},
    workspace::{find_program, setup_dir},
};

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The guest kernels to have ready; others are fetched when first used
    #[arg(long, value_delimiter = ',', default_values = ["6.12", "6.1"])]
    kernels: Vec<Choice>,
}

/// Gets everything.
pub(crate) fn run(Args { kernels }: &Args) -> Result<()> {
    let setup = Setup { tell_all: true };
    setup.toolchain()?;
    setup.qemu()?;
    for kernel in kernels {
        Kernel::get(kernel, &setup)?;
    }
    Ok(())
}

/// How the set-up is done, and with it each step's entrance.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// Name also the steps that there is nothing to do for.
    tell_all: bool,
}

impl Setup {
    /// Sees to one thing: where `find` does not find it, `make` makes it.
    pub(crate) fn step<T>(
        &self,
        what: &str,
        doing: &str,
        find: impl Fn() -> Option<T>,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        let already_there = || {
            if self.tell_all {
                eprintln!("setup: {what}: already there");
            }
        };
        if let Some(found) = find() {
            already_there();
            return Ok(found);
        }
        let _lock = Lock::take()?;
        // While we waited for the lock, another xtask may have made it.
        if let Some(found) = find() {
            already_there();
            return Ok(found);
        }
        eprintln!("setup: {what}: {doing}");
        let start = Instant::now();
        make().with_context(|| format!("setup: {what}"))?;
        let found = find().with_context(|| {
            format!(
                "setup: {what}: made, but it does not work; remove {} and try again",
                setup_dir().display()
            )
        })?;
        eprintln!(
            "setup: {what}: done in {:.1} s",
            start.elapsed().as_secs_f64()
        );
        Ok(found)
    }

    /// The eBPF toolchain, described in the file that ksyms-user/build.rs reads.
    pub(crate) fn toolchain(&self) -> Result<()> {
        let environment = setup_dir().join("ebpf-toolchain.env");
        if toolchain::is_described(&environment) {
            if self.tell_all {
                eprintln!("setup: eBPF toolchain: already there");
            }
            return Ok(());
        }
        let toolchain = self.step(
            "rustc for eBPF",
            "none here, fetching one",
            toolchain::find,
            toolchain::fetch,
        )?;
        eprintln!("setup: rustc for eBPF: {}", toolchain.rustc.display());
        let linker = self.step(
            &format!("bpf-linker {}", linker::VERSION),
            "building (about a minute)",
            || linker::find(&toolchain),
            || linker::build(&toolchain),
        )?;
        self.step(
            "eBPF toolchain",
            "noting where it is",
            || toolchain::is_described(&environment).then_some(()),
            || toolchain::describe(&toolchain, &linker, &environment),
        )
    }

    /// QEMU's path.
    pub(crate) fn qemu(&self) -> Result<PathBuf> {
        self.step(
            "QEMU",
            "installing the system's package qemu-system-x86",
            || find_program("qemu-system-x86_64"),
            || deb::install_on_system("qemu-system-x86"),
        )
    }

    /// The kernel that is booted unless another is asked for.
    pub(crate) fn default_kernel(&self) -> Result<Kernel> {
        let choice = kernels::DEFAULT.parse().map_err(anyhow::Error::msg)?;
        Kernel::get(&choice, self)
    }
}

/// Makes a directory in full or not at all: `make` fills one beside it.
pub(crate) fn make_atomically(
    directory: &Path,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let partial = directory.with_added_extension("partial");
    for leftover in [&partial, directory] {
        if leftover.exists() {
            fs::remove_dir_all(leftover)
                .with_context(|| format!("cannot remove {}", leftover.display()))?;
        }
    }
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    make(&partial)?;
    fs::rename(&partial, directory).with_context(|| format!("cannot rename {}", partial.display()))
}

/// Writes a file in full or not at all.
pub(crate) fn write_atomically(file: &Path, content: &str) -> Result<()> {
    let partial = file.with_added_extension("partial");
    fs::write(&partial, content)
        .and_then(|()| fs::rename(&partial, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Held while something is made, so that two xtasks do not make it at once.
/// The system gives it back when the process ends, however it ends.
struct Lock {
    _file: File,
}

impl Lock {
    fn take() -> Result<Self> {
        let path = setup_dir().join("lock");
        let open = || {
            fs::create_dir_all(setup_dir())?;
            File::create(&path)
        };
        let file = open().with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                eprintln!("setup: waiting for another xtask to finish its set-up");
                flock(&file, FlockOperation::LockExclusive)?;
            }
            locked => locked?,
        }
        Ok(Self { _file: file })
    }
}
