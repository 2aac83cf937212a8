use rstest::rstest;
use watcher_types::{PathSegment, WatchEvent};

use testkit::growth::assert_proportional;

use super::*;
use crate::outbox::Item;

const CONFIRM: Duration = Duration::from_secs(5);
const ROOMY: Limits = Limits {
    keys: 100,
    memory: 1 << 20,
};

fn seconds(seconds: u64) -> MonotonicTime {
    MonotonicTime::default().after(Duration::from_secs(seconds))
}

struct Fixture {
    queue: Queue,
    manager: ManagerId,
}

impl Fixture {
    fn new() -> Self {
        Self::confirming(CONFIRM)
    }

    fn confirming(after: Duration) -> Self {
        let mut queue = Queue::new(ROOMY, after, Managers::default());
        let manager = queue
            .managers
            .register(&segment("a"), MonotonicTime::default())
            .unwrap();
        Self { queue, manager }
    }

    fn put(&mut self, key: &str, at: u64) {
        if !self.queue.touch(key.as_bytes(), seconds(at)) {
            self.queue.insert(key.as_bytes(), self.manager, seconds(at));
        }
    }

    fn take(&mut self, at: u64) -> Vec<DequeuedEvent> {
        self.queue.take_any(seconds(at), usize::MAX)
    }

    /// Returns the sequence, the number of undelivered events and the number of follow-up events.
    fn counts(&self, manager: &str) -> (u64, u64, u64) {
        let report = self.queue.report(&segment(manager), seconds(0));
        (report.sequence, report.spool_depth, report.follow_up_depth)
    }

    /// Returns the age at second 100 of the oldest undelivered event of the manager.
    fn oldest(&self) -> Option<Duration> {
        self.queue.report(&segment("a"), seconds(100)).oldest_age
    }

    fn take_one(&mut self, at: u64) -> DequeuedEvent {
        let [taken] = self.take(at).try_into().unwrap();
        taken
    }
}

impl Queue {
    /// Takes at most `limit` due events, of any manager.
    fn take_any(&mut self, now: MonotonicTime, limit: usize) -> Vec<DequeuedEvent> {
        let one = || self.take(now, |_, _| Ok(())).ok();
        let taken = std::iter::from_fn(one).take(limit);
        taken.map(|(event, ())| event).collect()
    }

    /// Checks the objects of each manager that are ordered by age against the slots.
    pub(in crate::outbox) fn assert_pending_is_complete(&self) {
        for of in self.managers.ids() {
            let mut expected = Pending::default();
            for (id, slot) in self.slots.iter().filter(|(_, it)| it.manager == of) {
                expected.insert(u32::try_from(id).unwrap(), slot.since, slot.follow_up);
            }
            let Pending { events, follow_ups } = &self.managers.get(of).pending;
            assert_eq!(
                (events, follow_ups),
                (&expected.events, &expected.follow_ups)
            );
        }
    }

    /// Returns the earliest due time of the waiting objects.
    pub(in crate::outbox) fn next_due(&self) -> Option<MonotonicTime> {
        self.due.keys().map(|(_, (due, _))| *due).min()
    }
}

impl Item {
    /// Returns an event that is in no queue, for tests that only read it.
    pub(crate) fn sample(manager: &str, sequence: u64) -> Self {
        Self {
            manager: segment(manager),
            event: WatchEvent::default(),
            sequence,
            attempt: 0,
            ticket: Ticket { slot: 0, take: 0 },
        }
    }
}

fn segment(text: &str) -> PathSegment {
    PathSegment::parse(text).unwrap()
}

fn keys(taken: &[DequeuedEvent]) -> Vec<&str> {
    let keys = taken
        .iter()
        .map(|taken| std::str::from_utf8(&taken.key).unwrap());
    keys.collect()
}

#[test]
fn the_oldest_comes_first_and_once() {
    let mut fixture = Fixture::new();
    for (key, at) in [("c", 1), ("a", 2), ("b", 2), ("c", 3)] {
        fixture.put(key, at);
    }
    let first = fixture.queue.take_any(seconds(3), 2);
    assert_eq!(keys(&first), ["c", "a"]);
    let numbers: Vec<_> = first.iter().map(|taken| taken.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(keys(&fixture.take(3)), ["b"]);
    assert_eq!(keys(&fixture.take(100)), [""; 0]);
    assert_eq!(fixture.queue.len(), 3);
}

#[test]
fn an_event_is_confirmed_after_its_last_change() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(0);
    assert_eq!(fixture.queue.delivered(taken.ticket, seconds(1)), None);
    assert_eq!(fixture.queue.next_due(), Some(seconds(5)));
    // The follow-up event is not due yet.
    assert_eq!(fixture.queue.oldest_due(seconds(4)), None);
    assert_eq!(keys(&fixture.take(4)), [""; 0]);
    let taken = fixture.take_one(5);
    assert_eq!((taken.number, taken.attempt), (2, 0));
    assert_eq!(
        fixture.queue.delivered(taken.ticket, seconds(5)).as_deref(),
        Some(&b"a"[..])
    );
    assert_eq!(
        (fixture.queue.len(), fixture.queue.usage().memory()),
        (0, 0)
    );
}

#[rstest]
#[case::told_late_enough(CONFIRM, 5, true)]
#[case::told_a_little_too_early(CONFIRM, 4, false)]
#[case::never_confirmed(Duration::ZERO, 0, true)]
fn a_late_event_confirms_itself(#[case] after: Duration, #[case] at: u64, #[case] done: bool) {
    let mut fixture = Fixture::confirming(after);
    fixture.put("a", 0);
    let taken = fixture.take_one(at);
    assert_eq!(
        fixture.queue.delivered(taken.ticket, seconds(9)).is_some(),
        done
    );
}

#[test]
fn a_change_during_the_wait_for_confirmation_is_sent_at_once() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(0);
    assert!(fixture.queue.delivered(taken.ticket, seconds(0)).is_none());
    fixture.put("a", 3);
    let taken = fixture.take_one(3);
    assert!(fixture.queue.delivered(taken.ticket, seconds(3)).is_none());
    assert_eq!(fixture.queue.next_due(), Some(seconds(8)));
}

#[test]
fn a_change_during_a_delivery_is_sent_afterwards() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(0);
    fixture.put("a", 1);
    fixture.put("a", 2);
    assert_eq!(keys(&fixture.take(9)), [""; 0]);
    assert_eq!(fixture.queue.oldest_due(seconds(2)), Some(seconds(0)));
    // The delivery is long after the first change, but the second change came after the take.
    assert!(fixture.queue.delivered(taken.ticket, seconds(9)).is_none());
    assert_eq!(fixture.queue.next_due(), Some(seconds(1)));
    assert_eq!(fixture.queue.oldest_due(seconds(9)), Some(seconds(1)));
    let taken = fixture.take_one(9);
    assert!(fixture.queue.delivered(taken.ticket, seconds(9)).is_some());
}

#[test]
fn what_has_failed_keeps_its_number_and_waits_its_time() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(0);
    fixture.queue.failed(taken.ticket, seconds(10));
    fixture.put("a", 2);
    fixture.put("b", 3);
    assert_eq!(keys(&fixture.take(9)), ["b"]);
    let again = fixture.take_one(10);
    assert_eq!((again.number, again.attempt), (1, 1));
    assert_eq!(fixture.queue.oldest_due(seconds(10)), Some(seconds(0)));
    assert!(fixture.queue.delivered(again.ticket, seconds(10)).is_some());
}

#[test]
fn an_event_that_is_rejected_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    fixture.put("b", 0);
    let [a, b] = fixture.take(0).try_into().unwrap();
    fixture.put("a", 1);
    let (key, manager) = fixture.queue.rejected(a.ticket).unwrap();
    assert_eq!((&*key, manager), (&b"a"[..], fixture.manager));
    assert_eq!(fixture.queue.rejected(a.ticket), None);
    assert_eq!(fixture.counts("a"), (2, 1, 0));
    fixture.queue.failed(b.ticket, seconds(9));
    assert_eq!(fixture.queue.drop_events(manager), [b.key]);
    assert_eq!(fixture.counts("a"), (2, 0, 0));
    assert_eq!(
        (fixture.queue.len(), fixture.queue.usage().memory()),
        (0, 0)
    );
    assert_eq!(fixture.queue.next_due(), None);
}

#[test]
fn a_ticket_counts_once() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(0);
    fixture.queue.failed(taken.ticket, seconds(1));
    let again = fixture.take_one(1);
    assert!(fixture.queue.delivered(taken.ticket, seconds(20)).is_none());
    fixture.queue.failed(taken.ticket, seconds(0));
    assert_eq!(fixture.queue.next_due(), None);
    fixture.queue.failed(again.ticket, seconds(30));
    assert_eq!(fixture.queue.next_due(), Some(seconds(30)));
}

/// A manager that `permit` rejects keeps its events, without sequence numbers and attempts, and delays no events of other
/// managers.
#[test]
fn what_is_not_let_through_stays_as_it_is() {
    let mut fixture = Fixture::new();
    let other = fixture
        .queue
        .managers
        .register(&segment("b"), seconds(0))
        .unwrap();
    fixture.put("a1", 0);
    fixture.queue.insert(b"b1", other, seconds(1));
    let b_alone = |name: &PathSegment, _| match name.as_str() {
        "b" => Ok(()),
        _ => Err(Some(seconds(7))),
    };
    let (taken, ()) = fixture.queue.take(seconds(2), b_alone).unwrap();
    assert_eq!((&*taken.key, taken.number), (&b"b1"[..], 1));
    assert_eq!(
        fixture.queue.take(seconds(2), b_alone),
        Err(Some(seconds(7)))
    );
    fixture.queue.failed(taken.ticket, seconds(5));
    assert_eq!(
        fixture.queue.take(seconds(2), b_alone),
        Err(Some(seconds(5)))
    );
    let none = |_: &PathSegment, _| Err::<(), _>(None);
    assert_eq!(fixture.queue.take(seconds(5), none), Err(None));
    let taken = fixture.queue.take_any(seconds(5), 9);
    let tries: Vec<_> = taken.iter().map(|it| (it.number, it.attempt)).collect();
    assert_eq!(
        (keys(&taken), tries),
        (vec!["a1", "b1"], vec![(1, 0), (1, 1)])
    );
}

/// The state after an outage of KCP for one manager, or after a restart.
#[test]
fn a_manager_with_many_events_delays_no_other() {
    let mut fixture = Fixture::new();
    let managers = &mut fixture.queue.managers;
    let other = managers.register(&segment("b"), seconds(0)).unwrap();
    for number in 0..100 {
        fixture.put(&format!("a{number}"), 0);
    }
    for number in 0..3 {
        let key = format!("b{number}");
        fixture
            .queue
            .insert(key.as_bytes(), other, seconds(1 + number));
    }
    let taken = fixture.queue.take_any(seconds(5), 8);
    let expected = ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4"];
    assert_eq!(keys(&taken), expected);
}

#[test]
fn a_confirmation_ahead_of_its_time_stays() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    let taken = fixture.take_one(1_000);
    assert!(fixture.queue.delivered(taken.ticket, seconds(0)).is_none());
    let taken = fixture.take_one(1_000);
    assert!(fixture.queue.delivered(taken.ticket, seconds(1)).is_none());
    assert_eq!(keys(&fixture.take(1_000_000)), [""; 0]);
    assert_eq!(fixture.queue.keys(0, 9).unwrap().len(), 1);
    // The event is not lost for this process either.
    fixture.put("a", 2);
    assert_eq!(keys(&fixture.take(2)), ["a"]);
}

#[test]
fn keys_and_memory_are_bounded() {
    let mut queue = Queue::new(
        Limits {
            keys: 2,
            memory: 1_000,
        },
        CONFIRM,
        Managers::default(),
    );
    let manager = queue
        .managers
        .register(&segment("a"), MonotonicTime::default())
        .unwrap();
    assert!(!queue.has_capacity(1_000) && queue.has_capacity(700));
    for key in ["a", "b"] {
        assert!(queue.has_capacity(1));
        queue.insert(key.as_bytes(), manager, seconds(0));
    }
    assert!(!queue.has_capacity(1));
}

#[test]
fn the_estimate_of_memory_is_not_too_small() {
    // The slot, including the doubling of its vector; the index; both orders; the headers of the key and of the allocator.
    let slot = 2 * size_of::<Option<Slot>>();
    let index = 2 * (size_of::<(Arc<[u8]>, u32)>() + 1) * 8 / 7;
    let order = size_of::<((ManagerId, Order), u32)>() * 2 + size_of::<(MonotonicTime, u32)>() * 2;
    let key = 16 + 16;
    let all = slot + index + order + key;
    assert!(all <= limits::SLOT_BYTES * 3 / 2, "{all}");
    assert!(
        slot / 2 + index / 2 + order + key <= limits::SLOT_BYTES,
        "{all}"
    );
}

#[test]
fn each_has_its_own_numbers() {
    let mut fixture = Fixture::new();
    let other = fixture
        .queue
        .managers
        .register(&segment("b"), MonotonicTime::default())
        .unwrap();
    fixture.put("a1", 0);
    fixture.queue.insert(b"b1", other, seconds(0));
    fixture.put("a2", 0);
    let numbers: Vec<_> = fixture.take(0).iter().map(|taken| taken.number).collect();
    assert_eq!(numbers, [1, 1, 2]);
    assert_eq!(fixture.counts("a"), (2, 2, 0));
    assert_eq!(fixture.counts("b"), (1, 1, 0));
    assert_eq!(fixture.counts("c"), (0, 0, 0));
}

#[test]
fn a_follow_up_is_counted_apart_until_its_object_changes_or_it_fails() {
    let mut fixture = Fixture::new();
    fixture.put("a", 0);
    assert_eq!(fixture.counts("a"), (0, 1, 0));
    let taken = fixture.take_one(0);
    assert_eq!(fixture.counts("a"), (1, 1, 0));
    assert!(fixture.queue.delivered(taken.ticket, seconds(0)).is_none());
    assert_eq!(fixture.counts("a"), (1, 0, 1));
    assert_eq!(fixture.oldest(), None);
    fixture.put("a", 1);
    assert_eq!(fixture.counts("a"), (1, 1, 0));
    assert_eq!(fixture.oldest(), Some(Duration::from_secs(99)));
    let taken = fixture.take_one(1);
    assert!(fixture.queue.delivered(taken.ticket, seconds(1)).is_none());
    // An event in progress has a sequence number that may still arrive.
    let taken = fixture.take_one(6);
    assert_eq!(fixture.counts("a"), (3, 1, 1));
    fixture.queue.failed(taken.ticket, seconds(9));
    assert_eq!(fixture.counts("a"), (3, 1, 0));
    let taken = fixture.take_one(9);
    assert!(fixture.queue.delivered(taken.ticket, seconds(9)).is_some());
    assert_eq!(fixture.counts("a"), (3, 0, 0));
    assert_eq!(fixture.queue.undelivered(), 0);
}

/// Each review waits for the lock of the queue.
#[test]
fn a_report_takes_no_longer_with_many_objects() {
    let queue = |objects: usize| {
        let mut fixture = Fixture::new();
        for number in 0..objects {
            fixture.put(&number.to_string(), 0);
        }
        // Half of the objects wait for their follow-up events.
        for taken in fixture.queue.take_any(seconds(0), objects / 2) {
            assert!(fixture.queue.delivered(taken.ticket, seconds(0)).is_none());
        }
        assert_eq!(fixture.counts("a").2, objects as u64 / 2);
        fixture.queue
    };
    assert_proportional(100, queue, |queue| {
        for _ in 0..queue.len() {
            let report = queue.report(&segment("a"), seconds(9));
            assert_eq!(report.spool_depth, queue.undelivered() as u64);
            assert_eq!(queue.oldest_due(seconds(9)), Some(seconds(0)));
        }
    });
}

/// Listeners assume that events up to `sequence - depth` are settled (`watcher_types::Heartbeat`).
#[test]
fn the_depth_covers_a_number_that_is_tried_again() {
    let mut fixture = Fixture::confirming(Duration::ZERO);
    for key in ["a", "b", "c", "d"] {
        fixture.put(key, 0);
    }
    let taken = fixture.take(0);
    for taken in &taken[1..] {
        assert!(fixture.queue.delivered(taken.ticket, seconds(0)).is_some());
    }
    fixture.queue.failed(taken[0].ticket, seconds(9));
    assert_eq!(fixture.counts("a"), (4, 4, 0));
    let again = fixture.take_one(9);
    assert!(fixture.queue.delivered(again.ticket, seconds(9)).is_some());
    assert_eq!(fixture.counts("a"), (4, 0, 0));
}
