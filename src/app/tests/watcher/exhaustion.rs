//! Test with clients that occupy memory or connections and send no complete request.

use testkit::flood::assert_withstands;

use super::ports::get;
use super::process::{Folder, Running, request};
use super::review;

/// All kinds of clients at once, on all three ports: many times their limits of connections.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_probes_and_scrapes_are_answered_during_a_flood_of_all_ports() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let review = review("one");
    let (mut kept, mut sent) = (running.connect().await, 0);
    let ask = async || {
        // Like an API server, which keeps its connections, and opens further ones.
        if sent % 4 == 0 {
            kept = running.connect().await;
        }
        sent += 1;
        let answer = kept.ask(request(&review)).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let flood = assert_withstands(running.id(), running.targets(), ask).await;
    let _flood = flood.unwrap();
    for path in ["/healthz", "/readyz"] {
        let answer = get(running.health, path).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let samples = running.samples().await;
    for server in ["webhook", "health", "metrics"] {
        let of = |name| samples.exact(&format!("watcher_server_{name}{{server={server:?}}}"));
        assert!(of("connections_evicted_total") > Some(0.0), "{server}");
        assert_eq!(of("accept_errors_total"), Some(0.0), "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_is_answered_before_its_body() {
    let folder = Folder::new();
    let running = Running::start(&folder).await;
    let request = "POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n";
    let answer = running.connect().await.ask(request).await.unwrap();
    assert_eq!(answer.status, 404, "{answer:?}");
}
