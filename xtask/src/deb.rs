//! Debian packages without installing any: a private apt configuration over
//! the machine's own mirror, `apt-get download` and `dpkg -x`. Needs no root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{find_program, read_output};

/// The archive's keys on a Debian machine, under its newer and older name.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// A Debian archive as the machine's own sources name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Archive {
    uri: String,
    signed_by: Option<String>,
}

/// Where the machine gets Debian from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    main: Archive,
    security: Option<Archive>,
}

impl Mirror {
    /// Reads the machine's apt sources; `None` where they name no Debian.
    pub(crate) fn of_this_machine() -> Option<Self> {
        find_program("apt-get")?;
        let apt = Path::new("/etc/apt");
        let mut files: Vec<PathBuf> = fs::read_dir(apt.join("sources.list.d"))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        files.insert(0, apt.join("sources.list"));
        let sources = files.iter().flat_map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => parse_lines(&text),
                Some("sources") => parse_deb822(&text),
                _ => Vec::new(),
            }
        });
        Self::from_sources(sources)
    }

    fn from_sources(sources: impl IntoIterator<Item = Source>) -> Option<Self> {
        let mut main = None;
        let mut security = None;
        for Source {
            archive,
            suites,
            components,
        } in sources
        {
            if !components.iter().any(|component| component == "main") {
                continue;
            }
            for suite in suites {
                let release = suite.split(['-', '/']).next().unwrap_or_default();
                if !RELEASES.contains(&release) {
                    continue;
                }
                if suite.ends_with("-security") || suite.ends_with("/updates") {
                    security.get_or_insert_with(|| archive.clone());
                } else if is_debian(&archive.uri) {
                    main.get_or_insert_with(|| archive.clone());
                }
            }
        }
        Some(Self {
            main: main?,
            security,
        })
    }

    /// The lines of a sources.list for one release.
    fn sources_list(&self, release: &str, backports: bool) -> String {
        let mut suites = vec![(&self.main, release.to_owned())];
        if backports {
            suites.push((&self.main, format!("{release}-backports")));
        }
        if let Some(security) = &self.security {
            suites.push((security, format!("{release}-security")));
        }
        let mut lines = String::new();
        for (Archive { uri, signed_by }, suite) in suites {
            // The lists of a release that gets no more updates run out.
            let mut options = "arch=amd64 target=Packages check-valid-until=no".to_owned();
            let own_keyring = || KEYRINGS.into_iter().find(|file| Path::new(file).exists());
            if let Some(keyring) = signed_by.as_deref().or_else(own_keyring) {
                options.push_str(" signed-by=");
                options.push_str(keyring);
            }
            lines.extend(["deb [", &options, "] ", uri, " ", &suite, " main\n"]);
        }
        lines
    }
}

/// What Debian's releases are called in apt sources.
const RELEASES: [&str; 12] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "experimental",
];

/// Other archives use Debian's release names and components as well.
fn is_debian(uri: &str) -> bool {
    uri.split('/')
        .any(|part| part == "debian" || part == "debian.list")
}

/// One entry of the machine's apt sources.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    archive: Archive,
    suites: Vec<String>,
    components: Vec<String>,
}

/// Parses `deb [option=value …] URI SUITE COMPONENT…` lines.
fn parse_lines(text: &str) -> Vec<Source> {
    let parse = |line: &str| {
        let rest = line.split('#').next()?.trim().strip_prefix("deb")?;
        let rest = rest.starts_with(char::is_whitespace).then(|| rest.trim())?;
        let (options, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let uri = words.next()?;
        let suites = vec![words.next()?];
        let signed_by = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="))
            .map(str::to_owned);
        let archive = Archive { uri, signed_by };
        Some(Source {
            archive,
            suites,
            components: words.collect(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Parses paragraphs of `Field: value` with indented continuation lines.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    // Comments can stand anywhere and belong to no field.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for paragraph in lines.split(|line| line.trim().is_empty()) {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in paragraph {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push('\n');
                    value.push_str(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
        let field = |wanted: &str| {
            fields
                .iter()
                .find(|(name, _)| name == wanted)
                .map_or("", |(_, value)| value.as_str())
        };
        let words = |wanted| field(wanted).split_whitespace().map(str::to_owned);
        if field("enabled").eq_ignore_ascii_case("no") || !words("types").any(|kind| kind == "deb")
        {
            continue;
        }
        // A key can also stand there itself: such is left to the keyring.
        let signed_by = Some(field("signed-by"))
            .filter(|value| value.starts_with('/') && !value.contains(char::is_whitespace))
            .map(str::to_owned);
        for uri in words("uris") {
            sources.push(Source {
                archive: Archive {
                    uri,
                    signed_by: signed_by.clone(),
                },
                suites: words("suites").collect(),
                components: words("components").collect(),
            });
        }
    }
    sources
}

/// apt for one Debian release, with its own lists, touching nothing of the
/// system's.
#[derive(Debug)]
pub(crate) struct Apt {
    configuration: PathBuf,
    /// What went wrong with the lists; the packages may be there all the same.
    update_failure: Option<String>,
}

impl Apt {
    /// Sets the private apt up below `directory` and fetches the lists.
    pub(crate) fn new(
        mirror: &Mirror,
        release: &str,
        backports: bool,
        directory: &Path,
    ) -> Result<Self> {
        let directory = directory.join(release);
        for needed in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(directory.join(needed))?;
        }
        fs::write(
            directory.join("sources.list"),
            mirror.sources_list(release, backports),
        )?;
        let here = directory.display();
        // The machine's own settings count too (a proxy, say) except for its
        // sources, pins and hooks.
        let configuration = format!(
            r#"#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::Retries "3";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Dir::Cache "{here}/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::sourcelist "{here}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "{here}/state";
Dir::State::status "/dev/null";
"#
        );
        let mut apt = Self {
            configuration: directory.join("apt.conf"),
            update_failure: None,
        };
        fs::write(&apt.configuration, configuration)?;
        // An archive can lack one of the suites and have what is wanted.
        apt.update_failure = read_apt(apt.command("apt-get").arg("update"))
            .err()
            .map(|error| format!("{error:#}"));
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Without this, words in the output would be the user's language's.
        command
            .env("LC_ALL", "C.UTF-8")
            .arg("-c")
            .arg(&self.configuration)
            .arg("-q");
        command
    }

    /// The error for packages that could not be had.
    pub(crate) fn missing(&self, what: &str) -> anyhow::Error {
        let outdated = self
            .update_failure
            .as_ref()
            .map_or_else(String::new, |failure| {
                format!(" (its lists are not up to date: {failure})")
            });
        anyhow::anyhow!("cannot get {what} from the machine's Debian mirror{outdated}")
    }

    /// The names of all packages that match the regular expression.
    pub(crate) fn search(&self, names: &str) -> Result<Vec<String>> {
        let found = read_apt(
            self.command("apt-cache")
                .args(["search", "--names-only", names]),
        )?;
        Ok(found
            .lines()
            .filter_map(|line| Some(line.split_once(" - ")?.0.to_owned()))
            .collect())
    }

    /// The packages that `package` directly depends on.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let listed = read_apt(self.command("apt-cache").args(["depends", package]))
            .with_context(|| self.missing(package))?;
        Ok(parse_dependencies(&listed))
    }

    /// Fetches packages and unpacks them into `root`, keeping no archive.
    pub(crate) fn unpack<'a>(
        &self,
        packages: impl IntoIterator<Item = &'a str>,
        root: &Path,
    ) -> Result<()> {
        let archives = root.join(".archives");
        fs::create_dir_all(&archives)?;
        let packages: Vec<&str> = packages.into_iter().collect();
        read_apt(
            self.command("apt-get")
                .arg("download")
                .args(&packages)
                .current_dir(&archives),
        )
        .with_context(|| self.missing(&packages.join(", ")))?;
        for archive in fs::read_dir(&archives)? {
            read_output(
                Command::new("dpkg")
                    .arg("-x")
                    .arg(archive?.path())
                    .arg(root),
            )?;
        }
        fs::remove_dir_all(&archives).context("cannot remove the archives after unpacking")
    }
}

/// As [`read_output`], with only what apt calls errors in the error.
fn read_apt(command: &mut Command) -> Result<String> {
    const ENOUGH: usize = 1;
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix("E: "))
            .take(ENOUGH)
            .collect();
        bail!("{}", errors.join("; "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages in `apt-cache depends` output; of alternatives all of them.
fn parse_dependencies(listed: &str) -> Vec<String> {
    listed
        .lines()
        .filter_map(|line| {
            let line = line.trim_start().trim_start_matches('|');
            let name = line
                .strip_prefix("Depends: ")
                .or_else(|| line.strip_prefix("PreDepends: "))?;
            // <angle brackets> are around what no package is called.
            (!name.starts_with('<')).then(|| name.split(':').next().unwrap_or(name).to_owned())
        })
        .collect()
}

/// Installs a package on the system: as root, else through sudo, else not but
/// with the command to type.
pub(crate) fn install_on_system(package: &str) -> Result<()> {
    const ARGUMENTS: [&str; 3] = ["install", "-y", "--no-install-recommends"];
    let by_hand = format!(
        "type this, then again what you typed now:\n    sudo apt-get update && sudo apt-get {} {package}",
        ARGUMENTS.join(" ")
    );
    if find_program("apt-get").is_none() {
        bail!(
            "{package} is not installed and there is no apt-get here: install QEMU for x86-64 your system's way"
        );
    }
    let elevated = if crate::workspace::is_root() {
        Vec::new()
    } else if crate::workspace::sudo_works() {
        vec!["sudo", "-n"]
    } else {
        bail!(
            "{package} is not installed, and this user is neither root nor has sudo without a password: {by_hand}"
        );
    };
    let apt = |arguments: &[&str]| {
        let mut words = elevated.clone();
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        words.extend(arguments);
        read_output(Command::new(words[0]).args(&words[1..]))
    };
    let install = || apt(&[ARGUMENTS.as_slice(), &[package]].concat());
    // Another apt may be at work, on a fresh machine its updates.
    let attempt = install()
        .or_else(|_| apt(&["update"]).and_then(|_| install()))
        .or_else(|_| {
            std::thread::sleep(Duration::from_secs(10));
            install()
        });
    attempt
        .map(drop)
        .with_context(|| format!("cannot install {package}; {by_hand}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(uri: &str, signed_by: Option<&str>) -> Archive {
        Archive {
            uri: uri.to_owned(),
            signed_by: signed_by.map(str::to_owned),
        }
    }

    #[test]
    fn both_formats_of_sources_are_read() {
        let lines = "\
            # deb http://old.example/debian bookworm main\n\
            deb-src http://mirror.example/debian bookworm main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib\n\
            deb http://mirror.example/debian-security bookworm-security main # comment\n";
        let deb822 = "\
            Types: deb deb-src\n\
            # a comment\n\
            URIs: http://mirror.example/debian\n\
            Suites: bookworm bookworm-updates\n\
            Components: main contrib\n\
            Signed-By: /k.gpg\n\
            \n\
            Enabled: no\n\
            Types: deb\n\
            URIs: http://disabled.example/debian\n\
            Suites: bookworm\n\
            Components: main\n\
            \n\
            Types: deb\n\
            URIs: http://mirror.example/debian-security\n\
            Suites:\n bookworm-security\n\
            Components: main\n\
            Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n";
        let expected = Mirror {
            main: archive("http://mirror.example/debian", Some("/k.gpg")),
            security: Some(archive("http://mirror.example/debian-security", None)),
        };
        assert_eq!(
            Mirror::from_sources(parse_lines(lines)),
            Some(expected.clone())
        );
        assert_eq!(Mirror::from_sources(parse_deb822(deb822)), Some(expected));
    }

    #[test]
    fn other_archives_are_not_taken_for_debian() {
        let lines = "\
            deb http://vendor.example/linux/debian bookworm stable\n\
            deb http://vendor.example/packages bookworm main\n\
            deb http://ports.example/ubuntu noble main\n";
        assert_eq!(Mirror::from_sources(parse_lines(lines)), None);
    }

    #[test]
    fn a_release_has_its_updates() {
        let mirror = Mirror {
            main: archive("http://mirror.example/debian", Some("/k.gpg")),
            security: Some(archive(
                "http://mirror.example/debian-security",
                Some("/k.gpg"),
            )),
        };
        let list = mirror.sources_list("trixie", true);
        let suites: Vec<_> = list
            .lines()
            .filter_map(|line| line.split(' ').rev().nth(1))
            .collect();
        assert_eq!(suites, ["trixie", "trixie-backports", "trixie-security"]);
        assert!(
            list.lines().all(|line| line.contains("signed-by=/k.gpg]")),
            "{list}"
        );
    }

    #[test]
    fn dependencies_are_names_of_packages() {
        let listed = "\
            linux-image-7.3.4\n  PreDepends: linux-base\n |Depends: dracut\n  Depends: <initramfs>\n    \
            dracut\n  Depends: linux-binary-7.3.4\n  Depends: libz3-4:any\n  Recommends: apparmor\n";
        assert_eq!(
            parse_dependencies(listed),
            ["linux-base", "dracut", "linux-binary-7.3.4", "libz3-4"]
        );
    }
}
