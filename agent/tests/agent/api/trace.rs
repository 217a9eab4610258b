//! `/api/v1/trace`, on a host whose memory is unknown, so that nothing is traced: who may.

use virtlens_tests::fixture;

use super::reviews::Reviews;
use super::{Server, error};
use crate::program::{Agent, Answer};
use crate::web::write_host;

const TRACE: &str = "/api/v1/trace?vm=shop/web-0&for=100ms";

/// The last check of a request before a process is started.
const PERMITTED: (u16, &str) = (
    503,
    "refused to trace: the memory of the node is unknown; try again",
);

fn post(server: &Server, path: &str, token: &str) -> Answer {
    let header = format!("Authorization: Bearer {token}");
    server.ask("POST", path, &[&header])
}

#[test]
fn token_needs_post_and_the_whole_node() {
    let reviews = Reviews::start(&[
        ("prometheus", &["/metrics"]),
        ("tracer", &["/metrics", "post /api/v1/trace"]),
        ("only-post", &["post /api/v1/trace"]),
        ("tenant", &["shop", "post /api/v1/trace"]),
    ]);
    let server = Server::with(fixture::snapshot(), Some(reviews.reviewer()), None);
    for (token, expected) in [
        ("tracer", PERMITTED),
        (
            "prometheus",
            (
                403,
                "forbidden: the token's user lacks the verb post on this nonResourceURL",
            ),
        ),
        (
            "only-post",
            (
                403,
                "forbidden: traces name threads of others and are only for readers of the whole node",
            ),
        ),
        (
            "tenant",
            (
                403,
                "forbidden: traces name threads of others and are only for readers of the whole node",
            ),
        ),
        ("stale", (401, "authentication required: bearer token")),
    ] {
        let answer = post(&server, TRACE, token);
        let got = (answer.status, &*error(answer.text()));
        assert_eq!(got, expected, "{token}");
    }
    let asked = reviews.asked();
    assert!(
        asked.contains(&"post /api/v1/trace".to_owned()),
        "{asked:?}"
    );
    // A client without the right learns nothing from its parameters.
    let answer = post(&server, "/api/v1/trace?vm=unknown&x", "prometheus");
    assert_eq!(answer.status, 403);
    for (query, status, words) in [
        ("vm=unknown", 404, "VM unknown not found"),
        ("", 400, "vm: expected the VM"),
        ("vm=shop/web-0&for=1h", 400, "for: expected 100ms to 30s"),
        ("vm=shop/web-0&maxSize=65", 400, "maxSize: expected 1 to 64"),
    ] {
        let answer = post(&server, &format!("/api/v1/trace?{query}"), "tracer");
        assert_eq!(answer.status, status, "{query}");
        let error = error(answer.text());
        assert!(error.contains(words), "{query}: {error}");
    }
}

#[test]
fn agent_without_authentication_refuses_traces_with_the_remedy() {
    let server = Server::start(fixture::snapshot());
    let answer = server.ask("POST", TRACE, &[]);
    assert_eq!(answer.status, 403);
    let error = error(answer.text());
    for part in ["--web-auth kubernetes", "--web-trace-users"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn only_listed_users_may_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    write_host(dir.path());
    let hash = bcrypt::hash("secret", 4).expect("a hash");
    let users = format!("basic_auth_users: {{reader: {hash}, admin: {hash}}}\n");
    let file = dir.path().join("web.yaml");
    std::fs::write(&file, users).expect("written");
    let root = dir.path().join("host");
    let [file, root] = [&file, &root].map(|path| path.to_str().expect("text"));
    let args = ["--web-config", file, "--root", root];
    let agent = Agent::start(&[&args[..], &["--web-trace-users", "admin, other"]].concat());
    for (credentials, status, words) in [
        // admin:secret
        ("YWRtaW46c2VjcmV0", 404, "VM shop/web-0 not found"),
        // reader:secret
        ("cmVhZGVyOnNlY3JldA==", 403, "not in --web-trace-users"),
        // admin:wrong
        ("YWRtaW46d3Jvbmc=", 401, "authentication required"),
        // other:secret, who has no password.
        ("b3RoZXI6c2VjcmV0", 401, "authentication required"),
    ] {
        let header = format!("Authorization: Basic {credentials}");
        let answer = agent.ask("POST", TRACE, &[&header]);
        assert_eq!(answer.status, status, "{words}");
        let error = error(answer.text());
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn methods_and_bodies_are_refused() {
    let server = Server::start(fixture::snapshot());
    for (method, path, allowed) in [
        ("GET", TRACE, "POST"),
        ("HEAD", TRACE, "POST"),
        ("DELETE", TRACE, "POST"),
        ("POST", "/api/v1/snapshot", "GET, HEAD"),
        ("POST", "/api/v1/incidents/1-1/trace", "GET, HEAD"),
        ("POST", "/metrics", "GET, HEAD"),
    ] {
        let answer = server.ask(method, path, &[]);
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
    let answer = server.ask("POST", TRACE, &["Content-Length: 1"]);
    assert_eq!(answer.status, 413);
}
