//! One reading serves all concurrent requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::task::JoinSet;
use virtlens::collect::readings::{Encoding, Readings, Text};
use virtlens_export::{Format, Selection};
use virtlens_tests::fixture;

const FOREVER: Duration = Duration::from_secs(1 << 30);
const PLAIN: Encoding = Encoding {
    text: Text::Metrics(Format::Text),
    gzip: false,
};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}

/// Readings whose collections wait for a message, and the number of started collections.
pub(crate) fn slow_readings(min_age: Duration) -> (Readings, Sender<()>, Arc<AtomicUsize>) {
    let (go, wait) = channel();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let collect = move || {
        count.fetch_add(1, Ordering::SeqCst);
        // If the sender is gone, the collection does not wait.
        wait.recv().unwrap_or(());
        Arc::new(fixture::snapshot())
    };
    (
        Readings::start(collect, min_age, Selection::default(), None).expect("a thread"),
        go,
        begun,
    )
}

async fn ask_many(readings: &Readings, many: usize, go: Sender<()>) -> Vec<Bytes> {
    let mut asking = JoinSet::new();
    for _ in 0..many {
        let readings = readings.clone();
        asking.spawn(async move { readings.encoded(PLAIN).await.expect("an answer") });
    }
    // Every task runs until it waits for the answer.
    for _ in 0..many {
        tokio::task::yield_now().await;
    }
    drop(go);
    asking.join_all().await
}

#[test]
fn concurrent_scrapes_share_one_collection() {
    runtime().block_on(async {
        let (readings, go, begun) = slow_readings(FOREVER);
        let bodies = ask_many(&readings, 50, go).await;
        assert!(bodies.iter().all(|body| *body == bodies[0]));
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn waiting_scrapes_share_next_collection_without_min_age() {
    runtime().block_on(async {
        let (readings, go, begun) = slow_readings(Duration::ZERO);
        assert_eq!(ask_many(&readings, 50, go).await.len(), 50);
        // The first collection, and one for all requests that arrived during it.
        assert!(begun.load(Ordering::SeqCst) <= 2);
    });
}

#[test]
fn reading_is_cached_for_min_age() {
    for (min_age, collections) in [(FOREVER, 1), (Duration::ZERO, 3)] {
        runtime().block_on(async {
            let (readings, go, begun) = slow_readings(min_age);
            drop(go);
            readings.encoded(PLAIN).await.expect("an answer");
            readings
                .encoded(Encoding {
                    gzip: true,
                    ..PLAIN
                })
                .await
                .expect("an answer");
            readings.snapshot().await.expect("an answer");
            assert_eq!(begun.load(Ordering::SeqCst), collections, "{min_age:?}");
        });
    }
}

/// A buffer that two clients share has one address.
#[test]
fn json_of_reading_is_encoded_once_for_all_clients() {
    runtime().block_on(async {
        let (readings, go, begun) = slow_readings(FOREVER);
        drop(go);
        for (text, gzip) in [
            (Text::Json, false),
            (Text::Json, true),
            (Text::JsonLine, false),
        ] {
            let encoding = Encoding { text, gzip };
            let one = readings.encoded(encoding).await.expect("an answer");
            let other = readings.encoded(encoding).await.expect("an answer");
            assert!(std::ptr::eq(one.as_ptr(), other.as_ptr()), "{encoding:?}");
        }
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn scrapes_above_queue_limit_are_refused() {
    runtime().block_on(async {
        let (readings, go, _) = slow_readings(FOREVER);
        let mut asking = JoinSet::new();
        for _ in 0..1000 {
            let readings = readings.clone();
            asking.spawn(async move { readings.encoded(PLAIN).await.is_ok() });
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        drop(go);
        let answered = asking.join_all().await;
        assert!(answered.contains(&true) && answered.contains(&false));
    });
}

#[test]
fn running_collection_reports_its_duration() {
    runtime().block_on(async {
        let (readings, go, begun) = slow_readings(FOREVER);
        assert_eq!(readings.collecting_for(), None);
        let asking = readings.clone();
        let asked = tokio::spawn(async move { asking.snapshot().await.is_ok() });
        while begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(readings.collecting_for().is_some());
        drop(go);
        assert!(asked.await.expect("it ends"));
        assert_eq!(readings.collecting_for(), None);
    });
}
