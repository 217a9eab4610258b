//! Reviews of tokens by a test API server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use virtlens_kube::{Cluster, Reviewer, Right};

/// Authenticates and authorizes every token.
fn serve(client: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    loop {
        let mut length = 0;
        let mut is_access = false;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_lowercase();
            is_access |= line.contains("subjectaccessreviews");
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().expect("a number");
            }
            if line.is_empty() {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let body = if is_access {
            r#"{"status": {"allowed": true}}"#
        } else {
            r#"{"status": {"authenticated": true, "user": {"username": "prometheus"}}}"#
        };
        let mut client = client;
        write!(
            client,
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// Writes a kubeconfig whose credentials come from a program, which records each run.
fn write_config(dir: &Path, server: &str, comment: &str) {
    let program = dir.join("credentials");
    let ran = dir.join("ran");
    let credential = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "own"}}"#;
    let script = format!("echo >> {}; echo '{credential}'", ran.display());
    fs::write(&program, script).expect("written");
    let config = format!(
        "# {comment}\n{{apiVersion: v1, kind: Config, current-context: c, \
         clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
         command: sh, args: ['{}'], interactiveMode: Never}}}}}}]}}",
        program.display()
    );
    fs::write(dir.join("kubeconfig"), config).expect("written");
}

#[test]
fn client_is_created_once_until_its_files_change() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("an address").to_string();
    // They end with the test process.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(&client));
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    write_config(dir.path(), &server, "one");
    let cluster = Cluster::Kubeconfig(dir.path().join("kubeconfig"));
    let reviewer = Reviewer::start(cluster).expect("a thread");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let ran = || {
        fs::read_to_string(dir.path().join("ran"))
            .expect("it ran")
            .len()
    };
    let rights = || {
        vec![
            Right::Path("/metrics".to_owned()),
            Right::Pods("shop".to_owned()),
        ]
    };
    let ask = |token: &str| runtime.block_on(reviewer.review(token, rights()));
    let both = Ok(Some(vec![true, true]));
    assert_eq!(ask("a"), both);
    // A client requests credentials more than once during its creation.
    let of_one = ran();
    for token in ["b", "c", "d"] {
        assert_eq!(ask(token), both);
    }
    assert_eq!(ran(), of_one, "one client for all tokens");
    write_config(dir.path(), &server, "another");
    assert_eq!(ask("e"), both);
    assert_eq!(ran(), 2 * of_one, "the file has changed");
}
