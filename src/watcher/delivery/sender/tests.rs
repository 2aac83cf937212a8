//! Tests of the order and time of requests, with a paused clock. KCP is a function. The outbox is real, in memory.

use std::future::{pending, ready};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use prometheus_client::registry::Registry;
use rstest::rstest;
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio::time::{Instant as Clock, sleep};
use watcher_types::{Gvk, NamespacedName, PathSegment, WatchEvent};

use super::*;
use crate::certificates::CertificateError;
use crate::delivery::Timeouts;
use crate::fixture::certified;
use crate::outbox;

mod logged;
mod permanent;
mod silence;
mod window;

/// Behavior of KCP for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kcp {
    Takes,
    Refuses(u16),
    Asks(u16, u64),
    Unreachable,
    Hangs,
    /// Accepts the request and sends no response until the request times out.
    TimesOut,
    TakesAfter(Duration),
}

/// One request, as KCP received it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    at: Duration,
    manager: String,
    name: String,
    sequence: u64,
}

struct Fixture {
    outbox: Outbox,
    certificates: watch::Sender<OutboundState>,
    seen: Arc<Mutex<Vec<Seen>>>,
    begun: Clock,
    cancel: CancellationToken,
    running: JoinHandle<()>,
    busiest: Arc<AtomicUsize>,
    registry: Registry,
}

impl Fixture {
    fn new(kcp: impl Fn(&Seen) -> Kcp + Send + Sync + 'static) -> Self {
        Self::confirming(Duration::ZERO, kcp)
    }

    fn confirming(
        follow_up_delay: Duration,
        kcp: impl Fn(&Seen) -> Kcp + Send + Sync + 'static,
    ) -> Self {
        let mut options = options();
        options.follow_up_delay = follow_up_delay;
        Self::opening(options, kcp)
    }

    fn configured(managers: &[&str], kcp: impl Fn(&Seen) -> Kcp + Send + Sync + 'static) -> Self {
        let mut options = options();
        let managers = managers.iter().map(|it| PathSegment::parse(it).unwrap());
        options.managers = managers.collect();
        Self::opening(options, kcp)
    }

    fn opening(
        options: outbox::Options,
        kcp: impl Fn(&Seen) -> Kcp + Send + Sync + 'static,
    ) -> Self {
        let (outbox, _) =
            tracing::subscriber::with_default(tracing::subscriber::NoSubscriber::default(), || {
                Outbox::open(options, now())
            });
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let begun = Clock::now();
        let busiest = Arc::<AtomicUsize>::default();
        let (noted, most, busy) = (seen.clone(), busiest.clone(), Arc::<AtomicUsize>::default());
        let post = move |item: &Item| -> BoxFuture<'static, _> {
            let seen = Seen {
                at: begun.elapsed(),
                manager: item.manager.to_string(),
                name: item.event.watched.name.clone(),
                sequence: item.sequence,
            };
            let answer = kcp(&seen);
            noted.lock().unwrap().push(seen);
            let busy = busy.clone();
            most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            async move {
                let result = answer_of(answer).await;
                busy.fetch_sub(1, Ordering::SeqCst);
                result
            }
            .boxed()
        };
        let mut registry = Registry::with_prefix("watcher");
        let metrics = WatcherMetrics::register(&mut registry);
        let certificates = watch::Sender::new(unread());
        let sender = Sender {
            post: Box::new(post),
            certificates: certificates.subscribe(),
            outbox: outbox.clone(),
            metrics,
        };
        let cancel = CancellationToken::new();
        let running = tokio::spawn(sender.run(cancel.clone()));
        Self {
            outbox,
            certificates,
            seen,
            begun,
            cancel,
            running,
            busiest,
            registry,
        }
    }

    fn put(&self, manager: &str, name: &str) {
        let manager = PathSegment::parse(manager).unwrap();
        let event = WatchEvent {
            watched: NamespacedName {
                namespace: "ns".into(),
                name: name.into(),
            },
            watched_gvk: Gvk::default(),
        };
        let _ = self.outbox.put(&manager, &event, now());
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn of(&self, name: &str) -> Vec<Duration> {
        let seen = self.seen().into_iter().filter(|it| it.name == name);
        seen.map(|it| it.at).collect()
    }

    /// Returns whether `manager` must get a request for a resync.
    fn lost(&self, manager: &str) -> bool {
        let manager = PathSegment::parse(manager).unwrap();
        let report = self.outbox.manager_report(&manager, now());
        report.resync.is_some()
    }

    fn depth(&self) -> usize {
        self.outbox.report(now()).depth
    }

    fn metric(&self, series: &str) -> Option<f64> {
        Samples::of(&self.registry).exact(series)
    }

    async fn end(self) -> Duration {
        let begun = Clock::now();
        self.cancel.cancel();
        self.running.await.unwrap();
        begun.elapsed()
    }
}

/// Returns options of an outbox in memory, without follow-up events.
fn options() -> outbox::Options {
    let mut options = outbox::Options::new(PathBuf::from("/nonexistent/spool"));
    options.follow_up_delay = Duration::ZERO;
    options
}

fn unread() -> OutboundState {
    Err(Arc::new(CertificateError::Unread))
}

fn good() -> OutboundState {
    let (_, secret) = certified();
    secret.load().outbound().borrow().clone()
}

async fn answer_of(kcp: Kcp) -> Result<(), PostError> {
    match kcp {
        Kcp::Takes => ready(Ok(())).await,
        Kcp::TakesAfter(wait) => {
            sleep(wait).await;
            Ok(())
        }
        Kcp::Hangs => pending().await,
        Kcp::TimesOut => {
            sleep(Timeouts::default().answer).await;
            Err(PostError::NoResponse)
        }
        Kcp::Refuses(status) => Err(PostError::Refused {
            status,
            retry_after: None,
        }),
        Kcp::Asks(status, seconds) => Err(PostError::Refused {
            status,
            retry_after: Some(Duration::from_secs(seconds)),
        }),
        Kcp::Unreachable => Err(PostError::Unreachable("connection refused".into())),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_is_put_is_delivered_at_once_and_counted() {
    let fixture = Fixture::new(|_| Kcp::Takes);
    sleep(SECOND).await;
    fixture.put("a", "one");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.of("one"), [SECOND]);
    assert_eq!((fixture.depth(), fixture.seen()[0].sequence), (0, 1));
    assert_eq!(fixture.metric("watcher_delivered_events_total"), Some(1.0));
}

/// The public watcher drops an event after three attempts. This watcher keeps it until KCP accepts it. Dropped events are
/// tested in `permanent`.
#[rstest]
#[case::broken(Kcp::Refuses(500))]
#[case::unreachable(Kcp::Unreachable)]
#[case::moved(Kcp::Refuses(301))]
#[tokio::test(start_paused = true)]
async fn an_event_is_tried_until_it_is_taken(#[case] failure: Kcp) {
    let fixture = Fixture::new(move |seen| {
        if seen.at < Duration::from_hours(1) {
            failure
        } else {
            Kcp::Takes
        }
    });
    fixture.put("a", "one");
    sleep(Duration::from_mins(62)).await;
    let times = fixture.of("one");
    let waits: Vec<f64> = times
        .windows(2)
        .map(|it| it[1].abs_diff(it[0]).as_secs_f64())
        .collect();
    // The maximum delay is half a second, and doubles up to a minute. Each delay is at least half of the maximum.
    let mut longest: f64 = 0.5;
    for wait in &waits {
        assert!(
            (longest / 2.0..=longest + 0.01).contains(wait),
            "{wait} of {longest}"
        );
        longest = (longest * 2.0).min(60.0);
    }
    assert_eq!(fixture.depth(), 0);
    // All n attempts except the last have failed.
    let failed = fixture.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}");
    let attempts = u32::try_from(waits.len()).unwrap();
    assert_eq!(failed, Some(f64::from(attempts)));
    let numbers = fixture.seen().into_iter().map(|it| it.sequence);
    assert!(
        numbers.clone().all(|it| it == 1),
        "{:?}",
        numbers.collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_costs_one_attempt_per_back_off_and_no_event() {
    let outage = Duration::from_hours(1);
    let fixture = Fixture::new(move |seen| {
        if seen.at < outage {
            Kcp::Unreachable
        } else {
            Kcp::Takes
        }
    });
    for number in 0..1_000 {
        fixture.put("a", &format!("n{number}"));
    }
    sleep(outage).await;
    let attempts = fixture.seen().len();
    // The 16 requests of the first window, then one request in 30 to 60 s.
    assert!((68..=148).contains(&attempts), "{attempts}");
    sleep(Duration::from_secs(62)).await;
    assert_eq!(fixture.depth(), 0);
    assert_eq!(
        fixture.metric("watcher_delivered_events_total"),
        Some(1_000.0)
    );
}

/// A gateway rejects an expired certificate of the watcher in the handshake. The next certificate must not wait for a minute.
#[tokio::test(start_paused = true)]
async fn new_certificates_are_tried_at_once() {
    let mended = Duration::from_hours(1);
    // Requests to unknown managers are spaced.
    let fixture = Fixture::configured(&["a"], move |seen| {
        if seen.at < mended {
            Kcp::Unreachable
        } else {
            Kcp::Takes
        }
    });
    fixture.put("a", "one");
    sleep(mended.saturating_sub(SECOND)).await;
    let attempts = fixture.of("one").len();
    fixture.certificates.send_modify(|it| *it = good());
    sleep(SECOND).await;
    let early = fixture.of("one").len() - attempts;
    // The first certificates did not work either: one immediate attempt, then the backoff from its first value.
    assert!((2..=4).contains(&early), "{early} attempts");
    fixture.certificates.send_modify(|it| *it = unread());
    fixture.certificates.send_modify(|it| *it = good());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.of("one").last(), Some(&mended));
    assert_eq!(fixture.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn certificates_that_cannot_be_read_bring_no_attempt_forward() {
    let fixture = Fixture::new(|_| Kcp::Unreachable);
    fixture.put("a", "one");
    sleep(Duration::from_hours(1)).await;
    let attempts = fixture.of("one").len();
    for _ in 0..1_000 {
        fixture.certificates.send_modify(|it| *it = unread());
        sleep(Duration::from_millis(1)).await;
    }
    assert!(fixture.of("one").len() - attempts <= 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_kcp_refuses_holds_up_no_other() {
    // Requests to unknown managers are spaced.
    let fixture = Fixture::configured(&["a"], |seen| match seen.name.as_str() {
        "large" => Kcp::Refuses(413),
        _ => Kcp::Takes,
    });
    fixture.put("a", "large");
    for number in 0..100 {
        sleep(SECOND).await;
        let name = format!("n{number}");
        let put = fixture.begun.elapsed();
        fixture.put("a", &name);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(fixture.of(&name), [put]);
    }
    assert_eq!(fixture.depth(), 1);
    assert!(
        (5..=12).contains(&fixture.of("large").len()),
        "{:?}",
        fixture.of("large")
    );
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_fails_holds_up_no_other_and_is_spared() {
    let fixture = Fixture::new(|seen| match seen.manager.as_str() {
        "down" => Kcp::Refuses(503),
        _ => Kcp::Takes,
    });
    for number in 0..10_000 {
        fixture.put("down", &format!("d{number}"));
    }
    for number in 0..100 {
        fixture.put("up", &format!("u{number}"));
    }
    sleep(Duration::from_mins(10)).await;
    let (down, up): (Vec<_>, Vec<_>) = fixture
        .seen()
        .into_iter()
        .partition(|it| it.manager == "down");
    assert_eq!((up.len(), fixture.depth()), (100, 10_000));
    assert!(up.iter().all(|it| it.at < 10 * SECOND));
    assert!((10..=60).contains(&down.len()), "{}", down.len());
}

#[rstest]
#[case::slow_down(429)]
#[case::unavailable(503)]
#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_by_the_manager_it_came_from(#[case] status: u16) {
    let fixture = Fixture::new(move |seen| match (seen.manager.as_str(), seen.at) {
        ("busy", at) if at < SECOND => Kcp::Asks(status, 30),
        _ => Kcp::Takes,
    });
    fixture.put("busy", "first");
    sleep(2 * SECOND).await;
    fixture.put("busy", "second");
    fixture.put("calm", "third");
    sleep(Duration::from_mins(1)).await;
    let [early, late] = fixture.of("first").try_into().unwrap();
    assert_eq!(early, Duration::ZERO);
    assert!((30 * SECOND..=38 * SECOND).contains(&late), "{late:?}");
    let [second] = fixture.of("second").try_into().unwrap();
    assert!((30 * SECOND..=39 * SECOND).contains(&second), "{second:?}");
    assert_eq!(fixture.of("third"), [2 * SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_what_waits_confirmations_too() {
    let fixture = Fixture::confirming(5 * SECOND, |seen| match (seen.name.as_str(), seen.at) {
        ("refused", at) if at < SECOND => Kcp::Refuses(400),
        _ => Kcp::Takes,
    });
    fixture.put("a", "refused");
    sleep(Duration::from_millis(50)).await;
    fixture.put("a", "one");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        (fixture.of("one").len(), fixture.of("refused").len()),
        (1, 1)
    );
    let (outbox, seen) = (fixture.outbox.clone(), fixture.seen.clone());
    assert!(fixture.end().await < SECOND);
    let of = |name| {
        seen.lock()
            .unwrap()
            .iter()
            .filter(|it| it.name == name)
            .count()
    };
    // The rejected event stays for the next process, and so does the follow-up event, which was sent too early.
    assert_eq!((of("one"), of("refused")), (2, 2));
    assert_eq!(outbox.report(now()).depth, 2);
}

#[rstest]
#[case::hanging(Kcp::Hangs, Duration::from_secs(5))]
#[case::unreachable(Kcp::Unreachable, Duration::ZERO)]
#[case::refusing(Kcp::Refuses(503), Duration::ZERO)]
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_in_its_time_and_leaves_the_rest_in_the_spool(
    #[case] kcp: Kcp,
    #[case] takes: Duration,
) {
    let fixture = Fixture::new(move |_| kcp);
    for number in 0..1_000 {
        fixture.put("a", &format!("n{number}"));
    }
    sleep(10 * SECOND).await;
    let (outbox, seen) = (fixture.outbox.clone(), fixture.seen.clone());
    let before = seen.lock().unwrap().len();
    assert_eq!(fixture.end().await, takes);
    assert_eq!(outbox.report(now()).depth, 1_000);
    let more = seen.lock().unwrap().len() - before;
    assert!(more <= 17, "{more} attempts");
}
