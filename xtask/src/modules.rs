//! Kernel modules: from names to files in the order to load them in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use object::{Object as _, ObjectSection as _};

use crate::kernels::Kernel;

/// A module as it goes into the guest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The ELF file, no longer compressed.
    pub(crate) content: Vec<u8>,
}

/// The named modules of this kernel and what they depend on, first things
/// first.
pub(crate) fn resolve(kernel: &Kernel, names: &[String]) -> Result<Vec<Module>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let Some(directory) = &kernel.modules else {
        bail!(
            "kernel {} came without modules: leave --modules out",
            kernel.name
        );
    };
    let mut files = BTreeMap::new();
    index(&directory.join("kernel"), &mut files)
        .with_context(|| format!("cannot read the modules in {}", directory.display()))?;
    let mut resolver = Resolver {
        built_in: built_in(directory),
        files,
        seen: BTreeSet::new(),
        ordered: Vec::new(),
    };
    for name in names {
        resolver.add(name, &kernel.name)?;
    }
    Ok(resolver.ordered)
}

struct Resolver {
    built_in: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    ordered: Vec<Module>,
}

impl Resolver {
    fn add(&mut self, name: &str, kernel: &str) -> Result<()> {
        let name = canonical(name);
        if self.built_in.contains(&name) || !self.seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(file) = self.files.get(&name) else {
            let near: Vec<&str> = self
                .files
                .keys()
                .filter(|known| known.contains(&name) || name.contains(known.as_str()))
                .map(String::as_str)
                .take(8)
                .collect();
            let hint = if near.is_empty() {
                String::new()
            } else {
                format!("; it has {}", near.join(", "))
            };
            bail!("kernel {kernel} has no module {name}{hint}");
        };
        let content = read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let needed = dependencies(&content)
            .with_context(|| format!("{} is no kernel module", file.display()))?;
        for needed in needed {
            self.add(&needed, kernel)?;
        }
        self.ordered.push(Module { name, content });
        Ok(())
    }
}

/// The kernel takes - and _ in the name of a module for the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// The name of the module that this is a file of.
fn name_of(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let (name, extension) = name.split_once(".ko")?;
    matches!(extension, "" | ".xz" | ".zst" | ".gz").then(|| canonical(name))
}

fn index(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            index(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

fn built_in(directory: &Path) -> BTreeSet<String> {
    fs::read_to_string(directory.join("modules.builtin"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| name_of(Path::new(line)))
        .collect()
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let stored = fs::read(file)?;
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => {
            let mut content = Vec::new();
            lzma_rs::xz_decompress(&mut stored.as_slice(), &mut content)
                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
            Ok(content)
        }
        Some(compression @ ("zst" | "gz")) => {
            let program = if compression == "gz" { "gzip" } else { "zstd" };
            let output = Command::new(program)
                .arg("-dc")
                .arg(file)
                .output()
                .with_context(|| format!("{program} unpacks this module: install it"))?;
            Ok(output.stdout)
        }
        _ => Ok(stored),
    }
}

/// What the module's own description says it depends on.
fn dependencies(module: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(module)?;
    let info = file
        .section_by_name(".modinfo")
        .context("it has no .modinfo")?
        .data()?;
    Ok(parse_dependencies(info))
}

/// Parses NUL-separated `key=value` strings.
fn parse_dependencies(info: &[u8]) -> Vec<String> {
    info.split(|&byte| byte == 0)
        .filter_map(|field| field.strip_prefix(b"depends="))
        .flat_map(|names| names.split(|&byte| byte == b','))
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_names() {
        for (file, name) in [
            ("kernel/net/nf-nat.ko.xz", Some("nf_nat")),
            ("virtio_console.ko", Some("virtio_console")),
            ("modules.dep", None),
            ("x.ko.sig", None),
        ] {
            assert_eq!(name_of(Path::new(file)).as_deref(), name, "{file}");
        }
    }

    #[test]
    fn dependencies_are_a_list() {
        let info = b"license=GPL\0depends=nf_nat,x_tables\0name=a\0";
        assert_eq!(parse_dependencies(info), ["nf_nat", "x_tables"]);
        assert!(parse_dependencies(b"depends=\0name=a\0").is_empty());
    }
}
