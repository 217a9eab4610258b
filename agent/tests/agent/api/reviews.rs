//! An API server that reviews tokens: who has which token, and what they may get.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use virtlens_kube::{Cluster, Reviewer};

/// A user's paths and namespaces.
type Rights = Vec<&'static str>;

/// The API server. It ends with the test process.
pub(crate) struct Reviews {
    /// The rights of the owner of each token.
    tokens: Arc<Mutex<BTreeMap<String, Rights>>>,
    /// The reviewed rights.
    asked: Arc<Mutex<Vec<String>>>,
    dir: TempDir,
}

impl Reviews {
    pub(crate) fn start(tokens: &[(&str, &[&'static str])]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let tokens = tokens
            .iter()
            .map(|(token, rights)| ((*token).to_owned(), rights.to_vec()));
        let tokens = Arc::new(Mutex::new(tokens.collect()));
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (known, log) = (Arc::clone(&tokens), Arc::clone(&asked));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (known, log) = (Arc::clone(&known), Arc::clone(&log));
                thread::spawn(move || serve(&client, &known, &log));
            }
        });
        let dir = tempfile::tempdir().expect("a directory");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, users: [], \
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: ''}}}}]}}"
        );
        fs::write(dir.path().join("kubeconfig"), config).expect("written");
        Self { tokens, asked, dir }
    }

    pub(crate) fn reviewer(&self) -> Reviewer {
        let cluster = Cluster::Kubeconfig(self.dir.path().join("kubeconfig"));
        Reviewer::start(cluster).expect("a thread")
    }

    pub(crate) fn revoke(&self, token: &str) {
        self.tokens.lock().expect("no panic").remove(token);
    }

    /// The rights that were reviewed since the last call, sorted: some are reviewed at once.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().expect("no panic"));
        asked.sort();
        asked
    }
}

fn serve(
    client: &TcpStream,
    tokens: &Mutex<BTreeMap<String, Rights>>,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_lowercase();
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.parse().expect("a number");
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let review: Value = serde_json::from_slice(&body).expect("JSON");
        let body = status(&review["spec"], tokens, asked).to_string();
        let mut client = client;
        write!(
            client,
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// The result of a review. The name of a user is the token.
fn status(
    spec: &Value,
    tokens: &Mutex<BTreeMap<String, Rights>>,
    asked: &Mutex<Vec<String>>,
) -> Value {
    let tokens = tokens.lock().expect("no panic");
    if let Some(token) = spec["token"].as_str() {
        let status = json!({
            "authenticated": tokens.contains_key(token),
            "user": {"username": token, "groups": ["tenants"]},
        });
        return json!({"status": status});
    }
    let url = &spec["nonResourceAttributes"];
    let path = url["path"].as_str().map(|path| match url["verb"].as_str() {
        Some("get") => path.to_owned(),
        verb => format!("{} {path}", verb.expect("a verb")),
    });
    let right = path.unwrap_or_else(|| {
        let resource = &spec["resourceAttributes"];
        let pods = (&json!("get"), &json!("pods"));
        assert_eq!((&resource["verb"], &resource["resource"]), pods);
        let namespace = resource["namespace"].as_str();
        namespace.expect("a namespace").to_owned()
    });
    let user = spec["user"].as_str().expect("a user");
    asked.lock().expect("no panic").push(right.clone());
    let allowed = tokens
        .get(user)
        .is_some_and(|rights| rights.contains(&&*right));
    json!({"status": {"allowed": allowed}})
}
