//! Users and their passwords.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Site, TLS, curl_is_here, user};
use crate::program::{Agent, Answer};

#[test]
fn valid_password_is_required() {
    if !curl_is_here("valid_password_is_required") {
        return;
    }
    let site = Site::new(&(TLS.to_owned() + &user("prom", "secret")));
    let agent = site.start();
    for (credentials, code) in [
        (Some("prom:secret"), 200),
        (Some("prom:wrong"), 401),
        (Some("prom:"), 401),
        (Some("other:secret"), 401),
        (None, 401),
    ] {
        let args: Vec<_> = credentials.map_or(Vec::new(), |given| vec!["--user", given]);
        for path in ["/metrics", "/sources", "/nothing"] {
            let expected = if code == 200 && path == "/nothing" {
                404
            } else {
                code
            };
            let got = site.curl(&agent, path, &args);
            assert_eq!(
                got.status,
                Some(expected),
                "{credentials:?} {path}: {got:?}"
            );
            let asks = got.said.contains("\r\nwww-authenticate: Basic ");
            assert_eq!(asks, code == 401, "{got:?}");
            assert_eq!(
                got.said.contains("virtlens_build_info"),
                code == 200 && path == "/metrics"
            );
        }
        // kubelet has no password.
        // The page holds no data, and asks for the password that the API requires.
        for path in ["/healthz", "/readyz", "/", "/ui/app.js", "/ui/app.css"] {
            assert_eq!(site.curl(&agent, path, &args).status, Some(200));
        }
    }
}

fn scrape(agent: &Agent, user_and_password: &str) -> Answer {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(user_and_password);
    agent.ask(
        "GET",
        "/metrics",
        &[&format!("Authorization: Basic {text}")],
    )
}

#[test]
fn password_guesses_do_not_block_scrape() {
    // At a realistic bcrypt cost.
    let hash = bcrypt::hash("secret", 10).expect("a hash");
    let site = Site::new(&format!("basic_auth_users: {{prom: {hash}}}\n"));
    let agent = site.start();
    assert_eq!(scrape(&agent, "prom:secret").status, 200);
    let over = AtomicBool::new(false);
    let guesses = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for guesser in 0..8 {
            let (agent, over, guesses) = (&agent, &over, &guesses);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let number = guesses.fetch_add(1, Ordering::Relaxed);
                    let status = scrape(agent, &format!("prom:{guesser}-{number}")).status;
                    assert!([401, 503].contains(&status), "{status}");
                }
            });
        }
        let scrapes: Vec<_> = (0..200)
            .map(|_| scrape(&agent, "prom:secret").status)
            .collect();
        let health = agent.get("/healthz").status;
        over.store(true, Ordering::Relaxed);
        assert!(scrapes.iter().all(|status| *status == 200), "{scrapes:?}");
        assert_eq!(health, 200);
    });
    assert!(guesses.into_inner() > 16, "there was no flood");
}

#[test]
fn removed_user_is_refused_after_reload() {
    let site = Site::new("");
    let users = |names: &[&str]| {
        let hash = bcrypt::hash("secret", 4).expect("a hash");
        let lines = names.iter().map(|name| format!("  {name}: {hash}\n"));
        format!("basic_auth_users:\n{}", lines.collect::<String>())
    };
    site.write("web.yaml", &users(&["a", "b"]));
    let agent = site.start();
    assert_eq!(scrape(&agent, "b:secret").status, 200);
    site.write("web.yaml", &users(&["a"]));
    agent.logged_while("reloaded the web configuration", || {
        drop(agent.get("/healthz"));
    });
    assert_eq!(scrape(&agent, "b:secret").status, 401);
    assert_eq!(scrape(&agent, "a:secret").status, 200);
}
