//! What managers hear, and which are left alone. Over the wire, so on the real clock, with a short interval.

use std::path::PathBuf;

use api::event::WatchEvent;
use prometheus_client::registry::Registry;
use rstest::rstest;
use testkit::metrics::Samples;

use super::*;
use crate::delivery::{ChannelOptions, KcpAddress, Timeouts};
use crate::fixture::{Kcp, Received, Reply, Secret, certified};
use crate::outbox::{Options, Stored};

const OFTEN: Duration = Duration::from_millis(20);

struct Fixture {
    kcp: Kcp,
    outbox: Outbox,
    registry: Registry,
    heartbeats: Heartbeats,
    _secret: Secret,
}

fn manager(name: &str) -> PathSegment {
    PathSegment::parse(name).unwrap()
}

impl Fixture {
    async fn new(configured: &[&str]) -> Self {
        let (authority, secret) = certified();
        let kcp = Kcp::of(&authority).await;
        let boot_id = BootId::parse("life-1").unwrap();
        let channel = Channel::new(
            ChannelOptions {
                kcp_address: KcpAddress::parse(&kcp.address.to_string()).unwrap(),
                contract: PathSegment::V2,
                boot_id: boot_id.clone(),
                connections: 4,
                timeouts: Timeouts::default(),
            },
            &secret.load(),
        );
        let spool = Options {
            managers: configured.iter().map(|name| manager(name)).collect(),
            ..Options::new(PathBuf::from("/nonexistent/spool"))
        };
        let (outbox, _) = Outbox::open(spool, std::time::Instant::now());
        let mut registry = Registry::with_prefix("watcher");
        let mut options = HeartbeatOptions::new(boot_id, "1.2.3".into());
        assert_eq!(options.interval, Duration::from_mins(1));
        options.interval = OFTEN;
        let heartbeats = Heartbeats::new(
            options,
            Arc::new(channel),
            outbox.clone(),
            WatcherMetrics::register(&mut registry),
        );
        Self {
            kcp,
            outbox,
            registry,
            heartbeats,
            _secret: secret,
        }
    }

    /// An event is taken by `name`.
    fn delivers(&self, name: &str) {
        let now = std::time::Instant::now();
        let _ = self.outbox.put(&manager(name), &WatchEvent::default(), now);
        for item in self.outbox.take(now, 1) {
            self.outbox.delivered(&item, now);
        }
    }

    fn counted(&self, result: &str) -> Option<f64> {
        let series = format!("watcher_heartbeats_total{{result=\"{result}\"}}");
        Samples::of(&self.registry).exact(&series)
    }
}

fn of(received: &[Received], name: &str) -> Vec<Heartbeat> {
    let line = format!("POST /v2/{name}/event/heartbeat HTTP/1.1");
    let of = received.iter().filter(|it| it.line() == line);
    of.map(|it| Heartbeat::parse(it.body.as_bytes()).unwrap())
        .collect()
}

/// The sender and the receiver agree on the words (`api::event`), and each manager hears of itself.
#[tokio::test]
async fn each_manager_hears_of_its_own_events() {
    let fixture = Fixture::new(&["a", "b"]).await;
    let now = std::time::Instant::now();
    let event = WatchEvent::default();
    let _ = fixture.outbox.put(&manager("a"), &event, now);
    let [item] = fixture.outbox.take(now, 1).try_into().unwrap();
    fixture.outbox.failed(&item, now + Duration::from_hours(1));
    let beating = tokio::spawn(fixture.heartbeats.run(CancellationToken::new()));
    let received = fixture.kcp.requests(2).await;
    let mut expected = Heartbeat {
        boot_id: BootId::parse("life-1").unwrap(),
        sequence: 1,
        spool_depth: 1,
        oldest_age_seconds: 0,
        version: "1.2.3".into(),
        resync_needed: false,
    };
    assert_eq!(of(&received, "a")[0], expected);
    (expected.sequence, expected.spool_depth) = (0, 0);
    assert_eq!(of(&received, "b")[0], expected);
    assert_eq!(received[0].header("kyma-watcher-sequence"), None);
    beating.abort();
}

#[rstest]
#[case::not_found(404)]
#[case::method_not_allowed(405)]
#[tokio::test]
async fn a_public_listener_that_takes_events_is_asked_once(#[case] status: u16) {
    let fixture = Fixture::new(&[]).await;
    fixture.delivers("public");
    fixture.kcp.next([Reply::Status(status, "")]);
    let outbox = fixture.outbox.clone();
    let cancel = CancellationToken::new();
    let beating = tokio::spawn(fixture.heartbeats.run(cancel.clone()));
    fixture.kcp.requests(1).await;
    outbox.took(&manager("ours"), std::time::Instant::now());
    let received = fixture.kcp.requests(20).await;
    assert_eq!(of(&received, "public").len(), 1);
    assert!(of(&received, "ours").len() >= 19);
    cancel.cancel();
    beating.await.unwrap();
}

/// A gateway answers 404, too, while the manager's route is not there yet.
#[tokio::test]
async fn a_route_that_comes_late_is_found() {
    let fixture = Fixture::new(&["late"]).await;
    fixture
        .kcp
        .next([404, 404, 404].map(|it| Reply::Status(it, "")));
    let beating = tokio::spawn(fixture.heartbeats.run(CancellationToken::new()));
    let received = fixture.kcp.requests(8).await;
    assert_eq!(of(&received, "late").len(), 8);
    beating.abort();
}

/// KCP knows whoever takes an event, however it was delivered.
#[tokio::test]
async fn a_manager_that_is_not_configured_is_told_from_its_first_event_on() {
    let fixture = Fixture::new(&[]).await;
    fixture.delivers("b");
    let now = std::time::Instant::now();
    let (invented, event) = (manager("invented"), WatchEvent::default());
    let _ = fixture.outbox.put(&invented, &event, now);
    let outbox = fixture.outbox.clone();
    let beating = tokio::spawn(fixture.heartbeats.run(CancellationToken::new()));
    fixture.kcp.requests(2).await;
    outbox.took(&manager("c"), std::time::Instant::now());
    let received = fixture.kcp.requests(20).await;
    let told = ["b", "c", "invented"].map(|it| !of(&received, it).is_empty());
    assert_eq!(told, [true, true, false]);
    beating.abort();
}

#[rstest]
#[case::unavailable(Reply::Status(503, ""))]
#[case::unauthorized(Reply::Status(401, ""))]
#[case::cut(Reply::Cut(Vec::new()))]
#[tokio::test]
async fn another_failure_is_followed_by_the_next_heartbeat(#[case] reply: Reply) {
    let fixture = Fixture::new(&["a"]).await;
    fixture.kcp.next([reply.clone(), reply]);
    let Fixture {
        kcp,
        registry,
        heartbeats,
        ..
    } = fixture;
    let beating = tokio::spawn(heartbeats.run(CancellationToken::new()));
    kcp.requests(5).await;
    beating.abort();
    drop(registry);
}

#[tokio::test]
async fn outcomes_are_counted() {
    let fixture = Fixture::new(&["a"]).await;
    fixture.kcp.next([
        Reply::OK,
        Reply::Status(500, ""),
        Reply::OK,
        Reply::Status(404, ""),
    ]);
    for _ in 0..4 {
        fixture.heartbeats.beat(&manager("a")).await;
    }
    let counted = ["accepted", "error", "unsupported"].map(|it| fixture.counted(it));
    assert_eq!(counted, [Some(2.0), Some(1.0), Some(1.0)]);
}

/// Puts events of `name` until one is lost.
fn overflow(outbox: &Outbox, name: &str) {
    let now = std::time::Instant::now();
    let lost = (0..200_000).any(|number| {
        let mut event = WatchEvent::default();
        event.watched.name = format!("{number:0200}");
        outbox.put(&manager(name), &event, now) == Stored::Full
    });
    assert!(lost, "the outbox took everything");
}

/// A mark goes with the heartbeats until one of them was accepted.
#[tokio::test]
async fn a_loss_is_told_until_it_was_heard() {
    let fixture = Fixture::new(&["a"]).await;
    overflow(&fixture.outbox, "a");
    fixture
        .kcp
        .next([Reply::Status(503, ""), Reply::OK, Reply::OK]);
    for _ in 0..3 {
        fixture.heartbeats.beat(&manager("a")).await;
    }
    let told: Vec<bool> = of(&fixture.kcp.received(), "a")
        .iter()
        .map(|it| it.resync_needed)
        .collect();
    assert_eq!(told, [true, true, false]);
}

/// What fills the outbox is another's, nothing of this one was ever stored, and no managers are configured.
#[tokio::test]
async fn a_manager_that_lost_its_first_event_is_asked_for_one_resync() {
    let fixture = Fixture::new(&[]).await;
    fixture.delivers("a");
    overflow(&fixture.outbox, "a");
    let mut event = WatchEvent::default();
    event.watched.name = "x".repeat(250);
    let stored = fixture
        .outbox
        .put(&manager("late"), &event, std::time::Instant::now());
    assert_eq!(stored, Stored::Full);
    let beating = tokio::spawn(fixture.heartbeats.run(CancellationToken::new()));
    let received = fixture.kcp.requests(20).await;
    let told: Vec<bool> = of(&received, "late")
        .iter()
        .map(|it| it.resync_needed)
        .collect();
    assert_eq!(told, [true]);
    beating.abort();
}
