//! Tests of the heartbeats that managers receive. They use the network, and therefore the real clock, with a short interval.

mod files;
mod support;

use std::path::PathBuf;

use prometheus_client::registry::Registry;
use rstest::rstest;
use sha2::{Digest as _, Sha256};
use testkit::metrics::Samples;
use watcher_types::WatchEvent;

use super::*;
use crate::delivery::{ChannelOptions, KcpAddress, Timeouts};
use crate::fixture::{Kcp, Received, Reply, Secret, certified};
use crate::outbox::{Options, Stored};

const OFTEN: Duration = Duration::from_millis(20);

struct Fixture {
    kcp: Kcp,
    outbox: Outbox,
    reviews: ReviewActivity,
    certificates: Certificates,
    registry: Registry,
    readiness: Readiness,
    heartbeats: Heartbeats,
    secret: Secret,
}

fn manager(name: &str) -> PathSegment {
    PathSegment::parse(name).unwrap()
}

impl Fixture {
    async fn new(configured: &[&str]) -> Self {
        Self::with(configured, |_| ()).await
    }

    async fn with(configured: &[&str], set: impl FnOnce(&mut Options)) -> Self {
        let (authority, secret) = certified();
        let kcp = Kcp::of(&authority).await;
        let boot_id = BootId::parse("life-1").unwrap();
        let certificates = secret.load();
        let channel = Channel::new(
            ChannelOptions {
                kcp_address: KcpAddress::parse(&kcp.address.to_string()).unwrap(),
                contract: PathSegment::V2,
                boot_id: boot_id.clone(),
                connections: 4,
                timeouts: Timeouts::default(),
            },
            &certificates,
        );
        let reviews = ReviewActivity::default();
        let mut spool = Options {
            managers: configured.iter().map(|name| manager(name)).collect(),
            ..Options::new(PathBuf::from("/nonexistent/spool"))
        };
        set(&mut spool);
        let (outbox, _) = Outbox::open(spool, std::time::Instant::now());
        let mut registry = Registry::with_prefix("watcher");
        let options = HeartbeatOptions {
            interval: OFTEN,
            boot_id,
            version: "1.2.3".to_owned(),
            receivers: Vec::new(),
            receivers_file: None,
            entries_file: None,
        };
        let readiness = Readiness::default();
        let mut heartbeats = Heartbeats::new(
            options,
            Arc::new(channel),
            HeartbeatSources {
                outbox: outbox.clone(),
                reviews: reviews.clone(),
                connections: Statistics::default(),
                certificates: certificates.clone(),
                readiness: readiness.clone(),
            },
            WatcherMetrics::register(&mut registry),
        );
        heartbeats.last_timeout = Duration::from_mins(1);
        Self {
            kcp,
            outbox,
            reviews,
            certificates,
            registry,
            readiness,
            heartbeats,
            secret,
        }
    }

    /// Delivers an event to `name`.
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

/// The sender and the receiver agree on the words (`watcher_types`), and each manager hears of itself.
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
    let mut expected = Heartbeat::new(BootId::parse("life-1").unwrap(), "1.2.3".into());
    (expected.reviews_seen, expected.handshake_failures) = (Some(0), Some(0));
    expected.manager_reviews_seen = Some(0);
    let certificates = fixture.certificates.report();
    let not_after = certificates.not_after.unwrap();
    let not_after = not_after.duration_since(UNIX_EPOCH).unwrap().as_secs();
    expected.certificate_not_after = Some(i64::try_from(not_after).unwrap());
    expected.bundle_sha256 = certificates.bundle_sha256;
    for (name, sequence) in [("a", 1), ("b", 0)] {
        let heartbeat = &of(&received, name)[0];
        assert!(heartbeat.ready_milliseconds.is_some());
        expected.ready_milliseconds = heartbeat.ready_milliseconds;
        (expected.sequence, expected.spool_depth) = (sequence, sequence);
        assert!(heartbeat.oldest_age_seconds < 60);
        expected.oldest_age_seconds = heartbeat.oldest_age_seconds;
        assert_eq!(*heartbeat, expected);
    }
    assert_eq!(received[0].header("kyma-watcher-sequence"), None);
    beating.abort();
}

/// Changes before the Pod is ready have no review, and the first heartbeat may cause a resync. Without probes the watcher counts as
/// ready since its start.
#[rstest]
#[case::no_probes(None, 66, 66)]
#[case::ready_before_the_delay(Some(2), 8, 6)]
#[case::ready_after_the_delay(Some(20), 26, 6)]
#[case::never_ready(Some(1_000), 66, 0)]
#[tokio::test]
async fn the_first_heartbeat_follows_the_first_successful_probe(
    #[case] ready: Option<u64>,
    #[case] sent: u64,
    #[case] ready_for: u64,
) {
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.interval = Duration::from_mins(1);
    tokio::time::pause();
    let begin = Instant::now();
    fixture.heartbeats.started = begin;
    let probes = async {
        if let Some(seconds) = ready {
            let check = fixture.readiness.check("certificate");
            assert!(!fixture.readiness.probe().0);
            sleep(Duration::from_secs(seconds)).await;
            check.ready();
            assert!(fixture.readiness.probe().0);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = probes => {}
        () = fixture.heartbeats.serving(Duration::from_secs(6)) => {}
    }
    assert_eq!(begin.elapsed().as_secs(), sent);
    assert_eq!(fixture.heartbeats.ready_for().as_secs(), ready_for);
}

/// A listener expects the first heartbeat of a new watcher within a fifth of the interval.
#[rstest]
#[case::at_the_earliest(0, 6)]
#[case::at_the_latest(u64::MAX, 12)]
fn the_first_heartbeat_is_delayed_at_random(#[case] random: u64, #[case] seconds: u64) {
    let first = first_delay(Duration::from_mins(1), random);
    assert!(
        first.abs_diff(Duration::from_secs(seconds)) < Duration::from_millis(1),
        "{first:?}"
    );
}

/// A receiver that is also a manager of events gets one heartbeat per round.
#[tokio::test]
async fn further_receivers_get_heartbeats_without_limiting_the_managers() {
    let mut fixture = Fixture::new(&[]).await;
    fixture.heartbeats.options.receivers = vec![manager("further"), manager("both")];
    fixture.delivers("both");
    assert!(fixture.outbox.admits(&manager("any")));
    fixture.heartbeats.round(false).await;
    let received = fixture.kcp.requests(2).await;
    assert_eq!(received.len(), 2);
    assert_eq!(of(&received, "further")[0].sequence, 0);
    assert_eq!(of(&received, "both")[0].sequence, 1);
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

/// A gateway also responds 404 while the route of the manager does not exist yet.
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

/// A manager that accepts an event exists on KCP, for each delivery mode.
#[tokio::test]
async fn a_manager_that_is_not_configured_gets_heartbeats_from_its_first_event_on() {
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
        fixture.heartbeats.post(&manager("a"), false).await;
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

/// The first accepted heartbeat confirms a loss, however short ago.
fn confirmed_at_once(options: &mut Options) {
    options.follow_up_delay = Duration::ZERO;
}

/// A mark is sent with each heartbeat until a heartbeat was accepted, if the change that was lost is stored by then.
#[tokio::test]
async fn a_loss_is_reported_until_acknowledged() {
    let fixture = Fixture::with(&["a"], confirmed_at_once).await;
    overflow(&fixture.outbox, "a");
    fixture
        .kcp
        .next([Reply::Status(503, ""), Reply::OK, Reply::OK]);
    for _ in 0..3 {
        fixture.heartbeats.post(&manager("a"), false).await;
    }
    let told: Vec<bool> = of(&fixture.kcp.received(), "a")
        .iter()
        .map(|it| it.resync_needed)
        .collect();
    assert_eq!(told, [true, true, false]);
}

/// Events of another manager fill the outbox, no event of this manager was ever stored, and no managers are configured.
#[tokio::test]
async fn a_manager_that_lost_its_first_event_is_asked_for_one_resync() {
    let fixture = Fixture::with(&[], confirmed_at_once).await;
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

/// The heartbeat shows whether a watcher receives reviews.
#[tokio::test(start_paused = true)]
async fn reviews_are_counted_with_the_age_of_the_last() {
    let reviews = ReviewActivity::default();
    let [a, b] = ["a", "b"].map(manager);
    assert_eq!(reviews.counts(&a), [(0, None), (0, None)]);
    reviews.record(&a);
    reviews.clone().record(&a);
    assert_eq!(reviews.counts(&a), [(2, Some(0)), (2, Some(0))]);
    tokio::time::advance(Duration::from_hours(1)).await;
    reviews.record(&b);
    assert_eq!(reviews.counts(&a), [(3, Some(0)), (2, Some(3_600))]);
    assert_eq!(reviews.counts(&b), [(3, Some(0)), (1, Some(0))]);
}

/// Any client can invent managers.
#[tokio::test(start_paused = true)]
async fn invented_managers_take_a_bounded_number_of_counts() {
    let reviews = ReviewActivity::default();
    let real = manager("real");
    for number in 0..10_000 {
        reviews.record(&real);
        reviews.record(&manager(&format!("m{number}")));
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(reviews.0.lock().unwrap().by_manager.len(), COUNTED_MANAGERS);
    assert_eq!(reviews.counts(&real)[1].0, 10_000);
}

/// The hash is the SHA-256 of the file, as `sha256sum` prints it, and follows changes of the file.
#[tokio::test]
async fn certificates_are_described() {
    let fixture = Fixture::new(&["a"]).await;
    // The age of the review does not depend on the speed of the machine.
    tokio::time::pause();
    fixture.reviews.record(&manager("b"));
    let heartbeats = &fixture.heartbeats;
    let heartbeat = heartbeats.heartbeat(&manager("a"), &ManagerReport::default(), false);
    let bundle = std::fs::read(fixture.secret.path("ca.crt")).unwrap();
    let expected = format!("{:x}", Sha256::digest(&bundle));
    assert_eq!(heartbeat.bundle_sha256, Some(expected));
    let body = serde_json::to_vec(&heartbeat).unwrap();
    assert_eq!(Heartbeat::parse(&body).unwrap(), heartbeat);
    assert_eq!(
        (heartbeat.reviews_seen, heartbeat.last_review_age_seconds),
        (Some(1), Some(0))
    );
    let own = heartbeat.manager_last_review_age_seconds;
    assert_eq!((heartbeat.manager_reviews_seen, own), (Some(0), None));
    assert!(heartbeat.certificate_not_after > Some(0));
}

/// The depth does not include delivered events, even if a follow-up event is pending. A listener that supports no further
/// keys reads the depth as before.
#[tokio::test]
async fn the_last_heartbeat_says_what_is_left() {
    let fixture = Fixture::new(&["a", "b", "c"]).await;
    let now = std::time::Instant::now();
    let _ = fixture
        .outbox
        .put(&manager("c"), &WatchEvent::default(), now);
    // This is late enough that no follow-up event is required.
    let late = now + Duration::from_mins(1);
    for item in fixture.outbox.take(late, 9) {
        fixture.outbox.delivered(&item, late);
    }
    fixture.delivers("a");
    let _ = fixture
        .outbox
        .put(&manager("b"), &WatchEvent::default(), now);
    let delivered = CancellationToken::new();
    delivered.cancel();
    fixture.readiness.drain();
    fixture.heartbeats.run(delivered).await;
    let received = fixture.kcp.received();
    assert!(of(&received, "a")[0].terminating_milliseconds.is_some());
    let left = |name| {
        let [last] = of(&received, name).try_into().unwrap();
        let Heartbeat {
            ending,
            sequence,
            spool_depth,
            follow_up_depth,
            ..
        } = last;
        (ending, sequence, spool_depth, follow_up_depth)
    };
    assert_eq!(left("a"), (true, 1, 0, 1));
    assert_eq!(left("b"), (true, 0, 1, 0));
    assert_eq!(left("c"), (true, 1, 0, 0));
}

/// A review was cut off by the end of the server, so its object is stored later than that.
#[tokio::test]
async fn the_last_heartbeat_waits_until_a_lost_change_is_stored() {
    let delay = |options: &mut Options| options.follow_up_delay = Duration::from_secs(1);
    let fixture = Fixture::with(&["a"], delay).await;
    let begun = Instant::now();
    fixture.outbox.mark_unread(&manager("a"), begun.into_std());
    let delivered = CancellationToken::new();
    delivered.cancel();
    fixture.heartbeats.run(delivered).await;
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert!(of(&fixture.kcp.received(), "a")[0].resync_needed);
}

/// One gateway accepts connections and sends no response; the other gateway refuses connections.
#[rstest]
#[case::hangs(true)]
#[case::is_closed(false)]
#[tokio::test]
async fn the_end_waits_for_the_last_heartbeat_within_a_bound(#[case] hangs: bool) {
    let mut fixture = Fixture::new(&["a"]).await;
    fixture.heartbeats.last_timeout = LAST_TIMEOUT;
    if hangs {
        fixture.kcp.otherwise(Reply::HANG);
    }
    let Fixture {
        kcp, heartbeats, ..
    } = fixture;
    let _kcp = hangs.then_some(kcp);
    let delivered = CancellationToken::new();
    delivered.cancel();
    let begun = Instant::now();
    heartbeats.run(delivered).await;
    // Less than the time limit of a request.
    let limit = LAST_TIMEOUT + Duration::from_secs(10);
    assert!(limit < Timeouts::default().answer);
    assert!(begun.elapsed() < limit);
}
