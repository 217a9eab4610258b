//! The part of QEMU's monitor protocol that reports the role of each thread: QEMU's own
//! data, independent of thread names and of the kernel.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

/// One connection; QEMU serves one at a time, so it is not kept open.
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and leaves negotiation mode.
    pub(crate) fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Runs a command without arguments and returns its result.
    pub(crate) fn execute(&mut self, command: &str) -> anyhow::Result<Value> {
        writeln!(self.stream.get_mut(), "{{\"execute\":\"{command}\"}}")?;
        // Skips the greeting and events.
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                bail!("QEMU closed its monitor");
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if let Some(error) = message.get("error") {
                bail!("{command}: {error}");
            }
            if let Some(result) = message.get_mut("return") {
                return Ok(result.take());
            }
        }
    }

    /// The thread ids in the result of `query-cpus-fast` or `query-iothreads`.
    pub(crate) fn thread_ids(&mut self, command: &str) -> anyhow::Result<Vec<u32>> {
        let result = self.execute(command)?;
        let list = result
            .as_array()
            .with_context(|| format!("{command}: not a list"))?;
        let id = |item: &Value| u32::try_from(item["thread-id"].as_u64()?).ok();
        Ok(list.iter().filter_map(id).collect())
    }
}
