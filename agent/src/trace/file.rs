//! Where a trace is written to.

use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::Order;

/// A file that grows.
pub(super) struct Output {
    to: Box<dyn Write>,
    /// What people call it.
    pub(super) name: String,
    /// What waits to be written.
    pub(super) bytes: Vec<u8>,
    /// Bytes that were written.
    pub(super) written: u64,
}

impl Output {
    /// Creates the file that was ordered, or one named after the VM.
    pub(super) fn create(order: &Order, vm: &str) -> anyhow::Result<Self> {
        let usual = || {
            let name = vm.replace(|char: char| !char.is_alphanumeric() && char != '.', "-");
            format!("{name}.{}", order.shape.extension()).into()
        };
        let path = order.file.clone().unwrap_or_else(usual);
        let (to, name): (Box<dyn Write>, _) = if path == Path::new("-") {
            let stdout = std::io::stdout();
            ensure!(
                !stdout.is_terminal(),
                "a trace is no text for a terminal: redirect it, or name a file with --output"
            );
            (Box::new(stdout), "stdout".to_owned())
        } else {
            let name = path.display().to_string();
            let hint = || format!("cannot write {name}: name another file with --output");
            let file = File::create(&path).with_context(hint)?;
            (Box::new(file), name)
        };
        Ok(Self {
            to,
            name,
            bytes: Vec::new(),
            written: 0,
        })
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.to
            .write_all(&self.bytes)
            .and_then(|()| self.to.flush())
            .with_context(|| format!("cannot write on to {}", self.name))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}
