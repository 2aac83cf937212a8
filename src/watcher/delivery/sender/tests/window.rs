//! The number of requests in progress, of one manager and of all managers.

use super::*;

/// A response takes 100 ms where KCP is in another region.
const ROUND_TRIP: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn backlog_of_one_manager_is_delivered_with_16_requests_at_a_time() {
    let fixture = Fixture::configured(&["a"], |_| Kcp::TakesAfter(ROUND_TRIP));
    for number in 0..1_600 {
        fixture.put("a", &format!("n{number}"));
    }
    sleep(10 * SECOND + ROUND_TRIP / 2).await;
    assert_eq!(
        (fixture.busiest.load(Ordering::SeqCst), fixture.depth()),
        (16, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_delivers_800_events_of_one_manager() {
    let fixture = Fixture::configured(&["a"], |_| Kcp::TakesAfter(ROUND_TRIP));
    let outbox = fixture.outbox.clone();
    for number in 0..1_000 {
        fixture.put("a", &format!("n{number}"));
    }
    assert_eq!(fixture.end().await, DRAIN_TIMEOUT);
    let left = outbox.report(now()).depth;
    // The last requests and the time limit end at the same time.
    assert!((200..=216).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn managers_that_do_not_answer_leave_requests_to_others() {
    let managers = ["a", "b", "c", "d", "well"];
    let fixture = Fixture::configured(&managers, |seen| match seen.manager.as_str() {
        "well" => Kcp::Takes,
        _ => Kcp::TimesOut,
    });
    for number in 0..200 {
        fixture.put(managers[number % 4], &format!("n{number}"));
    }
    sleep(SECOND).await;
    fixture.put("well", "one");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.of("one"), [SECOND]);
}

#[tokio::test(start_paused = true)]
async fn a_post_that_hangs_holds_up_no_other() {
    let fixture = Fixture::new(|seen| match seen.name.as_str() {
        "stuck" => Kcp::Hangs,
        _ => Kcp::Takes,
    });
    fixture.put("a", "stuck");
    sleep(SECOND).await;
    fixture.put("a", "other");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.of("other"), [SECOND]);
}
