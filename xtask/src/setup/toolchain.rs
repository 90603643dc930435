//! A rustc that can build for eBPF, which takes `core` for that target: from
//! the sources (rust-src, through build-std) or ready-made.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{linker, make_atomically, write_atomically};
use crate::{
    deb::{Apt, Mirror},
    workspace::{find_program, read_output, setup_dir},
};

/// The LLVM releases that the linker can be built for.
const LLVM_MAJORS: std::ops::RangeInclusive<u32> = 21..=23;

/// A rustc, and what goes with it.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub(crate) rustc: PathBuf,
    /// Where it finds its libraries if it does not find them by itself.
    pub(crate) library_path: Option<PathBuf>,
    /// Its `LLVM`, which the linker must share: bitcode has no stable form.
    pub(crate) llvm: PathBuf,
    pub(crate) llvm_major: u32,
    /// Whether `core` is built from the sources.
    pub(crate) build_std: bool,
}

/// A toolchain that is here already.
pub(super) fn find() -> Option<Toolchain> {
    rustup_toolchains()
        .iter()
        .filter(|sysroot| has_core_sources(sysroot))
        .map(|sysroot| inspect(&sysroot.join("bin/rustc"), &sysroot.join("lib"), None))
        .chain([debian_toolchain(&debian_prefix())])
        .find_map(Result::ok)
}

/// Gets a toolchain; [`find`] finds it after that.
pub(super) fn fetch() -> Result<()> {
    const RUSTUP: [&str; 7] = [
        "toolchain",
        "install",
        "nightly",
        "--profile",
        "minimal",
        "--component",
        "rust-src",
    ];
    let from_debian = match fetch_from_debian() {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let from_rustup = match find_program("rustup") {
        None => anyhow::anyhow!("there is no rustup here"),
        Some(rustup) => {
            eprintln!("setup: Debian has none for us ({from_debian:#})");
            eprintln!("setup: installing a nightly with rust-src through rustup");
            match read_output(Command::new(rustup).args(RUSTUP)) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            }
        }
    };
    bail!(
        "no rustc here can build for eBPF.\n\
         From Debian's packages: {from_debian:#}\n\
         Through rustup: {from_rustup:#}\n\
         Type this where there is a network, then again what you typed now:\n    rustup {}",
        RUSTUP.join(" ")
    )
}

/// Whether `file` describes a toolchain that works.
pub(super) fn is_described(file: &Path) -> bool {
    let Ok(text) = fs::read_to_string(file) else {
        return false;
    };
    let value = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
    };
    let works = |program, argument| {
        read_output(
            Command::new(program)
                .arg(argument)
                .env("LD_LIBRARY_PATH", value("LD_LIBRARY_PATH")),
        )
    };
    let rustc = Path::new(value("RUSTC"));
    // Toolchains come and go, and so do their components.
    let has_core =
        value("BUILD_STD") == "0" || rustc.ancestors().nth(2).is_some_and(has_core_sources);
    has_core
        && works(value("RUSTC"), "-vV").is_ok()
        && works(value("LINKER"), "--version").is_ok_and(|said| said.contains(linker::VERSION))
}

/// Writes down what ksyms-user/build.rs needs to know.
pub(super) fn describe(toolchain: &Toolchain, linker: &Path, file: &Path) -> Result<()> {
    let Toolchain {
        rustc,
        library_path,
        llvm: _,
        llvm_major: _,
        build_std,
    } = toolchain;
    let library_path = library_path.as_deref().unwrap_or(Path::new(""));
    write_atomically(
        file,
        &format!(
            "RUSTC={}\nLD_LIBRARY_PATH={}\nLINKER={}\nBUILD_STD={}\n",
            rustc.display(),
            library_path.display(),
            linker.display(),
            u8::from(*build_std)
        ),
    )
}

/// All of rustup's toolchains, linked ones too.
fn rustup_toolchains() -> Vec<PathBuf> {
    let home = env::var_os("RUSTUP_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".rustup")));
    let mut toolchains: Vec<PathBuf> = home
        .and_then(|home| fs::read_dir(home.join("toolchains")).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    toolchains.sort();
    toolchains
}

/// Whether `core` can be built: rust-src is there.
fn has_core_sources(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core").is_dir()
}

/// Runs the rustc to see that it works and what it is.
fn inspect(rustc: &Path, libraries: &Path, library_path: Option<&Path>) -> Result<Toolchain> {
    let mut command = Command::new(rustc);
    command.arg("-vV");
    if let Some(library_path) = library_path {
        command.env("LD_LIBRARY_PATH", library_path);
    }
    let said = read_output(&mut command)?;
    let Some((release, llvm_major)) = parse_version(&said) else {
        bail!("{} says nothing we understand: {said}", rustc.display());
    };
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    if release < version(oldest) {
        bail!("{} is older than {oldest}", rustc.display());
    }
    if !LLVM_MAJORS.contains(&llvm_major) {
        bail!(
            "{} has LLVM {llvm_major}, and the linker wants {LLVM_MAJORS:?}",
            rustc.display()
        );
    }
    Ok(Toolchain {
        rustc: rustc.to_owned(),
        library_path: library_path.map(Path::to_owned),
        llvm: find_llvm(libraries)?,
        llvm_major,
        build_std: library_path.is_none(),
    })
}

/// The release and the major version of LLVM in what `rustc -vV` says.
fn parse_version(said: &str) -> Option<((u32, u32), u32)> {
    let field = |name: &str| {
        said.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    Some((
        version(field("release")?),
        version(field("LLVM version")?).0,
    ))
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split('.')
        .map(|number| number.parse().unwrap_or_default());
    (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    )
}

/// The LLVM library itself, which links and linker scripts stand around.
fn find_llvm(libraries: &Path) -> Result<PathBuf> {
    let is_elf = |file: &Path| {
        let mut magic = [0; 4];
        fs::File::open(file)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok()
            && magic == *b"\x7fELF"
    };
    fs::read_dir(libraries)
        .with_context(|| format!("cannot read {}", libraries.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libLLVM") && name.contains(".so") && !file.is_symlink()
        })
        .find(|file| is_elf(file))
        .with_context(|| {
            format!(
                "there is no libLLVM in {}, so no linker can be built for it",
                libraries.display()
            )
        })
}

fn debian_prefix() -> PathBuf {
    setup_dir().join("rustc-web")
}

fn debian_libraries(prefix: &Path) -> PathBuf {
    prefix.join("usr/lib/x86_64-linux-gnu")
}

fn debian_toolchain(prefix: &Path) -> Result<Toolchain> {
    let core = prefix.join("usr/lib/rustlib/bpfel-unknown-none");
    if !core.is_dir() {
        bail!("there is no {}", core.display());
    }
    let libraries = debian_libraries(prefix);
    inspect(&prefix.join("usr/bin/rustc"), &libraries, Some(&libraries))
}

/// Unpacks Debian's rustc for web browsers, the one with `core` for eBPF
/// ready-made, into a directory of our own.
fn fetch_from_debian() -> Result<()> {
    let mirror =
        Mirror::of_this_machine().context("this machine's apt sources name no Debian mirror")?;
    // The machine's own release first: its libraries are here already. What
    // is built for an older one runs as well.
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let own = os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"'));
    let mut failures = Vec::new();
    let mut releases: Vec<&str> = own.into_iter().chain(["bookworm"]).collect();
    releases.dedup();
    for release in releases {
        match unpack_from_debian(&mirror, release) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push(format!("{release}: {error:#}")),
        }
    }
    bail!(failures.join("\n"))
}

fn unpack_from_debian(mirror: &Mirror, release: &str) -> Result<()> {
    let apt = Apt::new(mirror, release, false, &setup_dir().join("apt"))?;
    // What it needs of its own has its version in the name.
    let mut packages = BTreeSet::from(["libstd-rust-web-dev-bpf".to_owned()]);
    let mut next = vec!["rustc-web".to_owned()];
    while let Some(package) = next.pop() {
        next.extend(
            apt.dependencies(&package)?
                .into_iter()
                .filter(|dependency| {
                    (dependency.starts_with("libstd-rust-web") || dependency.starts_with("libllvm"))
                        && !packages.contains(dependency)
                }),
        );
        packages.insert(package);
    }
    make_atomically(&debian_prefix(), |prefix| {
        apt.unpack(packages.iter().map(String::as_str), prefix)?;
        add_missing_libraries(&apt, packages, prefix)?;
        debian_toolchain(prefix).map(drop)
    })
}

/// Adds the libraries that the system does not have, a level of dependencies
/// at a time.
fn add_missing_libraries(apt: &Apt, mut packages: BTreeSet<String>, prefix: &Path) -> Result<()> {
    const LEVELS: usize = 4;
    let libraries = debian_libraries(prefix);
    let missing = || -> Result<String> {
        let mut missing = String::new();
        let driver_and_llvm = fs::read_dir(&libraries)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.to_string_lossy().contains(".so") && file.is_file());
        for file in driver_and_llvm.chain([prefix.join("usr/bin/rustc")]) {
            let listed = read_output(
                Command::new("ldd")
                    .arg(&file)
                    .env("LD_LIBRARY_PATH", &libraries),
            )
            .unwrap_or_default();
            for line in listed.lines().filter(|line| line.contains("not found")) {
                missing.push_str(line.trim());
                missing.push('\n');
            }
        }
        Ok(missing)
    };
    for _ in 0..LEVELS {
        if missing()?.is_empty() {
            return Ok(());
        }
        let mut level = BTreeSet::new();
        for package in &packages {
            level.extend(apt.dependencies(package)?.into_iter().filter(|dependency| {
                let is_library = dependency.starts_with("lib") || dependency.starts_with("zlib");
                // The C library is the system's, whose loader goes with it.
                is_library && !dependency.starts_with("libc6") && !packages.contains(dependency)
            }));
        }
        // Of alternatives some are not there.
        for package in &level {
            if let Err(error) = apt.unpack([package.as_str()], prefix) {
                eprintln!("setup: rustc for eBPF: going on without {package}: {error:#}");
            }
        }
        packages.extend(level);
        // Some packages have theirs where /lib is not yet /usr/lib.
        move_libraries(&prefix.join("lib/x86_64-linux-gnu"), &libraries)?;
    }
    bail!(
        "libraries are missing that no package brought:\n{}",
        missing()?
    )
}

fn move_libraries(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustc_is_known_by_what_it_says() {
        let said = "rustc 1.96.0 (ac68faa20 2026-05-25)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n\
                    release: 1.96.0-nightly\nLLVM version: 22.1.8\n";
        assert_eq!(parse_version(said), Some(((1, 96), 22)));
        assert_eq!(parse_version("rustc"), None);
        assert!(version("1.95") < version("1.100.0"));
    }
}
