//! Creates the output file of a trace.
//!
//! The command runs as root, possibly in a directory where other users can write. A file
//! with a default name is always newly created. A file that the user names is replaced,
//! but a symbolic link of that name is not followed to another file.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// A file that is written in parts.
pub(super) struct Output {
    to: Box<dyn Write>,
    /// Display name.
    pub(super) name: String,
    /// Buffered bytes.
    pub(super) bytes: Vec<u8>,
    /// Number of bytes written.
    pub(super) written: u64,
}

impl Output {
    /// Opens `file`, where `-` is stdout, or a new one named after the VM.
    pub(super) fn create(file: Option<&Path>, vm: &str) -> anyhow::Result<Self> {
        let (to, name): (Box<dyn Write>, String) = match file {
            Some(path) if path == Path::new("-") => {
                let stdout = io::stdout();
                ensure!(
                    !stdout.is_terminal(),
                    "refused to write a trace to a terminal: redirect stdout, or set a file with \
                     --output"
                );
                (Box::new(stdout), "stdout".to_owned())
            }
            Some(path) => {
                let name = path.display().to_string();
                let file = replace(path).with_context(|| hint(&name))?;
                (Box::new(file), name)
            }
            None => {
                let (file, name) = create_new(Path::new(""), vm, EXTENSION)?;
                (Box::new(file), name)
            }
        };
        Ok(Self {
            to,
            name,
            bytes: Vec::new(),
            written: 0,
        })
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.to
            .write_all(&self.bytes)
            .and_then(|()| self.to.flush())
            .with_context(|| format!("cannot write to {}", self.name))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

/// File extension of Perfetto traces.
const EXTENSION: &str = "pftrace";

/// Maximum number of traces of one VM in a directory.
const MAX_NAMES: u32 = 1000;

/// Creates a new file in `dir`, named after the VM, with a number if the name is taken.
fn create_new(dir: &Path, vm: &str, extension: &str) -> anyhow::Result<(File, String)> {
    let stem = vm.replace(|char: char| !char.is_alphanumeric() && char != '.', "-");
    let numbered = (2..=MAX_NAMES).map(|number| format!("{stem}-{number}.{extension}"));
    for name in [format!("{stem}.{extension}")].into_iter().chain(numbered) {
        // Fails on a symbolic link too, whatever its target (open(2), O_EXCL).
        match File::create_new(dir.join(&name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return Ok((created.with_context(|| hint(&name))?, name)),
        }
    }
    bail!("this directory already has {MAX_NAMES} traces of {vm}: set another file with --output")
}

/// Opens the file of this name and truncates it; a pipe or a device is opened through
/// links too.
fn replace(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    match file {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => through_link(path),
        opened => opened,
    }
}

/// Opens the target of a link, unless it is a regular file: `/dev/stdout` is a link.
fn through_link(path: &Path) -> io::Result<File> {
    let refusal = || io::Error::other("refused to follow a symbolic link to a file");
    let file = match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(refusal()),
        opened => opened?,
    };
    if file.metadata()?.is_file() {
        return Err(refusal());
    }
    Ok(file)
}

fn hint(name: &str) -> String {
    format!("cannot write {name}: set another file with --output")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{create_new, replace};

    #[test]
    fn taken_default_name_gets_number_and_symlink_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        symlink(at("elsewhere"), at("shop-web-0.json")).expect("linked");
        fs::write(at("shop-web-0-2.json"), "an older trace").expect("written");
        let (_, name) = create_new(dir.path(), "shop/web-0", "json").expect("created");
        assert_eq!(name, "shop-web-0-3.json");
        assert!(!at("elsewhere").exists());
        let older = fs::read(at("shop-web-0-2.json")).expect("read");
        assert_eq!(older, b"an older trace");
    }

    #[test]
    fn named_file_is_replaced_and_symlink_to_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::write(at("web.pftrace"), "an older trace").expect("written");
        replace(&at("web.pftrace")).expect("opened");
        assert_eq!(fs::read(at("web.pftrace")).expect("read"), b"");

        fs::write(at("secret"), "precious").expect("written");
        for target in ["secret", "nothing"] {
            let link = at(&format!("to-{target}"));
            symlink(at(target), &link).expect("linked");
            let error = replace(&link).expect_err("it is a link").to_string();
            assert!(error.contains("symbolic link"), "{error}");
        }
        assert_eq!(fs::read(at("secret")).expect("read"), b"precious");
        assert!(!at("nothing").exists());
        symlink("/dev/null", at("null")).expect("linked");
        replace(&at("null")).expect("a device is no file");
    }
}
