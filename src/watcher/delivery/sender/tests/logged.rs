//! The log contains a message when KCP or a manager starts to fail or recovers, and not for each event.

use tracing::Level;

use super::*;
use testkit::logs::Logs;

/// Names in events are customer data.
const CANARY: &str = "S3cr3t-";

fn put_many(fixture: &Fixture, manager: &str, names: usize) {
    for number in 0..names {
        fixture.put(manager, &format!("{CANARY}{number}"));
    }
}

#[rstest]
#[case::unreachable(Kcp::Unreachable)]
#[case::unavailable(Kcp::Refuses(503))]
#[case::unauthorized(Kcp::Refuses(401))]
#[tokio::test(start_paused = true)]
async fn an_outage_is_two_lines_however_many_events_wait(#[case] failure: Kcp) {
    let logs = Logs::of(Level::INFO);
    let outage = Duration::from_hours(3);
    let fixture = Fixture::configured(&["a"], move |seen| {
        if seen.at < outage {
            failure
        } else {
            Kcp::Takes
        }
    });
    put_many(&fixture, "a", 1_000);
    sleep(outage + Duration::from_mins(3)).await;
    assert_eq!(fixture.depth(), 0);
    let lines = logs.lines();
    assert_eq!((lines.len(), logs.alarms()), (2, 1), "{lines:#?}");
    assert!(!lines.concat().contains(CANARY), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_without_a_route_is_three_lines_in_six_hours() {
    let logs = Logs::of(Level::INFO);
    let fixture = Fixture::configured(&["a"], |_| Kcp::Refuses(404));
    for _ in 0..6 {
        put_many(&fixture, "a", 100);
        sleep(Duration::from_hours(1)).await;
    }
    let lines = logs.lines();
    assert!((2..=3).contains(&lines.len()), "{lines:#?}");
    assert!(lines.concat().contains("manager=a"), "{lines:#?}");
    assert!(!lines.concat().contains(CANARY), "{lines:#?}");
}

/// Failing events of one manager alternate with successful events.
#[tokio::test(start_paused = true)]
async fn a_manager_that_takes_some_events_is_logged_at_a_bounded_rate() {
    let logs = Logs::of(Level::INFO);
    let fixture = Fixture::configured(&["a"], |seen| match seen.sequence % 2 {
        0 => Kcp::Refuses(500),
        _ => Kcp::Takes,
    });
    for _ in 0..60 {
        put_many(&fixture, "a", 10);
        sleep(SECOND).await;
    }
    assert!(logs.lines().len() <= 2, "{:#?}", logs.lines());
}

/// Names that are not configured may be invented by a client.
#[tokio::test(start_paused = true)]
async fn invented_managers_are_not_named_and_cost_a_bounded_number_of_lines() {
    let logs = Logs::of(Level::DEBUG);
    let fixture = Fixture::new(|_| Kcp::Refuses(404));
    for round in 0..60 {
        for number in 0..100 {
            put_many(&fixture, &format!("{CANARY}{round}-{number}"), 2);
        }
        sleep(Duration::from_mins(1)).await;
    }
    let lines = logs.lines();
    assert!((1..=14).contains(&lines.len()), "{}", lines.len());
    assert!(!lines.concat().contains(CANARY), "{lines:#?}");
}
