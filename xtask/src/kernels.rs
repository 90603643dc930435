//! The guest kernels: which there are, where Debian has them, and their
//! modules.

use std::{
    cmp::Ordering,
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    deb::{Apt, Mirror},
    setup::{self, Setup},
    workspace::setup_dir,
};

/// A kernel that the set-up can fetch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packaged {
    /// Its series, which is also its name here.
    pub(crate) series: &'static str,
    /// The Debian releases that have it, the one to ask first in front.
    releases: &'static [&'static str],
}

/// All of them, oldest first.
pub(crate) const PACKAGED: [Packaged; 6] = [
    Packaged {
        series: "5.10",
        releases: &["bullseye"],
    },
    Packaged {
        series: "6.1",
        releases: &["bookworm"],
    },
    Packaged {
        series: "6.12",
        releases: &["bookworm", "trixie"],
    },
    Packaged {
        series: "6.18",
        releases: &["trixie"],
    },
    Packaged {
        series: "7.0",
        releases: &["trixie"],
    },
    Packaged {
        series: "7.3",
        releases: &["trixie"],
    },
];

/// What is booted unless something else is asked for.
pub(crate) const DEFAULT: &str = "6.12";

/// What the user asked for: a series by name, or an image by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Packaged(&'static Packaged),
    Image(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') {
            return Ok(Self::Image(text.into()));
        }
        PACKAGED
            .iter()
            .find(|kernel| kernel.series == text)
            .map(Self::Packaged)
            .ok_or_else(|| {
                let names = PACKAGED.map(|kernel| kernel.series).join(", ");
                format!("the kernels are {names}, or the path of an image, with a slash in it")
            })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packaged(kernel) => f.write_str(kernel.series),
            Self::Image(path) => path.display().fmt(f),
        }
    }
}

/// A kernel that is here and can be booted.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// What the user calls it.
    pub(crate) name: String,
    /// The file to boot.
    pub(crate) image: PathBuf,
    /// The directory that has its modules in it, where there is one.
    pub(crate) modules: Option<PathBuf>,
}

impl Kernel {
    /// Gets the kernel, from Debian when it is not here yet.
    pub(crate) fn get(choice: &Choice, setup: &Setup) -> Result<Self> {
        match choice {
            Choice::Packaged(kernel) => setup.step(
                &format!("kernel {}", kernel.series),
                "fetching",
                || Self::in_place(kernel.series),
                || fetch(kernel),
            ),
            Choice::Image(image) => {
                if !image.is_file() {
                    bail!(
                        "there is no kernel image {}; the machine's own is often /boot/vmlinuz-$(uname -r)",
                        image.display()
                    );
                }
                Ok(Self {
                    name: image.display().to_string(),
                    image: image.clone(),
                    modules: None,
                })
            }
        }
    }

    fn in_place(series: &str) -> Option<Self> {
        let directory = directory(series);
        let image = directory.join("vmlinuz");
        image.is_file().then(|| Self {
            name: series.to_owned(),
            image,
            modules: Some(directory.join("modules")).filter(|modules| modules.is_dir()),
        })
    }
}

fn directory(series: &str) -> PathBuf {
    setup_dir().join("kernels").join(series)
}

fn fetch(kernel: &Packaged) -> Result<()> {
    let failure = match Mirror::of_this_machine() {
        None => "this machine's apt sources name no Debian mirror".to_owned(),
        Some(mirror) => {
            let mut failures = Vec::new();
            for release in kernel.releases {
                match fetch_from(&mirror, release, kernel.series) {
                    Ok(()) => return Ok(()),
                    Err(error) => failures.push(format!("{release}: {error:#}")),
                }
            }
            failures.join("\n")
        }
    };
    bail!(
        "{failure}\nOn a machine without Debian's packages give an image instead: `--kernel PATH`; \
         the machine's own is often /boot/vmlinuz-$(uname -r)"
    )
}

fn fetch_from(mirror: &Mirror, release: &str, series: &str) -> Result<()> {
    let apt = Apt::new(mirror, release, true, &setup_dir().join("apt"))?;
    let cloud_kernels = apt.search("^linux-image-.*-cloud-amd64(-unsigned)?$")?;
    let Some(image) = newest(&cloud_kernels, series) else {
        return Err(apt.missing(&format!("linux-image-{series}*-cloud-amd64")));
    };
    // Newer kernels come in parts that the image's package depends on. Not
    // each of the parts has to be there: some have lost their modules.
    let mut packages = vec![image.to_owned()];
    packages.extend(apt.dependencies(image)?.into_iter().filter(|package| {
        ["linux-base-", "linux-binary-", "linux-modules-"]
            .iter()
            .any(|part| package.starts_with(part))
    }));

    setup::make_atomically(&directory(series), |directory| {
        let tree = directory.join("tree");
        apt.unpack(packages.iter().map(String::as_str), &tree)?;
        arrange(&tree, directory)?;
        fs::remove_dir_all(&tree).context("cannot remove what is left of the packages")
    })
}

/// The newest package of the series; unsigned ones only if there is no other.
fn newest<'a>(packages: &'a [String], series: &str) -> Option<&'a str> {
    let prefix = format!("linux-image-{series}.");
    packages
        .iter()
        .map(String::as_str)
        .filter(|package| package.starts_with(&prefix))
        .max_by(|a, b| {
            let version = |package: &str| package.trim_end_matches("-unsigned").to_owned();
            compare_versions(&version(a), &version(b)).then_with(|| b.len().cmp(&a.len()))
        })
}

/// Compares runs of digits as numbers and all else as text.
fn compare_versions(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| {
        let mut parts: Vec<(String, u64)> = vec![(String::new(), 0)];
        for character in text.chars() {
            let at = parts.len() - 1;
            match character.to_digit(10) {
                Some(digit) => parts[at].1 = parts[at].1.saturating_mul(10) + u64::from(digit),
                None if parts[at].1 == 0 => parts[at].0.push(character),
                None => parts.push((character.to_string(), 0)),
            }
        }
        parts
    };
    parts(a).cmp(&parts(b))
}

/// Moves the image and the modules from where packages have them.
fn arrange(tree: &Path, directory: &Path) -> Result<()> {
    let children = |directory: PathBuf| {
        fs::read_dir(directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect::<Vec<_>>()
    };
    let module_trees: Vec<PathBuf> = ["lib/modules", "usr/lib/modules"]
        .into_iter()
        .flat_map(|place| children(tree.join(place)))
        .collect();
    let image = children(tree.join("boot"))
        .into_iter()
        .chain(module_trees.iter().flat_map(|tree| children(tree.clone())))
        .find(|file| {
            file.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with("vmlinuz"))
        })
        .context("the kernel's packages hold no image")?;
    fs::rename(&image, directory.join("vmlinuz"))?;

    let modules = module_trees
        .iter()
        .find(|tree| tree.join("kernel").is_dir());
    let version = modules
        .or(module_trees.first())
        .and_then(|tree| tree.file_name())
        .or_else(|| image.file_name())
        .map(|name| {
            name.to_string_lossy()
                .trim_start_matches("vmlinuz-")
                .to_owned()
        })
        .unwrap_or_default();
    fs::write(directory.join("version"), format!("{version}\n"))?;
    if let Some(modules) = modules {
        fs::rename(modules, directory.join("modules"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_right_series_is_taken() {
        let packages = [
            "linux-image-6.1-cloud-amd64",
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.12.90+deb12.1-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-7.3.4+deb13-cloud-amd64-unsigned",
        ]
        .map(str::to_owned);
        assert_eq!(
            newest(&packages, "6.1"),
            Some("linux-image-6.1.0-57-cloud-amd64")
        );
        assert_eq!(
            newest(&packages, "6.12"),
            Some("linux-image-6.12.117+deb12-cloud-amd64")
        );
        assert_eq!(
            newest(&packages, "7.3"),
            Some("linux-image-7.3.4+deb13-cloud-amd64-unsigned")
        );
        assert_eq!(newest(&packages, "7.0"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        for (older, newer) in [
            ("6.12.90+deb12", "6.12.90+deb12.1"),
            ("6.12.90+deb12.1", "6.12.117+deb12"),
            ("6.1.0-9", "6.1.0-10"),
        ] {
            assert_eq!(
                compare_versions(older, newer),
                Ordering::Less,
                "{older} {newer}"
            );
        }
    }

    #[test]
    fn a_kernel_is_a_name_or_a_path() {
        assert_eq!("6.12".parse(), Ok(Choice::Packaged(&PACKAGED[2])));
        assert_eq!("./vmlinuz".parse(), Ok(Choice::Image("./vmlinuz".into())));
        assert!("6.13".parse::<Choice>().unwrap_err().contains("6.12"));
    }
}
