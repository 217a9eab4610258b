//! QEMU's monitor protocol (QMP): QEMU's own data of a machine, independent of its kernel.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// One connection; QEMU serves one at a time, so it is not kept open.
#[derive(Debug)]
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects and leaves negotiation mode.
    ///
    /// # Errors
    ///
    /// If QEMU does not serve the socket at `path`, or does not answer in 20 s.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| path.display().to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut qmp = Self {
            stream: BufReader::new(stream),
        };
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its result.
    fn execute(&mut self, command: &str, arguments: &Value) -> anyhow::Result<Value> {
        let request = json!({"execute": command, "arguments": arguments});
        writeln!(self.stream.get_mut(), "{request}")?;
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

    /// The text that a command of the human monitor prints.
    ///
    /// # Errors
    ///
    /// If QEMU refuses the command or does not answer in 20 s.
    pub fn human(&mut self, command: &str) -> anyhow::Result<String> {
        let arguments = json!({"command-line": command});
        let text = self.execute("human-monitor-command", &arguments)?;
        let text = text
            .as_str()
            .with_context(|| format!("{command}: not a text"))?;
        Ok(text.to_owned())
    }

    /// The thread ids in the result of `query-cpus-fast` or `query-iothreads`.
    ///
    /// # Errors
    ///
    /// If QEMU refuses the command or does not answer in 20 s.
    pub fn thread_ids(&mut self, command: &str) -> anyhow::Result<Vec<u32>> {
        let result = self.execute(command, &json!({}))?;
        let list = result
            .as_array()
            .with_context(|| format!("{command}: not a list"))?;
        let id = |item: &Value| u32::try_from(item["thread-id"].as_u64()?).ok();
        Ok(list.iter().filter_map(id).collect())
    }
}
