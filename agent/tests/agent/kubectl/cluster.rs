//! An API server with pods, whose requests for agents arrive at agents of the tests.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::program::listening;

/// Port of the agents in their pods.
const PORT: u16 = 9877;

/// An agent's pod, by its name `virtlens-NODE`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: &'static str,
    pub(super) address: SocketAddr,
    pub(super) scheme: &'static str,
}

/// The API server. It ends with the test process.
pub(super) struct Cluster {
    /// The heads of the requests that it proxied.
    proxied: Arc<Mutex<Vec<String>>>,
    dir: TempDir,
}

/// The pods that are not agents: namespace, name and node.
type Pods = &'static [(&'static str, &'static str, &'static str)];

struct Objects {
    agents: BTreeMap<String, Place>,
    pods: Pods,
    proxied: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(super) fn start(agents: &[Place], pods: Pods) -> Self {
        let agents = agents.iter();
        let proxied = Arc::<Mutex<Vec<String>>>::default();
        let objects = Arc::new(Objects {
            agents: agents
                .map(|place| (format!("virtlens-{}", place.node), *place))
                .collect(),
            pods,
            proxied: Arc::clone(&proxied),
        });
        let (address, _) = listening(async move |listener| {
            while let Ok((client, _)) = listener.accept().await {
                let objects = Arc::clone(&objects);
                // A client that disconnects ends its task.
                tokio::spawn(async move { drop(serve(client, &objects).await) });
            }
        });
        let dir = tempfile::tempdir().expect("a directory");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "users": [{"name": "u", "user": {"token": "own-token"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {
                "cluster": "c", "user": "u", "namespace": "shop"}}],
        });
        fs::write(dir.path().join("config"), config.to_string()).expect("written");
        Self { proxied, dir }
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// The heads of the requests that the proxy received.
    pub(super) fn proxied(&self) -> Vec<String> {
        self.proxied.lock().expect("nobody panicked").clone()
    }
}

async fn serve(client: TcpStream, objects: &Objects) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        [
            "api",
            "v1",
            "namespaces",
            "virtlens",
            "pods",
            pod,
            "portforward",
        ] => {
            let agent = objects.agents.get(*pod).map(|place| place.address);
            let key = header(&head, "sec-websocket-key").unwrap_or_default();
            forward(client.into_inner(), &key, agent).await
        }
        [
            "api",
            "v1",
            "namespaces",
            "virtlens",
            "pods",
            pod,
            "proxy",
            rest @ ..,
        ] => {
            let (scheme, rest_of_name) = pod.split_once(':').unwrap_or_default();
            let name = rest_of_name.trim_end_matches(":9877");
            let place = objects.agents.get(name).expect("an agent");
            assert_eq!(scheme, place.scheme);
            let asked = format!("/{}?{query}", rest.join("/"));
            objects.proxied.lock().expect("nobody panicked").push(head);
            proxy(client.into_inner(), place.address, &asked).await
        }
        ["api", "v1", "namespaces"] => {
            let names = ["shop", "bank", "virtlens"];
            let items = names.map(|name| json!({"metadata": {"name": name}}));
            list(client, items).await
        }
        ["api", "v1", "namespaces", "virtlens", "pods"] => {
            let items = objects.agents.iter();
            let items = items.filter(|(_, place)| {
                !query.contains("fieldSelector") || query.ends_with(&format!("%3D{}", place.node))
            });
            list(client, items.map(|(name, place)| agent(name, place))).await
        }
        ["api", "v1", "namespaces", namespace, "pods"] => {
            let items = objects.pods.iter().filter(|pod| pod.0 == *namespace);
            list(client, items.map(pod)).await
        }
        ["api", "v1", "namespaces", namespace, "pods", name] => {
            let mut pods = objects.pods.iter();
            if let Some(found) = pods.find(|pod| (pod.0, pod.1) == (*namespace, *name)) {
                return answer(client, 200, &pod(found)).await;
            }
            let message = format!("pods \"{name}\" not found");
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                "code": 404, "reason": "NotFound", "message": message});
            answer(client, 404, &status).await
        }
        [
            "api",
            "v1",
            "namespaces",
            _,
            "serviceaccounts",
            name,
            "token",
        ] => {
            let issued = json!({"status": {"token": format!("{name}-token")}});
            answer(client, 201, &issued).await
        }
        _ => answer(client, 404, &json!({"kind": "Status", "code": 404})).await,
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let line = lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    Some(line.1.to_owned())
}

fn pod((namespace, name, node): &(&str, &str, &str)) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"nodeName": node},
           "status": {"phase": "Running"}})
}

fn agent(name: &str, place: &Place) -> Value {
    let probe = json!({"httpGet": {"scheme": place.scheme.to_uppercase(), "port": "metrics"}});
    json!({"metadata": {"name": name},
           "spec": {"nodeName": place.node, "containers": [{
               "ports": [{"name": "metrics", "containerPort": PORT}], "livenessProbe": probe}]},
           "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
}

async fn list(
    client: BufReader<TcpStream>,
    items: impl IntoIterator<Item = Value>,
) -> std::io::Result<()> {
    let items: Vec<Value> = items.into_iter().collect();
    answer(client, 200, &json!({"items": items})).await
}

async fn answer(
    mut client: BufReader<TcpStream>,
    status: u16,
    body: &Value,
) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    client.write_all((head + &body).as_bytes()).await?;
    client.shutdown().await
}

/// The proxy removes credentials, and closes the connection after the answer.
async fn proxy(mut client: TcpStream, agent: SocketAddr, target: &str) -> std::io::Result<()> {
    let mut agent = TcpStream::connect(agent).await?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    agent.write_all(request.as_bytes()).await?;
    tokio::io::copy(&mut agent, &mut client).await?;
    client.shutdown().await
}

/// A forwarded port: `v4.channel.k8s.io` (`pkg/streaming/portforward/websocket.go` of
/// k8s.io/cri-streaming 0.36). Channel 0 has the data and channel 1 an error; each begins with the port.
async fn forward(
    mut client: TcpStream,
    key: &str,
    agent: Option<SocketAddr>,
) -> std::io::Result<()> {
    let accepted = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await?;
    let (mut sink, mut stream) = WebSocketStream::from_raw_socket(client, Role::Server, None)
        .await
        .split();
    let frame = |channel: u8, bytes: &[u8]| {
        let all: Vec<u8> = [channel].iter().chain(bytes).copied().collect();
        Message::Binary(all.into())
    };
    let failed = |_| std::io::Error::other("the client has gone");
    for channel in [0, 1] {
        let port = frame(channel, &PORT.to_le_bytes());
        sink.send(port).await.map_err(failed)?;
    }
    let connected = match agent {
        Some(agent) => TcpStream::connect(agent).await,
        None => Err(std::io::ErrorKind::NotFound.into()),
    };
    let connected = match connected {
        Ok(connected) => connected,
        Err(error) => {
            let text = format!("failed to connect inside the pod: {error}");
            sink.send(frame(1, text.as_bytes())).await.map_err(failed)?;
            sink.close().await.map_err(failed)?;
            // A connection that is closed with unread data would lose the error.
            while let Some(Ok(_)) = stream.next().await {}
            return Ok(());
        }
    };
    let (mut reader, mut writer) = connected.into_split();
    let to_agent = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(bytes) = message {
                // The last answer of an agent that has closed still arrives.
                let data = bytes.get(1..).unwrap_or_default();
                drop(writer.write_all(data).await);
            }
        }
        Ok(())
    };
    let to_client = async {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = reader.read(&mut buffer).await?;
            if read == 0 {
                return sink.close().await.map_err(failed);
            }
            sink.send(frame(0, &buffer[..read])).await.map_err(failed)?;
        }
    };
    tokio::select! {
        ended = to_agent => ended,
        ended = to_client => ended,
    }
}
