//! Chromium of Debian, driven by its chromedriver over the W3C protocol `WebDriver`.
//!
//! The protocol is JSON over HTTP, and the tests need ten of its commands. The crates for it
//! require dozens of others, several of them in two versions.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtlens_tests::eventually;
use virtlens_tests::http::free_address;
use virtlens_tests::need::{Missing, that};

/// Longer than a page takes to show its first rates on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Key of Tab in the protocol.
pub(crate) const TAB: &str = "\u{E004}";
/// Key of Enter.
pub(crate) const ENTER: &str = "\u{E007}";

/// Directories of the programs of the Debian packages, from `scripts/unpack-packages ui`.
fn programs() -> Vec<PathBuf> {
    let listed = env::var_os("VIRTLENS_BROWSER").unwrap_or_default();
    env::split_paths(&listed).collect()
}

/// Needs the unpacked browser and its driver.
///
/// # Errors
///
/// They are not there.
pub(crate) fn browser() -> Result<(), Missing> {
    let is_there = programs()
        .iter()
        .any(|dir| dir.join("chromedriver").is_file());
    that(
        "browser",
        is_there,
        "VIRTLENS_BROWSER names no chromedriver; run scripts/test ui",
    )
}

/// The content of an answer. chromedriver keeps the connection open.
fn content(stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("chromedriver answers");
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).expect("the whole answer");
    String::from_utf8(content).expect("text")
}

/// A browser with one window; it ends when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with a window of this width.
    pub(crate) fn start(width: u32) -> Self {
        Self::sized(width, 900)
    }

    /// Starts a browser with a window of this size.
    pub(crate) fn sized(width: u32, height: u32) -> Self {
        let dirs = programs();
        let find = |path: &str| {
            let found = dirs
                .iter()
                .map(|dir| dir.join(path))
                .find(|path| path.is_file());
            found.unwrap_or_else(|| panic!("{path} is not in {dirs:?}"))
        };
        let chromium = find("../lib/chromium/chromium");
        // Libraries were unpacked next to the programs.
        let libraries: Vec<PathBuf> = dirs
            .iter()
            .map(|dir| dir.join("../lib/x86_64-linux-gnu"))
            .flat_map(|dir| [dir.join("pulseaudio"), dir])
            .collect();
        let address = free_address();
        let driver = Command::new(find("chromedriver"))
            .arg(format!("--port={}", address.port()))
            .env(
                "LD_LIBRARY_PATH",
                env::join_paths(libraries).expect("paths"),
            )
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts");
        let profile = tempfile::tempdir().expect("a directory");
        let kept_in = format!("--user-data-dir={}", profile.path().display());
        let mut browser = Self {
            driver,
            address,
            session: String::new(),
            _profile: profile,
        };
        eventually("chromedriver listens", || TcpStream::connect(address).ok());
        let size = format!("--window-size={width},{height}");
        let args = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            kept_in,
            size
        ]);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"binary": chromium, "args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        made["sessionId"]
            .as_str()
            .expect("an id")
            .clone_into(&mut browser.session);
        browser
    }

    /// Sends a command; returns its value.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address).expect("chromedriver listens");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("chromedriver reads");
        let json = content(stream);
        let answer: Value = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{json}"));
        let value = &answer["value"];
        assert!(value["error"].is_null(), "{path} {body}: {value}");
        value.clone()
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}/{path}", self.session);
        self.ask("POST", &path, body)
    }

    /// Opens an address. The page before is left, even if only the fragment differs.
    pub(crate) fn open(&self, url: &str) {
        self.command("url", &json!({"url": "about:blank"}));
        self.command("url", &json!({"url": url}));
    }

    /// Runs the body of a function in the page; returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs the body of a function whose promise is awaited.
    pub(crate) fn run_async(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[0]; (async () => {{ {script} }})().then(done, (error) => done(String(error)));"
        );
        self.command("execute/async", &json!({"script": script, "args": []}))
    }

    /// Runs a script until its result is neither false, null nor empty.
    pub(crate) fn wait(&self, what: &str, script: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.run(script);
            let is_empty = match &found {
                Value::Null | Value::Bool(false) => true,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty(),
                _ => false,
            };
            if !is_empty {
                return found;
            }
            if Instant::now() > end {
                let page = self.run("return document.body.innerText");
                panic!(
                    "waited a minute in vain: {what}; errors {:?}; page {page}",
                    self.errors()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Presses keys.
    pub(crate) fn press(&self, keys: &str) {
        let pressed = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|action| json!({"type": action, "value": key.to_string()}))
        });
        let pressed: Vec<Value> = pressed.collect();
        let source = json!({"type": "key", "id": "keyboard", "actions": pressed});
        self.command("actions", &json!({"actions": [source]}));
    }

    /// Sets the scheme of colours that the page gets.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let params = json!({"features": [feature]});
        self.command(
            "goog/cdp/execute",
            &json!({"cmd": "Emulation.setEmulatedMedia", "params": params}),
        );
    }

    /// Opens a second window, which further commands use.
    pub(crate) fn open_window(&self) {
        let made = self.command("window/new", &json!({"type": "window"}));
        self.command("window", &json!({"handle": made["handle"]}));
    }

    /// A metric of the main thread of the page, s since its start; the names are those of
    /// `Performance.getMetrics` of the `DevTools` protocol.
    pub(crate) fn seconds(&self, metric: &str) -> f64 {
        let cdp = |cmd: &str| self.command("goog/cdp/execute", &json!({"cmd": cmd, "params": {}}));
        cdp("Performance.enable");
        let all = cdp("Performance.getMetrics");
        let mut all = all["metrics"].as_array().expect("a list").iter();
        let found = all.find(|one| one["name"] == metric);
        found
            .and_then(|one| one["value"].as_f64())
            .expect("a number")
    }

    /// Keeps downloaded files in a directory.
    pub(crate) fn download_to(&self, folder: &Path) {
        let params = json!({"behavior": "allow", "downloadPath": folder});
        let command = json!({"cmd": "Browser.setDownloadBehavior", "params": params});
        self.command("goog/cdp/execute", &command);
    }

    /// Keeps a picture of the window in `target/ui`, for people.
    pub(crate) fn picture(&self, name: &str) {
        use base64::Engine as _;
        let path = format!("/session/{}/screenshot", self.session);
        let picture = self.ask("GET", &path, &json!({}));
        let picture = picture.as_str().expect("base64");
        let bytes = base64::engine::general_purpose::STANDARD.decode(picture);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ui");
        std::fs::create_dir_all(&folder).expect("it can be made");
        let file = folder.join(format!("{name}.png"));
        std::fs::write(file, bytes.expect("base64")).expect("there is room");
    }

    /// Errors of scripts and violations of the policy since the last call. Answers with an error
    /// are expected: an agent without a recording has no history.
    pub(crate) fn errors(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({"type": "browser"}));
        let lines = log.as_array().expect("a list").iter();
        let severe = lines.filter(|line| line["level"] == "SEVERE" && line["source"] != "network");
        let text = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
        severe.map(text).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, too, which is in the group of its driver.
        kill_process_group(Pid::from_child(&self.driver), Signal::KILL).ok();
        drop(self.driver.wait());
    }
}
