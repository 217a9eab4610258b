//! The page on a local port, with an agent behind the API server or at a URL.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::{Cluster, PODS, Place, Server, node, place, run, stderr};
use crate::api::reviews::Reviews;
use crate::program::{Answer, send, virtlens};
use crate::web::{Site, text};

/// A command while it serves the page; killed when dropped.
struct Page {
    child: Child,
    address: String,
    /// The fragment of its address.
    way: String,
}

impl Page {
    fn start(cluster: &Cluster, args: &[&str]) -> Self {
        let mut command = virtlens();
        command.arg0("kubectl-virtlens").args(["ui", "--no-open"]);
        command.args(args).arg("--kubeconfig");
        command.arg(cluster.kubeconfig());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let rest = line.trim().strip_prefix("http://127.0.0.1:");
        let (port, way) = rest.and_then(|rest| rest.split_once("/#/")).expect(&line);
        Self {
            child,
            address: format!("127.0.0.1:{port}"),
            way: way.to_owned(),
        }
    }

    /// Sends a request; its answer ends with the connection.
    fn open(&self, method: &str, path: &str, token: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let header = if token.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {token}\r\n")
        };
        let head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n{header}\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    }

    fn ask(&self, method: &str, path: &str, token: &str) -> Answer {
        let mut bytes = Vec::new();
        let mut stream = self.open(method, path, token, &self.address);
        stream.read_to_end(&mut bytes).expect("it answers");
        Answer::new(&bytes)
    }

    /// The node of the reading that a client with this token gets.
    fn node(&self, token: &str) -> Value {
        let answer = self.ask("GET", "/api/v1/snapshot", token);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reading: Value = serde_json::from_str(answer.text()).expect("JSON");
        reading["node"]["name"].clone()
    }

    /// Exchanges the code of its address, which shows a view, for the token.
    fn token_at(&self, view: &str) -> String {
        let (code, to) = self.code();
        assert_eq!(to, view);
        let answer = self.ask("POST", "/ui/session", code);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer: Value = serde_json::from_str(answer.text()).expect("JSON");
        answer["token"].as_str().expect("a token").to_owned()
    }

    fn code(&self) -> (&str, &str) {
        let query = self.way.strip_prefix("login?code=").expect("a code");
        query.split_once("&to=").expect("a view")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn page_without_credentials_passes_requests_on_until_a_signal() {
    let a = Server::start(node("node-a"));
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    let mut page = Page::start(&cluster, &["web-0"]);
    assert_eq!(page.way, "vm/sandbox-7c41e0");
    for path in ["/", "/ui/app.js", "/metrics", "/sources"] {
        assert_eq!(page.ask("GET", path, "").status, 200, "{path}");
    }
    assert_eq!(page.node(""), "node-a");
    let trace = page.ask("POST", "/api/v1/trace?vm=shop/web-0", "");
    assert_eq!(trace.status, 403, "{}", trace.text());
    assert_eq!(page.ask("DELETE", "/api/v1/snapshot", "").status, 405);

    // The name of a web site that was made to have this address.
    let mut other = String::new();
    let mut stream = page.open("GET", "/api/v1/snapshot", "", "site.example");
    stream.read_to_string(&mut other).expect("it answers");
    assert!(other.contains(" 421 "), "{other}");

    // Two readings of a stream, which goes on.
    let stream = page.open("GET", "/api/v1/stream?interval=1s", "", &page.address);
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    for _ in 0..2 {
        let is_reading = |line: &String| line.contains("\"node-a\"");
        lines.find(is_reading).expect("a reading");
    }
    send(&page.child, Signal::TERM);
    let status = page.child.wait().expect("it is our child");
    assert_eq!(status.code(), Some(0));
    assert_eq!(lines.next(), None, "the stream ended with the command");
}

#[test]
fn credentials_are_added_for_the_owner_of_the_code_only() {
    let granted: &[&str] = &["/metrics", "post /api/v1/trace"];
    let reviews = Reviews::start(&[("shop-token", granted)]);
    let a = Server::with(node("node-a"), Some(reviews.reviewer()), None);
    let cluster = Cluster::start(&[place("node-a", a.address)], PODS);
    let page = Page::start(&cluster, &["web-0", "--service-account", "shop/shop"]);
    let (code, _) = page.code();
    for token in ["", "wrong", code, "shop-token"] {
        for path in ["/api/v1/snapshot", "/metrics", "/sources"] {
            assert_eq!(page.ask("GET", path, token).status, 401, "{token} {path}");
        }
    }
    assert_eq!(page.ask("GET", "/ui/session", code).status, 401);
    assert_eq!(page.ask("POST", "/ui/session", "wrong").status, 401);
    let token = page.token_at("%23%2Fvm%2Fsandbox-7c41e0");
    assert_eq!(page.ask("POST", "/ui/session", code).status, 401);
    assert_eq!(page.node(&token), "node-a");
    // The last check before a process is started; the host of the test is unknown.
    let trace = page.ask("POST", "/api/v1/trace?vm=shop/web-0", &token);
    assert!(
        trace.text().contains("memory of the node"),
        "{}",
        trace.text()
    );

    // A page without credentials passes on those of its user.
    let open = Page::start(&cluster, &["web-0"]);
    assert_eq!(open.way, "node?search=shop%2Fweb-0");
    assert_eq!(open.ask("GET", "/api/v1/snapshot", "").status, 401);
    assert_eq!(open.node("shop-token"), "node-a");
}

#[test]
fn credentials_for_an_agent_at_a_url_are_added_too() {
    let reviews = Reviews::start(&[("shop-token", &["/metrics"])]);
    let agent = Server::with(node("node-a"), Some(reviews.reviewer()), None);
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("token");
    fs::write(&file, "shop-token\n").expect("there is room");
    let url = format!("http://{}", agent.address);
    let mut command = virtlens();
    command.args(["ui", "--no-open", "--from", &url, "--token-file"]);
    command.arg(&file);
    let page = Page::of(command);
    assert_eq!(page.ask("GET", "/", "").status, 200);
    for token in ["", "shop-token"] {
        assert_eq!(page.ask("GET", "/api/v1/snapshot", token).status, 401);
    }
    assert_eq!(page.node(&page.token_at("%23%2Fnode")), "node-a");
}

#[test]
fn page_reaches_agents_with_tls_or_through_the_proxy() {
    let site = Site::new(
        "tls_server_config: {cert_file: web.crt, key_file: web.key, client_ca_file: ca.crt, \
         client_auth_type: RequireAndVerifyClientCert}\n",
    );
    site.certify("web", "virtlens.virtlens.svc");
    site.certify("reader", "reader.example");
    let (secure, plain) = (site.start(), Server::start(node("node-b")));
    let secure = Place {
        scheme: "https",
        ..place("node-a", secure.address)
    };
    let cluster = Cluster::start(&[secure, place("node-b", plain.address)], PODS);
    let path = |name| text(&site.path(name)).to_owned();
    let (ca, crt, key) = (path("ca.crt"), path("reader.crt"), path("reader.key"));
    let identity = ["--client-certificate", &crt, "--client-key", &key];
    for (ca, expected) in [(Some(&*ca), 200), (None, 502)] {
        let ca: Vec<&str> = ca.map_or(Vec::new(), |ca| vec!["--ca-file", ca]);
        let node = ["--node", "node-a"];
        let page = Page::start(&cluster, &[&node[..], &identity, &ca].concat());
        let (code, to) = page.code();
        assert_eq!(to, "%23%2Fnode");
        assert_eq!(page.ask("GET", "/api/v1/snapshot", "").status, 401);
        let answer = page.ask("POST", "/ui/session", code);
        let answer: Value = serde_json::from_str(answer.text()).expect("JSON");
        let token = answer["token"].as_str().expect("a token");
        let answer = page.ask("GET", "/api/v1/snapshot", token);
        assert_eq!(answer.status, expected, "{}", answer.text());
    }
    let page = Page::start(&cluster, &["bank/db-0", "--proxy"]);
    let code = page.code().0;
    assert_eq!(page.ask("GET", "/api/v1/snapshot", code).status, 401);

    let output = run(&cluster, &["ui", "--no-open", "-A"]);
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let expected = "name a pod, or one of these with --node: node-a, node-b";
    assert!(errors.contains(expected), "{errors}");
}
