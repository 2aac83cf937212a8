use std::time::Duration;

use tokio::time::Instant;

use super::super::queue::Queue;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn first_marked_first_taken_and_once() {
    let mut queue = Queue::default();
    for namespace in ["b", "a", "b"] {
        queue.mark(namespace);
    }
    assert_eq!(queue.take().as_deref(), Some("b"));
    assert_eq!(queue.take().as_deref(), Some("a"));
    assert_eq!(queue.take(), None);
}

#[test]
fn a_mark_while_it_runs_is_not_lost_and_never_runs_twice_at_once() {
    let mut queue = Queue::default();
    queue.mark("a");
    queue.take().unwrap();
    queue.mark("a");
    assert_eq!(queue.take(), None);
    queue.done("a", None);
    assert_eq!(queue.take().as_deref(), Some("a"));
    queue.done("a", None);
    assert_eq!(queue.take(), None);
}

#[test]
fn what_is_held_waits_whatever_happens_and_is_looked_at_afterwards() {
    let start = Instant::now();
    let mut queue = Queue::default();
    queue.mark("a");
    queue.take().unwrap();
    queue.done("a", Some(start + SECOND));
    queue.mark("a");
    queue.mark("b");
    queue.advance(start);
    assert_eq!(queue.take().as_deref(), Some("b"));
    assert_eq!(queue.take(), None);
    assert_eq!(queue.next_due(), Some(start + SECOND));
    queue.advance(start + SECOND);
    assert_eq!(queue.take().as_deref(), Some("a"));
    assert_eq!(queue.next_due(), None);
}

#[test]
fn an_earlier_timer_does_not_end_a_hold() {
    let start = Instant::now();
    let mut queue = Queue::default();
    queue.mark("a");
    queue.mark_at("a", start + SECOND);
    queue.take().unwrap();
    queue.done("a", Some(start + 2 * SECOND));
    queue.advance(start + SECOND);
    assert_eq!(queue.take(), None);
    queue.advance(start + 2 * SECOND);
    assert_eq!(queue.take().as_deref(), Some("a"));
}

#[test]
fn failures_in_a_row_are_counted_for_each() {
    let mut queue = Queue::default();
    assert_eq!(
        (queue.failed("a"), queue.failed("a"), queue.failed("b")),
        (0, 1, 0)
    );
    queue.succeeded("a");
    assert_eq!((queue.failed("a"), queue.failed("b")), (0, 1));
}
