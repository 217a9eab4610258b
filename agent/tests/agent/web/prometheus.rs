//! Prometheus itself, over TLS and with a password.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use virtlens_tests::{eventually, need};

use super::{Site, TLS, text, user};
use crate::program::Agent;

/// A Prometheus process, which ends when this is dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Prometheus {
    fn start(site: &Site, agent: &Agent) -> Self {
        let job = |name: &str, password: &str| {
            format!(
                "- job_name: {name}\n  scheme: https\n  tls_config: {{ca_file: {}}}\n  \
                 basic_auth: {{username: prom, password: {password}}}\n  \
                 static_configs: [{{targets: ['{}']}}]\n",
                text(&site.path("ca.crt")),
                agent.address
            )
        };
        let jobs = job("right", "secret") + &job("wrong", "guess");
        let config = format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}");
        site.write("prometheus.yml", &config);
        // The port was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let address = free.expect("a port");
        let child = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                text(&site.path("prometheus.yml"))
            ))
            .arg(format!("--storage.tsdb.path={}", text(&site.path("data"))))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is in PATH");
        Self { child, address }
    }

    /// Returns the answer to a query, if there is one yet.
    fn query(&self, query: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.0 200").then_some(answer)
    }
}

#[test]
fn prometheus_scrapes_over_tls_with_a_password() {
    let test = "prometheus_scrapes_over_tls_with_a_password";
    if !need::all(test, [need::promtool()]) {
        return;
    }
    let site = Site::new(&(TLS.to_owned() + &user("prom", "secret")));
    let agent = site.start();
    let prometheus = Prometheus::start(&site, &agent);
    // Selected by job: the value is the last item of each sample.
    let up = |job: &str, value: &str| {
        let answer = prometheus.query(&format!("up%7Bjob=%22{job}%22%7D"));
        answer.is_some_and(|answer| answer.contains(&format!(",\"{value}\"]")))
    };
    eventually("one job is up and the other is not", || {
        (up("right", "1") && up("wrong", "0")).then_some(())
    });
    let build = prometheus.query("virtlens_build_info").expect("it answers");
    assert!(build.contains("\"job\":\"right\""), "{build}");
}
