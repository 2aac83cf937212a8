//! Tests of the limits in total and per runtime, without waits, without loss, and in turn.

use futures::{FutureExt as _, StreamExt as _};
use rstest::rstest;

use super::EnqueueResult::{Accepted, Closed, Coalesced, Full, RuntimeLimit};
use super::*;

fn id(name: &str) -> RuntimeId {
    RuntimeId::parse(name).unwrap()
}

fn of(runtime: &str, name: &str) -> Notification {
    Notification::Changed(Event {
        runtime_id: id(runtime),
        watched: NamespacedName {
            namespace: "ns".into(),
            name: name.into(),
        },
        watched_gvk: Gvk::default(),
    })
}

fn event(name: &str) -> Notification {
    of("r", name)
}

fn resync(runtime: &str) -> Notification {
    let runtime_id = id(runtime);
    Notification::ResyncRequired { runtime_id }
}

fn unresponsive(reason: UnresponsiveReason) -> Notification {
    let runtime_id = id("r");
    Notification::Unresponsive { runtime_id, reason }
}

fn with(total: usize, per_runtime: usize) -> (Sender, Notifications) {
    queue(total, per_runtime)
}

fn next(notifications: &mut Notifications) -> Option<Notification> {
    let next = notifications.next().now_or_never();
    next.expect("a notification or the end")
}

#[test]
fn notifications_of_a_runtime_come_in_order() {
    let (sender, mut notifications) = with(16, 2);
    assert_eq!(sender.enqueue(event("a")), Accepted);
    assert_eq!(sender.enqueue(event("b")), Accepted);
    assert_eq!(next(&mut notifications), Some(event("a")));
    assert_eq!(next(&mut notifications), Some(event("b")));
}

#[test]
fn full_queue_rejects_at_once_until_there_is_capacity() {
    let (sender, mut notifications) = with(1, 5);
    assert_eq!(sender.enqueue(event("a")), Accepted);
    assert_eq!(sender.enqueue(resync("r")), Accepted);
    for rejected in [event("b"), resync("s"), of("s", "a")] {
        assert_eq!(sender.enqueue(rejected), Full);
    }
    assert_eq!(sender.depth()(), 2);
    assert_eq!(next(&mut notifications), Some(event("a")));
    assert_eq!(sender.enqueue(event("b")), Accepted);
    assert_eq!(sender.enqueue(resync("s")), Full);
    assert_eq!(next(&mut notifications), Some(resync("r")));
    assert_eq!(sender.enqueue(resync("s")), Accepted);
}

#[test]
fn flood_of_one_runtime_delays_another_by_one_notification() {
    let (sender, mut notifications) = with(1024, 64);
    let offer = |number: u32| sender.enqueue(of("flood", &number.to_string()));
    let results: Vec<_> = (0..2_000).map(offer).collect();
    assert!(results[..64].iter().all(|it| *it == Accepted));
    assert!(results[64..].iter().all(|it| *it == RuntimeLimit));
    assert_eq!(sender.enqueue(of("other", "a")), Accepted);
    // Events of a runtime do not block notifications about the whole runtime.
    assert_eq!(sender.enqueue(resync("flood")), Accepted);
    assert_eq!(next(&mut notifications), Some(of("flood", "0")));
    assert_eq!(next(&mut notifications), Some(of("other", "a")));
    assert_eq!(next(&mut notifications), Some(of("flood", "1")));
    assert_eq!(sender.depth()(), 63);
    assert_eq!(offer(64), Accepted);
    let rest = (0..64).map(|_| next(&mut notifications));
    assert_eq!(rest.last(), Some(Some(of("flood", "64"))));
    assert_eq!(sender.depth()(), 0);
    assert!(notifications.0.state().lanes.is_empty());
    assert!(notifications.0.state().turns.is_empty());
}

/// Several runtimes that their owners no longer control flood the queue together.
#[rstest]
fn flood_of_many_runtimes_leaves_capacity_for_events_and_resyncs_of_others(
    #[values(1, 16, 100)] flooding: usize,
    #[values(true, false)] in_turn: bool,
) {
    let (sender, notifications) = with(1024, 64);
    let offer = |place: usize| {
        let (runtime, name) = if in_turn {
            (place % flooding, place / flooding)
        } else {
            (place / 2_000, place % 2_000)
        };
        sender.enqueue(of(&format!("flood-{runtime}"), &name.to_string()))
    };
    let results: Vec<_> = (0..2_000 * flooding).map(offer).collect();
    let accepted = results.iter().filter(|it| **it == Accepted).count();
    assert!(
        (64.max(flooding)..=256 + flooding).contains(&accepted),
        "{accepted}"
    );
    for other in 0..500 {
        let runtime = format!("other-{other}");
        assert_eq!(sender.enqueue(of(&runtime, "a")), Accepted, "{other}");
        assert_eq!(sender.enqueue(resync(&runtime)), Accepted, "{other}");
    }
    drop(sender);
    let taken = notifications.count().now_or_never();
    assert_eq!(taken, Some(accepted + 1_000), "all that was accepted");
}

#[test]
fn queued_event_coalesces_with_equal_ones_until_it_is_taken() {
    let (sender, mut notifications) = with(1, 1);
    assert_eq!(sender.enqueue(event("a")), Accepted);
    assert_eq!(sender.enqueue(event("a")), Coalesced);
    assert_eq!(next(&mut notifications), Some(event("a")));
    assert_eq!(sender.enqueue(event("a")), Accepted);
    assert_eq!(next(&mut notifications), Some(event("a")));
    assert!(notifications.next().now_or_never().is_none());
}

#[test]
fn at_most_one_resync_and_the_latest_state_of_a_runtime_are_queued() {
    let (sender, mut notifications) = with(9, 9);
    assert!(!sender.is_queued(&resync("r")));
    assert_eq!(sender.enqueue(resync("r")), Accepted);
    assert_eq!(sender.enqueue(resync("r")), Coalesced);
    assert!(sender.is_queued(&resync("r")) && !sender.is_queued(&resync("s")));
    let missing = unresponsive(UnresponsiveReason::HeartbeatMissing);
    let recovered = Notification::Recovered {
        runtime_id: id("r"),
    };
    assert_eq!(sender.enqueue(missing), Accepted);
    assert_eq!(sender.enqueue(recovered), Coalesced);
    let failed = unresponsive(UnresponsiveReason::HandshakeFailed);
    assert_eq!(sender.enqueue(failed.clone()), Coalesced);
    assert_eq!(next(&mut notifications), Some(resync("r")));
    assert_eq!(next(&mut notifications), Some(failed));
    assert_eq!(sender.depth()(), 0);
}

#[test]
fn object_of_another_runtime_is_another_event() {
    let (sender, _notifications) = with(2, 1);
    assert_eq!(sender.enqueue(of("r", "a")), Accepted);
    assert_eq!(sender.enqueue(of("s", "a")), Accepted);
}

#[test]
fn what_was_accepted_is_delivered_after_the_listener_ended() {
    let (sender, mut notifications) = with(1, 1);
    sender.enqueue(event("a"));
    drop(sender);
    assert_eq!(next(&mut notifications), Some(event("a")));
    assert_eq!(next(&mut notifications), None);
}

#[test]
fn without_an_operator_nothing_is_accepted() {
    let (sender, notifications) = with(1, 1);
    drop(notifications);
    assert_eq!(sender.enqueue(event("a")), Closed);
}

#[tokio::test]
async fn waiting_operator_is_woken_by_a_notification_and_by_the_end() {
    let (sender, mut notifications) = with(1, 1);
    let taking =
        tokio::spawn(async move { (notifications.next().await, notifications.next().await) });
    tokio::task::yield_now().await;
    sender.enqueue(event("a"));
    tokio::task::yield_now().await;
    drop(sender);
    let taken = crate::fixture::in_time(taking).await.unwrap();
    assert_eq!(taken, (Some(event("a")), None));
}

#[cfg(feature = "kube")]
#[tokio::test]
async fn each_notification_asks_for_the_object_that_the_operator_names() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::reflector::ObjectRef;

    let (sender, notifications) = with(64, 9);
    sender.enqueue(event("a"));
    sender.enqueue(event("not wanted"));
    sender.enqueue(resync("s"));
    sender.enqueue(unresponsive(UnresponsiveReason::ReviewMissing));
    let runtime_id = id("t");
    sender.enqueue(Notification::Recovered { runtime_id });
    drop(sender);
    let requests = notifications.object_refs::<ConfigMap, _>(|runtime_id, event| {
        let wanted = event.is_none_or(|event| event.watched.name == "a");
        wanted.then(|| ObjectRef::new(runtime_id.as_str()).within("kcp-system"))
    });
    let requests: Vec<_> = requests.collect().await;
    // The order of the runtimes is r, s, t, r, r.
    let expected = ["r", "s", "t", "r"].map(|it| ObjectRef::new(it).within("kcp-system"));
    assert_eq!(requests, expected);
}
