//! What a scrape says of watchers that fell quiet, and of their replicas.

use api::event::{BootId, HEARTBEAT_INTERVAL, Heartbeat};
use prometheus_client::registry::Registry;
use testkit::metrics::Samples;
use tokio::time::advance;

use super::RuntimeCollector;
use crate::certificate::RuntimeId;
use crate::liveness::Liveness;
use crate::queue::queue;

/// One runtime, `r`, as it is scraped.
struct Scraped {
    liveness: Liveness,
    registry: Registry,
}

impl Scraped {
    fn new() -> Self {
        let liveness = Liveness::new(10, HEARTBEAT_INTERVAL);
        let mut registry = Registry::default();
        let (sender, _events) = queue(1);
        registry.register_collector(Box::new(RuntimeCollector {
            liveness: liveness.clone(),
            queued: sender.depth(),
        }));
        Self { liveness, registry }
    }

    fn beat(&self, boot_id: &str, sequence: u64, spool_depth: u64, oldest_age_seconds: u64) {
        let heartbeat = Heartbeat {
            boot_id: BootId::parse(boot_id).unwrap(),
            sequence,
            spool_depth,
            oldest_age_seconds,
            version: "1".into(),
            resync_needed: false,
        };
        self.liveness.heartbeat(&runtime(), heartbeat);
    }

    fn event(&self, boot_id: &str, number: u64) {
        let boot_id = BootId::parse(boot_id).unwrap();
        self.liveness.event(&runtime(), Some((boot_id, number)));
    }

    /// Three intervals, in which each of `boot_ids` beats on, and the last thing that happens is a heartbeat.
    async fn three_intervals_of(&self, boot_ids: &[&str]) {
        for _ in 0..3 {
            advance(HEARTBEAT_INTERVAL).await;
            for boot_id in boot_ids {
                self.beat(boot_id, 0, 1, 2);
            }
        }
    }

    fn figure(&self, name: &str) -> Option<f64> {
        let series = format!(r#"watcher_listener_{name}{{runtime_id="r"}}"#);
        Samples::of(&self.registry).exact(&series)
    }
}

fn runtime() -> RuntimeId {
    RuntimeId::parse("r").unwrap()
}

/// What is told here of a Pod that is gone would be told until the next rollout.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_was_replaced_leaves_no_spool_behind_but_its_losses() {
    let scraped = Scraped::new();
    scraped.event("old", 1);
    scraped.event("old", 3);
    scraped.beat("old", 3, 3, 40);
    scraped.beat("new", 0, 1, 2);
    let figures = || {
        [
            "spooled_events",
            "oldest_spooled_event_age_seconds",
            "missing_events",
        ]
        .map(|name| scraped.figure(name))
    };
    assert_eq!(figures(), [Some(4.0), Some(40.0), Some(1.0)]);
    scraped.three_intervals_of(&["new"]).await;
    assert_eq!(figures(), [Some(1.0), Some(2.0), Some(1.0)]);
    scraped.three_intervals_of(&[]).await;
    // Nobody knows what waits there now.
    assert_eq!(figures(), [None, None, Some(1.0)]);
}

#[tokio::test(start_paused = true)]
async fn one_silent_replica_of_two_shows_and_a_replaced_one_does_not() {
    let scraped = Scraped::new();
    let live = || scraped.figure("watchers_alive");
    scraped.event("a", 1);
    assert_eq!(live(), None, "public watchers have no heartbeats");
    scraped.beat("a", 1, 0, 0);
    scraped.beat("b", 0, 0, 0);
    assert_eq!(live(), Some(2.0));
    scraped.three_intervals_of(&["b"]).await;
    assert_eq!(live(), Some(1.0));
    assert!(!scraped.liveness.snapshot()[0].silent);
    scraped.three_intervals_of(&["b", "c"]).await;
    assert_eq!(live(), Some(2.0));
    scraped.three_intervals_of(&["b", "d"]).await;
    assert_eq!(live(), Some(2.0), "c was replaced");
    scraped.three_intervals_of(&[]).await;
    assert_eq!(live(), Some(0.0));
}
