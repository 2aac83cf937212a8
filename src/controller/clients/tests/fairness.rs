//! Many runtimes at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::future::join_all;
use futures::{StreamExt as _, stream};

use super::*;

async fn stalling() -> TlsServer {
    let server = TlsServer::answering(speaking(BOTH), |_| std::future::pending());
    server.await.unwrap()
}

#[tokio::test]
async fn a_thousand_runtimes_leave_nothing_behind() {
    let server = answering(BOTH).await;
    let env = Env::new(|it| it.window = 64);
    let most = AtomicUsize::new(0);
    stream::iter(0..1_000)
        .for_each_concurrent(100, async |index| {
            let runtime = RuntimeId::new(&index.to_string());
            let remote = env.fleet.open(&runtime, access(&server), "1").unwrap();
            remote.list(POD).await.unwrap();
            remote.list(POD).await.unwrap();
            most.fetch_max(server.open(), Ordering::SeqCst);
        })
        .await;
    assert_eq!((server.opened(), server.requests()), (1_000, 2_000));
    until("all connections are closed", || server.open() == 0).await;
    until("their tasks are gone", || {
        env.count("runtime_connections_open") == 0
    })
    .await;
    assert!(most.into_inner() > 1);
    assert_eq!(env.count("runtime_inflight_requests"), 0);
    assert_eq!(
        env.fleet.0.configurations.count(),
        FleetOptions::default().resumable
    );
    let waits = env.count("runtime_request_queue_duration_seconds_count");
    assert_eq!(waits, 2_000);
}

#[tokio::test]
async fn stalled_runtimes_delay_no_other() {
    let (healthy, stalled) = (answering(BOTH).await, stalling().await);
    let env = Env::new(|it| {
        it.window = 4;
        it.patience = Duration::from_millis(50);
        it.call_timeout = Duration::from_mins(1);
    });
    let mut waiting = Vec::new();
    for index in 0..4 {
        let runtime = RuntimeId::new(&format!("stalled-{index}"));
        let remote = env.fleet.open(&runtime, access(&stalled), "1").unwrap();
        waiting.push(tokio::spawn(async move { remote.list(POD).await }));
    }
    until("the window is full of them", || stalled.requests() == 4).await;
    let begun = Instant::now();
    let calls = (0..20).map(|index| {
        let runtime = RuntimeId::new(&index.to_string());
        let remote = env.fleet.open(&runtime, access(&healthy), "1").unwrap();
        async move { remote.list(POD).await.unwrap() }
    });
    join_all(calls).await;
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(env.count("runtime_inflight_requests"), 4);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_runtime_with_many_calls_delays_another_by_two_calls_at_most() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = order.clone();
    let server = TlsServer::answering(speaking(BOTH), move |request| {
        noted.lock().unwrap().push(request.uri().path().to_owned());
        async { answer(200, "{}") }
    })
    .await
    .unwrap();
    let env = Env::new(|it| it.window = 1);
    let [greedy, modest] = ["greedy", "modest"].map(|it| {
        let runtime = RuntimeId::new(it);
        env.fleet.open(&runtime, access(&server), "1").unwrap()
    });
    let many = join_all((0..50).map(|_| greedy.list("/greedy")));
    // Polled after the fifty: all of them have asked before.
    let (many, single) = tokio::join!(many, modest.list("/modest"));
    assert!(many.iter().all(Result::is_ok) && single.is_ok());
    let order = order.lock().unwrap();
    let place = order.iter().position(|it| it == "/modest").unwrap();
    assert!(place <= 2, "{place}");
}

#[tokio::test]
async fn the_rate_of_a_runtime_holds_over_passes() {
    let server = answering(BOTH).await;
    let interval = Duration::from_millis(50);
    let env = Env::new(|it| it.per_runtime_rate = Rate { interval, burst: 2 });
    let begun = Instant::now();
    for _ in 0..6 {
        env.open(&server).list(POD).await.unwrap();
    }
    assert!(begun.elapsed() >= interval * 4, "{:?}", begun.elapsed());
}
