//! The agent with a real API server: the names that it gives a real VM, and the clients
//! that it authorizes.

use std::process::{Command, Stdio};

use virtlens_tests::{
    Agent, ApiServer, Minivm, TestCgroup, binary, cgroupfs_pod_path, eventually, need,
};

fn start(server: &ApiServer, args: &[&str]) -> Agent {
    let kubeconfig = server.kubeconfig().display().to_string();
    let mut command = Command::new(binary("virtlens"));
    command
        .args([
            "run",
            "--listen",
            "127.0.0.1:0",
            "--no-pin",
            "--node-name",
            "node-a",
        ])
        .args(["--min-age", "1ms", "--kubeconfig", &kubeconfig])
        .args(args)
        .stdin(Stdio::null());
    Agent::start(command)
}

/// Status and body of an answer.
fn get(agent: &Agent, path: &str, token: Option<&str>) -> (String, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "\n%{http_code}"]);
    if let Some(token) = token {
        curl.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    let output = curl.arg(format!("http://{}{path}", agent.address)).output();
    let text = String::from_utf8(output.expect("curl can be started").stdout);
    let text = text.expect("the agent answers in UTF-8");
    let (body, status) = text.rsplit_once('\n').expect("curl adds a line");
    (status.to_owned(), body.to_owned())
}

#[test]
fn metrics_keep_pod_names_during_api_server_outage() {
    const TEST: &str = "metrics_keep_pod_names_during_api_server_outage";
    let needs = [
        need::api_server(),
        need::curl(),
        need::root(),
        need::kvm(),
        need::bpf(),
    ];
    if !need::all(TEST, needs) || !need::all(TEST, [need::cpu_cgroup()]) {
        return;
    }
    let mut server = ApiServer::start();
    let uid = {
        let yaml = r#"{"spec":{"nodeName":"node-a"}}"#;
        server.ask([
            "run",
            "web",
            "--image=none",
            "--restart=Never",
            "--overrides",
            yaml,
        ]);
        server.ask(["get", "pod", "web", "-o", "jsonpath={.metadata.uid}"])
    };
    let cgroup = TestCgroup::new(&cgroupfs_pod_path(&uid));
    let guest = Minivm::start_launch(
        Minivm::launch()
            .args(["--start", "spin", "--name", "sandbox"])
            .cgroup(&cgroup),
    );
    let agent = start(&server, &[]);
    let named = "namespace=\"default\",pod=\"web\",vm=\"sandbox\"";
    let metrics = || get(&agent, "/metrics", None).1;
    let first = metrics();
    let cpu = first
        .lines()
        .filter(|line| line.starts_with("virtlens_cpu_seconds_total{"));
    let ours: Vec<&str> = cpu.filter(|line| line.contains("vm=\"sandbox\"")).collect();
    assert!(!ours.is_empty(), "{first}");
    assert!(ours.iter().all(|line| line.contains(named)), "{ours:#?}");
    let age = |text: &str| -> f64 {
        let line = text.lines().find_map(|line| {
            line.strip_prefix("virtlens_metadata_age_seconds{source=\"apiserver\"} ")
        });
        line.expect("there is a source").parse().expect("a number")
    };
    server.kill();
    let up = "virtlens_source_up{source=\"pods\"} ";
    let away = eventually("the outage is reported", || {
        Some(metrics()).filter(|text| text.contains(&format!("{up}0")))
    });
    assert!(away.contains(named) && away.contains("virtlens_cpu_seconds_total"));
    let before = age(&away);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&agent, path, None).0, "200", "{path}");
    }
    assert!(age(&metrics()) > before, "the age grows");
    server.resume();
    eventually("it is there again", || {
        Some(metrics()).filter(|text| text.contains(&format!("{up}1")))
    });
    drop(guest);
}

#[test]
fn api_server_authorizes_scrapes() {
    const TEST: &str = "api_server_authorizes_scrapes";
    if !need::all(TEST, [need::api_server(), need::curl()]) {
        return;
    }
    let mut server = ApiServer::start();
    for account in ["prometheus", "unauthorized"] {
        server.ask(["create", "serviceaccount", account, "-n", "default"]);
    }
    server.ask([
        "create",
        "clusterrole",
        "scraper",
        "--verb=get",
        "--non-resource-url=/metrics",
    ]);
    let account = "--serviceaccount=default:prometheus";
    server.ask([
        "create",
        "clusterrolebinding",
        "scraper",
        "--clusterrole=scraper",
        account,
    ]);
    let token = |account| server.ask(["create", "token", account]);
    let (prometheus, unauthorized) = (token("prometheus"), token("unauthorized"));
    let agent = start(&server, &["--web-auth", "kubernetes"]);
    let status = |path, token: Option<&str>| get(&agent, path, token).0;
    assert_eq!(status("/metrics", Some(&prometheus)), "200");
    assert_eq!(
        status("/sources", Some(&prometheus)),
        "403",
        "that path was not granted"
    );
    assert_eq!(status("/metrics", Some(&unauthorized)), "403");
    assert_eq!(status("/metrics", Some("invented")), "401");
    assert_eq!(status("/metrics", None), "401");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(path, None), "200", "kubelet has no token");
    }
    // A client that was authorized shortly before is served from the cache; others wait
    // for the server.
    let later = server.ask(["create", "token", "prometheus"]);
    server.kill();
    let status = |token: &str| get(&agent, "/metrics", Some(token)).0;
    assert_eq!(status(&prometheus), "200");
    assert_eq!(status(&later), "503");
    server.resume();
    assert_eq!(status(&later), "200");
}

/// A pod of a namespace with a VM in it, and the token of an account that may get the pods of
/// this namespace alone.
fn tenant(server: &ApiServer, namespace: &str) -> (TestCgroup, Minivm, String) {
    server.ask(["create", "namespace", namespace]);
    let yaml = r#"{"spec":{"nodeName":"node-a"}}"#;
    let (image, overrides) = ("--image=none", format!("--overrides={yaml}"));
    let restart = "--restart=Never";
    let in_namespace = format!("--namespace={namespace}");
    let ask = |args: &[&str]| {
        let args = args.iter().copied().chain([&*in_namespace]);
        server.ask(args)
    };
    ask(&["run", "web", image, restart, &overrides]);
    let uid = ask(&["get", "pod", "web", "-o", "jsonpath={.metadata.uid}"]);
    ask(&["create", "serviceaccount", "tenant"]);
    ask(&["create", "role", "tenant", "--verb=get", "--resource=pods"]);
    let account = format!("--serviceaccount={namespace}:tenant");
    ask(&["create", "rolebinding", "tenant", "--role=tenant", &account]);
    let token = ask(&["create", "token", "tenant"]);
    let cgroup = TestCgroup::new(&cgroupfs_pod_path(&uid));
    let name = format!("vm-of-{namespace}");
    let launch = Minivm::launch().args(["--start", "spin", "--name", &name]);
    let guest = Minivm::start_launch(launch.cgroup(&cgroup));
    (cgroup, guest, token)
}

#[test]
fn tenants_see_their_own_pods_through_the_api() {
    const TEST: &str = "tenants_see_their_own_pods_through_the_api";
    let needs = [
        need::api_server(),
        need::curl(),
        need::root(),
        need::kvm(),
        need::bpf(),
    ];
    if !need::all(TEST, needs) || !need::all(TEST, [need::cpu_cgroup()]) {
        return;
    }
    let server = ApiServer::start();
    let shop = tenant(&server, "shop");
    let bank = tenant(&server, "bank");
    server.ask(["create", "serviceaccount", "stranger", "-n", "default"]);
    let stranger = server.ask(["create", "token", "stranger"]);
    let agent = start(&server, &["--web-auth", "kubernetes"]);
    let ask = |path: &str, token: &str| get(&agent, path, Some(token.trim()));
    for (own, other, token) in [("shop", "bank", &shop.2), ("bank", "shop", &bank.2)] {
        let (status, body) = ask("/api/v1/snapshot", token);
        assert_eq!(status, "200", "{body}");
        let (own, other) = (format!("vm-of-{own}"), format!("vm-of-{other}"));
        assert!(body.contains(&own) && !body.contains(&other), "{body}");
        assert_eq!(ask("/metrics", token).0, "403");
        let path = format!("/api/v1/snapshot?vm={other}");
        assert_eq!(ask(&path, token).0, "404");
    }
    assert_eq!(ask("/api/v1/snapshot", &stranger).0, "403");
    assert_eq!(get(&agent, "/api/v1/snapshot", None).0, "401");
    // A right ends with its binding, for requests that are not cached yet.
    server.ask(["delete", "rolebinding", "tenant", "--namespace=shop"]);
    let again = server.ask(["create", "token", "tenant", "--namespace=shop"]);
    assert_eq!(ask("/api/v1/snapshot", &again).0, "403");
}
