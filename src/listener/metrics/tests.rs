//! Tests of the metrics of runtimes and their replicas.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rstest::rstest;
use testkit::metrics::Samples;
use tokio::time::advance;
use watcher_types::{BootId, HEARTBEAT_INTERVAL, Heartbeat};

use super::*;
use crate::queue::{Notifications, Sender, queue};

/// A listener with one runtime `r`, and the registry that is scraped.
struct Scraped {
    liveness: Liveness,
    queue: Sender,
    _notifications: Notifications,
    registry: Registry,
}

impl Scraped {
    fn new(per_runtime: bool) -> Self {
        let liveness = Liveness::new(10, HEARTBEAT_INTERVAL);
        let mut registry = Registry::default();
        let (queue, notifications) = queue(9, 9);
        let prefixed = registry.sub_registry_with_prefix("watcher_listener");
        prefixed.register_collector(Box::new(Collected {
            liveness: liveness.clone(),
            queued: Box::new(queue.depth()),
            per_runtime,
        }));
        Self {
            liveness,
            queue,
            _notifications: notifications,
            registry,
        }
    }

    fn send(&self, boot_id: &str, change: impl FnOnce(&mut Heartbeat)) {
        let mut heartbeat = Heartbeat::new(BootId::parse(boot_id).unwrap(), "1".into());
        change(&mut heartbeat);
        self.liveness.heartbeat(&runtime(), heartbeat, &self.queue);
    }

    fn beat(&self, boot_id: &str, sequence: u64, spool_depth: u64, oldest_age_seconds: u64) {
        self.send(boot_id, |heartbeat| {
            heartbeat.sequence = sequence;
            heartbeat.spool_depth = spool_depth;
            heartbeat.oldest_age_seconds = oldest_age_seconds;
        });
    }

    fn event(&self, boot_id: &str, number: u64) {
        let boot_id = BootId::parse(boot_id).unwrap();
        self.liveness.event(&runtime(), Some((boot_id, number)));
    }

    /// Sends heartbeats of `boot_ids` for three intervals, the last ones at their end.
    async fn three_intervals_of(&self, boot_ids: &[&str]) {
        for _ in 0..3 {
            advance(HEARTBEAT_INTERVAL).await;
            for boot_id in boot_ids {
                self.beat(boot_id, 0, 1, 2);
            }
        }
    }

    fn value(&self, name: &str) -> Option<f64> {
        let series = format!(r#"watcher_listener_{name}{{runtime_id="r"}}"#);
        Samples::of(&self.registry).exact(&series)
    }
}

fn runtime() -> RuntimeId {
    RuntimeId::parse("r").unwrap()
}

#[tokio::test(start_paused = true)]
async fn watcher_that_is_gone_is_not_counted_but_for_its_losses() {
    let scraped = Scraped::new(true);
    scraped.event("old", 1);
    scraped.event("old", 3);
    scraped.beat("old", 3, 3, 40);
    scraped.beat("old", 3, 0, 40);
    scraped.beat("old", 3, 3, 40);
    scraped.beat("new", 0, 1, 2);
    let values = || {
        [
            "spooled_events",
            "oldest_spooled_event_age_seconds",
            "runtime_missing_events_total",
        ]
        .map(|name| scraped.value(name))
    };
    assert_eq!(values(), [Some(4.0), Some(40.0), Some(1.0)]);
    scraped.three_intervals_of(&["new"]).await;
    assert_eq!(values(), [Some(1.0), Some(2.0), Some(1.0)]);
    scraped.three_intervals_of(&[]).await;
    assert_eq!(values(), [None, None, Some(1.0)]);
}

#[tokio::test(start_paused = true)]
async fn one_silent_replica_of_two_shows_and_a_replaced_one_does_not() {
    let scraped = Scraped::new(true);
    let alive = || scraped.value("watchers_alive");
    scraped.event("a", 1);
    assert_eq!(alive(), None, "public watchers have no heartbeats");
    scraped.beat("a", 1, 0, 0);
    scraped.beat("b", 0, 0, 0);
    assert_eq!(alive(), Some(2.0));
    scraped.three_intervals_of(&["b"]).await;
    assert_eq!(alive(), Some(1.0));
    assert!(!scraped.liveness.snapshot()[0].silent);
    scraped.three_intervals_of(&["b", "c"]).await;
    assert_eq!(alive(), Some(2.0));
    scraped.send("c", |heartbeat| heartbeat.ending = true);
    assert_eq!(alive(), Some(1.0), "it has ended");
    scraped.three_intervals_of(&[]).await;
    assert_eq!(alive(), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn reviews_and_certificates_are_shown_where_watchers_report_them() {
    let scraped = Scraped::new(true);
    advance(HEARTBEAT_INTERVAL).await;
    let values = || {
        [
            "last_review_age_seconds",
            "certificate_expiration_timestamp_seconds",
        ]
        .map(|name| scraped.value(name))
    };
    scraped.beat("old", 0, 0, 0);
    assert_eq!(values(), [None, None]);
    for (boot_id, age, expiration) in [("a", 30, 2_000), ("b", 20, 1_000)] {
        scraped.send(boot_id, |heartbeat| {
            heartbeat.reviews_seen = Some(1);
            heartbeat.last_review_age_seconds = Some(age);
            heartbeat.certificate_not_after = Some(expiration);
        });
    }
    assert_eq!(values(), [Some(20.0), Some(1_000.0)]);
}

#[rstest]
#[case::on(true)]
#[case::off(false)]
#[tokio::test(start_paused = true)]
async fn series_per_runtime_can_be_switched_off(#[case] per_runtime: bool) {
    let scraped = Scraped::new(per_runtime);
    scraped.event("a", 7);
    scraped.send("a", |heartbeat| heartbeat.resync_needed = true);
    scraped.beat("a", 9, 0, 0);
    scraped.beat("a", 9, 0, 0);
    let mut text = String::new();
    encode(&mut text, &scraped.registry).unwrap();
    assert_eq!(text.contains("runtime_id"), per_runtime, "{text}");
    let value = |name: &str| Samples::of(&scraped.registry).exact(name);
    assert_eq!(value("watcher_listener_resyncs_required_total"), Some(1.0));
    assert_eq!(value("watcher_listener_missing_events_total"), Some(2.0));
    assert_eq!(value("watcher_listener_queued_events"), Some(1.0));
}
