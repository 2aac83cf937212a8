//! Tests with many runtimes, and many requests, at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use futures::{StreamExt as _, stream};
use rstest::rstest;

use super::*;

#[tokio::test]
async fn a_thousand_runtimes_leave_nothing_behind() {
    let server = answering(BOTH).await;
    let env = Env::new(|it| {
        it.connect_timeout = Duration::from_mins(1);
        it.call_timeout = Duration::from_mins(1);
    });
    let most = AtomicUsize::new(0);
    stream::iter(0..1_000)
        .for_each_concurrent(100, async |_| {
            let remote = env.open(&server);
            remote.list(POD).await.unwrap();
            remote.list(POD).await.unwrap();
            most.fetch_max(server.open(), Ordering::SeqCst);
        })
        .await;
    assert_eq!((server.opened(), server.requests()), (1_000, 2_000));
    until("all connections are closed", || server.open() == 0).await;
    until("their tasks have ended", || {
        env.count("runtime_connections_open") == 0
    })
    .await;
    assert!(most.into_inner() > 1);
    assert_eq!(env.count("runtime_inflight_requests"), 0);
}

#[rstest]
#[case::side_by_side(H2, remote::CONCURRENT_REQUESTS)]
#[case::one_after_the_other(H1, 1)]
#[tokio::test]
async fn requests_to_one_runtime_at_the_same_time_are_bounded(
    #[case] alpn: &'static [&'static str],
    #[case] bound: usize,
) {
    let server = TlsServer::answering(speaking(alpn), |_| async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        answer(200, "{}")
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    let answers = join_all((0..100).map(|_| remote.list(POD))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!((server.busiest(), server.opened()), (bound, 1));
}
