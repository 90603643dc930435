//! Builds the eBPF programs and hands the object to the library as
//! `OUT_DIR/ksyms-ebpf.o`.
//!
//! The compiler and linker are those that `cargo xtask setup` found or fetched
//! and wrote down in `target/setup/ebpf-toolchain.env`.

use std::{
    collections::HashMap,
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const TARGET: &str = "bpfel-unknown-none";

fn main() -> ExitCode {
    // The library alone resolves symbols; only the attach part needs programs.
    if env::var_os("CARGO_FEATURE_ATTACH").is_none() {
        return ExitCode::SUCCESS;
    }
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = manifest.parent().ok_or("no workspace folder")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let toolchain_file = workspace.join("target/setup/ebpf-toolchain.env");
    println!("cargo::rerun-if-changed={}", toolchain_file.display());
    for input in ["src", "Cargo.toml"] {
        let input = workspace.join("ksyms-ebpf").join(input);
        println!("cargo::rerun-if-changed={}", input.display());
    }

    let toolchain = Toolchain::read(&toolchain_file)?;
    let target_dir = out.join("ebpf");
    let output = toolchain.cargo(workspace, &target_dir)?.output()?;
    if !output.status.success() {
        // Cargo shows what a failed build script wrote to stderr.
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(format!("building the eBPF programs failed: {}", output.status).into());
    }
    fs::copy(
        target_dir.join(TARGET).join("release/ksyms-ebpf"),
        out.join("ksyms-ebpf.o"),
    )?;
    Ok(())
}

struct Toolchain {
    rustc: String,
    linker: String,
    library_path: String,
    build_std: bool,
}

impl Toolchain {
    fn read(file: &Path) -> Result<Self, String> {
        let advice = "run `cargo xtask setup` to find or fetch the eBPF toolchain";
        let text = fs::read_to_string(file)
            .map_err(|error| format!("{}: {error}; {advice}", file.display()))?;
        let mut values: HashMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key, value.to_owned()))
            .collect();
        let mut take = |key| {
            values
                .remove(key)
                .ok_or_else(|| format!("{}: no {key}; {advice}", file.display()))
        };
        let toolchain = Self {
            rustc: take("RUSTC")?,
            linker: take("LINKER")?,
            library_path: take("LD_LIBRARY_PATH")?,
            build_std: take("BUILD_STD")? == "1",
        };
        for tool in [&toolchain.rustc, &toolchain.linker] {
            if !Path::new(tool).exists() {
                return Err(format!("{tool} is gone; {advice}"));
            }
        }
        Ok(toolchain)
    }

    /// The cargo that builds for the eBPF target.
    fn cargo(&self, workspace: &Path, target_dir: &Path) -> Result<Command, Box<dyn Error>> {
        let mut cargo = Command::new(env::var("CARGO")?);
        // What the outer cargo says to its own compilers must not reach this one.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_") && name != "CARGO_HOME" && !name.starts_with("CARGO_NET")
                || name.starts_with("RUSTC")
                || name.starts_with("RUSTFLAGS")
            {
                cargo.env_remove(&*name);
            }
        }
        let flags = [
            // aya-ebpf's and the kernel's name for the traced machine.
            "--cfg=bpf_target_arch=\"x86_64\"",
            // Instruction set v3 (32-bit jumps): kernel 5.1.
            "-Ctarget-cpu=v3",
            "-Cdebuginfo=2",
            "-Clink-arg=--btf",
            &format!("-Clinker={}", self.linker),
        ]
        .join("\x1f");
        cargo
            .current_dir(workspace)
            .args(["build", "--release", "--locked", "--package", "ksyms-ebpf"])
            .args(["--bin", "ksyms-ebpf", "--target", TARGET])
            .arg("--target-dir")
            .arg(target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", flags)
            .env("RUSTC", &self.rustc)
            .env("LD_LIBRARY_PATH", &self.library_path)
            // The bpf target is unstable in aya-ebpf's eyes (inline assembly).
            .env("RUSTC_BOOTSTRAP", "1");
        if self.build_std {
            cargo.arg("-Zbuild-std=core");
        }
        Ok(cargo)
    }
}
