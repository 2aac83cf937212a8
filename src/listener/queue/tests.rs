//! Bounded, without waiting, without loss.

use futures::{FutureExt as _, StreamExt as _};

use super::*;

fn event(name: &str) -> Event {
    Event {
        runtime_id: RuntimeId::parse("r"),
        watched: NamespacedName {
            namespace: "ns".into(),
            name: name.into(),
        },
        watched_gvk: Gvk::default(),
    }
}

fn next(events: &mut Events) -> Option<Event> {
    events.next().now_or_never().expect("the stream waits")
}

#[test]
fn events_come_in_order() {
    let (sender, mut events) = queue(2);
    assert_eq!(sender.offer(event("a")), Offer::Accepted);
    assert_eq!(sender.offer(event("b")), Offer::Accepted);
    assert_eq!(next(&mut events), Some(event("a")));
    assert_eq!(next(&mut events), Some(event("b")));
}

#[test]
fn a_full_queue_says_so_at_once_until_there_is_room() {
    let (sender, mut events) = queue(1);
    assert_eq!(sender.offer(event("a")), Offer::Accepted);
    assert_eq!(sender.offer(event("b")), Offer::Full);
    assert_eq!(sender.depth().get(), 1);
    assert_eq!(next(&mut events), Some(event("a")));
    assert_eq!(sender.offer(event("b")), Offer::Accepted);
}

#[test]
fn an_event_that_waits_stands_for_equal_ones_until_it_is_taken() {
    let (sender, mut events) = queue(1);
    assert_eq!(sender.offer(event("a")), Offer::Accepted);
    assert_eq!(sender.offer(event("a")), Offer::Coalesced);
    assert_eq!(next(&mut events), Some(event("a")));
    assert_eq!(sender.offer(event("a")), Offer::Accepted);
    assert_eq!(next(&mut events), Some(event("a")));
    assert!(events.next().now_or_never().is_none());
}

#[test]
fn another_runtimes_object_is_another_event() {
    let (sender, _events) = queue(2);
    let other = Event {
        runtime_id: None,
        ..event("a")
    };
    assert_eq!(sender.offer(event("a")), Offer::Accepted);
    assert_eq!(sender.offer(other), Offer::Accepted);
}

#[test]
fn what_was_accepted_is_delivered_after_the_listener_ended() {
    let (sender, mut events) = queue(1);
    sender.offer(event("a"));
    drop(sender);
    assert_eq!(next(&mut events), Some(event("a")));
    assert_eq!(next(&mut events), None);
}

#[test]
fn without_an_operator_nothing_is_accepted() {
    let (sender, events) = queue(1);
    drop(events);
    assert_eq!(sender.offer(event("a")), Offer::Abandoned);
}

#[tokio::test]
async fn an_operator_that_waits_is_woken_by_an_event_and_by_the_end() {
    let (sender, mut events) = queue(1);
    let taking = tokio::spawn(async move { (events.next().await, events.next().await) });
    tokio::task::yield_now().await;
    sender.offer(event("a"));
    tokio::task::yield_now().await;
    drop(sender);
    let taken = crate::fixture::in_time(taking).await.unwrap();
    assert_eq!(taken, (Some(event("a")), None));
}
