//! Debian packages of any suite, fetched once and unpacked, never installed.
//!
//! Each suite has a private apt tree (lists and caches), so the system's apt is not
//! affected. The mirror and the signing key come from the machine's own apt sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

/// One suite of the machine's Debian mirror.
#[derive(Debug)]
pub(crate) struct Apt {
    suite: String,
    /// Private lists, archives and sources.
    dir: PathBuf,
    /// Unpacked packages, `<name>_<version>/`.
    packages: PathBuf,
}

/// Origin of packages: one stanza of the machine's sources.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    signed_by: Option<String>,
}

impl Apt {
    /// Creates a private apt for `suite` below the cache directory.
    pub(crate) fn new(cache: &Path, suite: &str) -> Self {
        Self {
            suite: suite.to_owned(),
            dir: cache.join("apt").join(suite),
            packages: cache.join("packages").join(suite),
        }
    }

    /// Fetches the package index, which all other methods here read.
    pub(crate) fn update(&self) -> anyhow::Result<()> {
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.dir.join(dir))?;
        }
        // No package counts as installed, so that a closure of dependencies is complete.
        fs::write(self.dir.join("status"), "")?;
        let source = source_for(&self.suite, &machine_sources()?)?;
        let options = source
            .signed_by
            .map_or_else(String::new, |key| format!("[signed-by={key}] "));
        // Backports depend on their release.
        let release = self.suite.strip_suffix("-backports");
        let suites = release.into_iter().chain([self.suite.as_str()]);
        let entry = |suite| format!("deb {options}{} {suite} main\n", source.uri);
        let entries: String = suites.map(entry).collect();
        fs::write(self.dir.join("sources.list"), entries)?;
        self.run("apt-get", &["update"], &self.dir)
            .with_context(|| format!("suite {}: cannot fetch its package index", self.suite))?;
        Ok(())
    }

    /// All package names of the suite that start with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let names = self.run("apt-cache", &["pkgnames", prefix], &self.dir)?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// The control fields `Version` and `Depends` of one package.
    pub(crate) fn show(&self, name: &str) -> anyhow::Result<(String, Vec<String>)> {
        // Otherwise apt would prefer the version of a backport's release.
        let of_suite = format!("APT::Default-Release={}", self.suite);
        let show = ["-o", &of_suite, "--no-all-versions", "show", name];
        let text = self.run("apt-cache", &show, &self.dir)?;
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        };
        let version = field("Version").with_context(|| format!("{name} has no version"))?;
        let depends = field("Depends").unwrap_or_default();
        let depends = depends
            .split(',')
            .filter_map(|one| one.split_whitespace().next().map(str::to_owned))
            .collect();
        Ok((version.to_owned(), depends))
    }

    /// Directory of an unpacked package of any version; the suite's present version is
    /// fetched if there is none.
    pub(crate) fn any_version(&self, name: &str) -> anyhow::Result<PathBuf> {
        if let Some(have) = self.have(&format!("{name}_")) {
            return Ok(have);
        }
        self.update()?;
        let (version, _) = self.show(name)?;
        self.unpack(name, &version)
    }

    /// Like [`Apt::any_version`], with all dependencies of the package in the same
    /// directory: its programs use libraries of their own suite, independent of this
    /// machine's.
    pub(crate) fn closure(&self, name: &str) -> anyhow::Result<PathBuf> {
        let prefix = format!("{name}+depends_");
        if let Some(have) = self.have(&prefix) {
            return Ok(have);
        }
        self.update()?;
        let (version, _) = self.show(name)?;
        let simulate = [
            "-s",
            "--no-install-recommends",
            "-t",
            &self.suite,
            "install",
            name,
        ];
        let packages = parse_simulation(&self.run("apt-get", &simulate, &self.dir)?);
        self.fetch(&format!("{prefix}{version}"), &packages)
    }

    /// Downloads and unpacks one package unless this version is already there, and
    /// returns its directory.
    pub(crate) fn unpack(&self, name: &str, version: &str) -> anyhow::Result<PathBuf> {
        self.fetch(&format!("{name}_{version}"), &[format!("{name}={version}")])
    }

    fn have(&self, prefix: &str) -> Option<PathBuf> {
        let mut entries = fs::read_dir(&self.packages).ok()?.flatten();
        let have = entries.find(|entry| {
            let file = entry.file_name().to_string_lossy().into_owned();
            file.starts_with(prefix) && !file.ends_with(".partial")
        });
        Some(have?.path())
    }

    /// Downloads `packages` and unpacks them into one directory.
    fn fetch(&self, title: &str, packages: &[String]) -> anyhow::Result<PathBuf> {
        // ':' and ',' are separators on kernel and QEMU command lines.
        let dir = self.packages.join(title.replace([':', ','], "_"));
        if dir.exists() {
            return Ok(dir);
        }
        println!("fetching {title} from {}", self.suite);
        let mut partial = dir.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        let (archive, root) = (partial.join("archive"), partial.join("root"));
        fs::create_dir_all(&archive)?;
        fs::create_dir_all(&root)?;
        let args: Vec<_> = ["download"]
            .into_iter()
            .chain(packages.iter().map(String::as_str))
            .collect();
        self.run("apt-get", &args, &archive)?;
        for deb in fs::read_dir(&archive)? {
            output(Command::new("dpkg").arg("-x").arg(deb?.path()).arg(&root))?;
        }
        fs::rename(&root, &dir)?;
        fs::remove_dir_all(&partial)?;
        Ok(dir)
    }

    fn run(&self, program: &str, args: &[&str], cwd: &Path) -> anyhow::Result<String> {
        let dir = self.dir.display();
        let mut command = Command::new(program);
        command
            .args(["-q", "-o", "Dir::Etc::SourceParts=/dev/null"])
            .args(["-o", "Acquire::Languages=none"])
            .args([
                "-o",
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            ])
            // As root apt switches to a user that cannot write below a home directory.
            .args(["-o", "APT::Sandbox::User=root"])
            .args(["-o", &format!("Dir::Etc::SourceList={dir}/sources.list")])
            .args(["-o", &format!("Dir::State={dir}/state")])
            .args(["-o", &format!("Dir::State::status={dir}/status")])
            .args(["-o", &format!("Dir::Cache={dir}/cache")])
            .args(args)
            .current_dir(cwd);
        output(&mut command)
    }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command
        .output()
        .with_context(|| format!("cannot run {program}: is it installed?"))?;
    let stderr = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{program} failed ({}): {}",
        out.status,
        stderr.trim()
    );
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Converts the output of `apt-get -s install` to `name=version` words, from lines like
/// `Inst zlib1g (1:1.3-1 Debian:13/stable [amd64])`.
fn parse_simulation(text: &str) -> Vec<String> {
    let install = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
        Some(format!("{name}={}", rest.split(' ').next()?))
    };
    text.lines().filter_map(install).collect()
}

fn machine_sources() -> anyhow::Result<Vec<Source>> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|ext| ext.to_str()) {
            Some("sources") => sources.extend(parse_deb822(&text)),
            Some("list") => sources.extend(text.lines().filter_map(parse_one_line)),
            _ => {}
        }
    }
    ensure!(
        !sources.is_empty(),
        "no apt sources in /etc/apt: the rig needs a Debian mirror"
    );
    Ok(sources)
}

fn parse_deb822(text: &str) -> Vec<Source> {
    let stanza = |text: &str| {
        let field = |key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.map(str::trim).filter(|value| !value.is_empty())
        };
        field("Types")?
            .split_whitespace()
            .find(|kind| *kind == "deb")?;
        Some(Source {
            uri: field("URIs")?.split_whitespace().next()?.to_owned(),
            suites: field("Suites")?
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            signed_by: field("Signed-By").map(str::to_owned),
        })
    };
    text.split("\n\n").filter_map(stanza).collect()
}

fn parse_one_line(line: &str) -> Option<Source> {
    let rest = line.trim().strip_prefix("deb ")?.trim();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let signed_by = options
        .split_whitespace()
        .find_map(|one| one.strip_prefix("signed-by="));
    Some(Source {
        uri: words.next()?.to_owned(),
        suites: vec![words.next()?.to_owned()],
        signed_by: signed_by.map(str::to_owned),
    })
}

/// The machine's mirror that should also have `suite`: security suites are on a separate
/// mirror, all others on that of this machine's release.
fn source_for(suite: &str, sources: &[Source]) -> anyhow::Result<Source> {
    const RELEASES: [&str; 6] = ["bullseye", "bookworm", "trixie", "forky", "stable", "sid"];
    let security = suite.ends_with("-security");
    let carries = |source: &&Source| {
        source.suites.iter().any(|have| {
            RELEASES.iter().any(|release| have.starts_with(release))
                && have.ends_with("-security") == security
        })
    };
    match sources.iter().find(carries) {
        Some(source) => Ok(source.clone()),
        None => bail!("no apt source of this machine is a Debian mirror that could carry {suite}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\n\
        Suites: bookworm bookworm-updates\nComponents: main\nSigned-By: /k.gpg\n\n\
        Types: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\n";

    #[test]
    fn both_apt_source_formats_are_parsed() {
        let sources = parse_deb822(DEB822);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/k.gpg"));
        let line = "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian trixie main";
        let source = parse_one_line(line).expect("a deb line");
        assert_eq!(source.uri, "http://mirror.example/debian");
        assert_eq!(source.suites, ["trixie"]);
        assert_eq!(source.signed_by.as_deref(), Some("/k.gpg"));
        assert_eq!(parse_one_line("# deb http://mirror.example x main"), None);
    }

    #[test]
    fn a_simulated_installation_names_every_version() {
        let text = "Reading lists...\nInst libc6 (2.41-12 Debian:13/stable [amd64])\n\
            Conf libc6 (2.41-12 Debian:13/stable [amd64])\n\
            Inst zlib1g (1:1.3-1 Debian:13/stable [amd64]) []\n";
        assert_eq!(parse_simulation(text), ["libc6=2.41-12", "zlib1g=1:1.3-1"]);
    }

    #[test]
    fn security_suite_uses_security_mirror() {
        let sources = parse_deb822(DEB822);
        let uri = |suite| source_for(suite, &sources).expect("a mirror").uri;
        assert_eq!(uri("bullseye-security"), "http://mirror.example/security");
        assert_eq!(uri("trixie-backports"), "http://mirror.example/debian");
    }

    #[test]
    fn third_party_source_is_not_a_debian_mirror() {
        let sources = [parse_one_line(
            "deb http://vendor.example/apt nodistro main",
        )];
        let sources: Vec<_> = sources.into_iter().flatten().collect();
        assert!(source_for("trixie", &sources).is_err());
    }
}
