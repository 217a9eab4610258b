//! The server, with a collection whose duration the test controls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use virtlens::http::{Authorizers, Web, serve};

use crate::api::no_traces;
use crate::readings::slow_readings;

#[test]
fn running_scrape_finishes_before_shutdown() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (readings, go, begun) = slow_readings(Duration::ZERO);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(
            listener,
            Web::default(),
            Authorizers::default(),
            readings,
            no_traces(),
            async move {
                drop(stopped.await);
            },
        ));

        let mut client = TcpStream::connect(address).await.expect("it listens");
        client
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")
            .await
            .expect("it reads");
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        stop.send(()).expect("it runs");
        tokio::task::yield_now().await;
        drop(go);

        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\nvirtlens_vms 2\n"), "{answer}");
        server.await.expect("it ends");
        assert!(
            TcpStream::connect(address).await.is_err(),
            "it no longer listens"
        );
    });
}
