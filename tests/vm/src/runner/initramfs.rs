//! Small initramfs archives: busybox, an init script and a few modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::kernel::Kernel;

/// A cpio archive in the `newc` format the kernel unpacks
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    inodes: u32,
}

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const SYMLINK: u32 = 0o120_777;

impl Cpio {
    /// Adds a directory; its parent must have been added before.
    pub(crate) fn dir(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file that all users may read and execute.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, EXECUTABLE, content);
    }

    /// Adds a symbolic link to `target`.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK, target.as_bytes());
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let size = u32::try_from(content.len()).expect("initramfs files are small");
        let name_size = u32::try_from(path.len() + 1).expect("paths are short");
        // ino mode uid gid nlink mtime size major minor rmajor rminor namesize check
        let header = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in header {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(path.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Creates an archive with the common content: busybox under all names that the init
/// scripts call, mount points, and `init`.
pub(crate) fn base(busybox: &Path, init: &str) -> anyhow::Result<Cpio> {
    let mut cpio = Cpio::default();
    for dir in ["bin", "dev", "proc", "sys", "run", "tmp", "modules", "root"] {
        cpio.dir(dir);
    }
    let binary = fs::read(busybox).with_context(|| {
        format!(
            "{}: install the Debian package busybox-static",
            busybox.display()
        )
    })?;
    cpio.file("bin/busybox", &binary);
    cpio.link("bin/sh", "busybox");
    cpio.file("init", init.as_bytes());
    Ok(cpio)
}

/// Adds modules with their dependencies, uncompressed, as `modules/<nn>-<name>.ko`: they
/// can be loaded in the order of their names.
pub(crate) fn add_modules(cpio: &mut Cpio, kernel: &Kernel, names: &[&str]) -> anyhow::Result<()> {
    for (position, path) in load_order(kernel, names)?.iter().enumerate() {
        let file = kernel.modules.join(path);
        let content = if file.extension().is_some_and(|ext| ext == "xz") {
            let out = Command::new("xz").arg("-dc").arg(&file).output();
            out.context("cannot run xz: install the Debian package xz-utils")?
                .stdout
        } else {
            fs::read(&file).with_context(|| file.display().to_string())?
        };
        cpio.file(
            &format!("modules/{position:02}-{}.ko", module_name(path)),
            &content,
        );
    }
    Ok(())
}

/// The files to load for `names`, dependencies first. A module that is built into this
/// kernel needs no file.
fn load_order(kernel: &Kernel, names: &[&str]) -> anyhow::Result<Vec<String>> {
    let read = |file: &str| {
        let path = kernel.modules.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (dep, builtin) = (read("modules.dep")?, read("modules.builtin")?);
    let modules: BTreeMap<String, (&str, Vec<&str>)> = dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| {
            (
                module_name(path),
                (path, needs.split_whitespace().collect()),
            )
        })
        .collect();
    let mut order: Vec<String> = Vec::new();
    for name in names {
        let Some((path, needs)) = modules.get(*name) else {
            if builtin.lines().any(|path| module_name(path) == *name) {
                continue;
            }
            bail!("kernel {} has no module {name}", kernel.release);
        };
        // modules.dep lists the dependencies of a module with the deepest last.
        for one in needs.iter().rev().chain([path]) {
            if !order.iter().any(|have| have == one) {
                order.push((*one).to_owned());
            }
        }
    }
    Ok(order)
}

/// `kernel/fs/9p/9p.ko.xz` has the name `9p`; the kernel treats `-` as `_`.
fn module_name(path: &str) -> String {
    let file = PathBuf::from(path);
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    file.split(".ko")
        .next()
        .unwrap_or_default()
        .replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_and_a_trailer() {
        let mut cpio = Cpio::default();
        cpio.dir("a");
        cpio.file("a/b", b"hello");
        let bytes = cpio.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701000000010000"));
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("070701").count(), 3);
        assert!(text.contains("hello") && text.contains("TRAILER!!!"));
    }

    #[test]
    fn a_module_is_known_by_its_name_in_the_kernel() {
        assert_eq!(module_name("kernel/arch/x86/kvm/kvm-amd.ko.xz"), "kvm_amd");
        assert_eq!(module_name("kernel/fs/9p/9p.ko"), "9p");
    }
}
