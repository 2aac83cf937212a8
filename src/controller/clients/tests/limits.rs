//! Tests of the permits of the limiter.

use std::future::pending;
use std::sync::Arc;

use futures::FutureExt as _;
use prometheus_client::metrics::gauge::Gauge;

use super::*;

const SLOW_AFTER: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn slow_holders_release_permits_until_the_second_set_is_used_up() {
    let waiting = Gauge::default();
    let limiter = Arc::new(RequestLimiter::new(2, SLOW_AFTER, waiting.clone()));
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let permit = limiter.acquire().await;
        let limiter = limiter.clone();
        stalled.push(tokio::spawn(async move {
            limiter.run(permit, pending::<()>()).await;
        }));
    }
    assert!(limiter.acquire().now_or_never().is_none());
    // Two tasks hold a permit of the second set, two tasks keep their first permit.
    tokio::time::sleep(SLOW_AFTER * 10).await;
    assert!(limiter.acquire().now_or_never().is_none());
    let asking = tokio::spawn({
        let limiter = Arc::clone(&limiter);
        async move { limiter.acquire().await }
    });
    tokio::task::yield_now().await;
    assert_eq!(waiting.get(), 1, "those that gave up do not wait");
    stalled.pop().unwrap().abort();
    let _permit = asking.await.unwrap();
    assert_eq!(waiting.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn permits_are_given_in_the_order_of_asking() {
    let limiter = Arc::new(RequestLimiter::new(1, SLOW_AFTER, Gauge::default()));
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    let first = limiter.acquire().await;
    for index in 0..20 {
        let limiter = limiter.clone();
        let served = served.clone();
        tokio::spawn(async move {
            let permit = limiter.acquire().await;
            served.send(index).unwrap();
            limiter
                .run(permit, tokio::time::sleep(SLOW_AFTER / 10))
                .await;
        });
        tokio::task::yield_now().await;
    }
    drop(first);
    for index in 0..20 {
        assert_eq!(order.recv().await, Some(index));
    }
}
