//! Responses that mean that an event will never be accepted: retries end, and the manager gets a request for a resync.

use super::*;

/// A flood of names for which KCP has no route.
#[tokio::test(start_paused = true)]
async fn invented_managers_answered_404_cost_a_bounded_number_of_posts() {
    let fixture = Fixture::new(|_| Kcp::Refuses(404));
    for number in 0..300 {
        for name in ["one", "two"] {
            fixture.put(&format!("m{number}"), name);
        }
    }
    sleep(Duration::from_mins(62)).await;
    let attempts = fixture.seen().len();
    // 32 managers: the first window, then one request in 30 to 60 s for each manager.
    assert!((32..=32 * 130).contains(&attempts), "{attempts}");
    assert_eq!(fixture.depth(), 0);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(fixture.seen().len(), attempts);
    assert!(fixture.outbox.report(now()).resync_needed);
}

/// 20,000 events of 1,000 invented managers, all at the same time or one after the other, sorted by manager or mixed.
#[rstest]
#[case::at_once_by_manager(0, true)]
#[case::at_once_mixed(0, false)]
#[case::over_40_minutes_by_manager(120, true)]
#[case::over_40_minutes_mixed(120, false)]
#[tokio::test(start_paused = true)]
async fn a_flood_of_invented_managers_costs_50_posts_a_second_at_most_and_none_after_an_hour(
    #[case] pause: u64,
    #[case] by_manager: bool,
) {
    let fixture = Fixture::new(|_| Kcp::Refuses(404));
    for number in 0..20_000 {
        let (manager, name) = if by_manager {
            (number / 20, number % 20)
        } else {
            (number % 1_000, number / 1_000)
        };
        fixture.put(&format!("m{manager}"), &format!("n{name}"));
        sleep(Duration::from_millis(pause)).await;
    }
    sleep(Duration::from_mins(62)).await;
    let times: Vec<Duration> = fixture.seen().iter().map(|seen| seen.at).collect();
    let in_a_second = |begin: &Duration| {
        let from = times.partition_point(|at| at < begin);
        times.partition_point(|at| *at < *begin + SECOND) - from
    };
    let most = times.iter().map(in_a_second).max().unwrap();
    assert!(most <= 50, "{most} of {}", times.len());
    assert_eq!(fixture.depth(), 0);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(fixture.seen().len(), times.len());
}

#[tokio::test(start_paused = true)]
async fn events_answered_404_for_an_hour_are_dropped_and_their_manager_is_asked_to_list_again() {
    let fixture = Fixture::new(|_| Kcp::Refuses(404));
    for number in 0..1_000 {
        fixture.put("a", &format!("n{number}"));
    }
    sleep(Duration::from_mins(58)).await;
    assert_eq!(fixture.depth(), 1_000);
    sleep(Duration::from_mins(4)).await;
    assert_eq!(fixture.depth(), 0);
    let attempts = fixture.seen().len();
    assert!((60..=140).contains(&attempts), "{attempts}");
    assert!(fixture.lost("a"));
    // Further events are tried at most once a minute, and are not stored for another hour.
    for number in 0..100 {
        fixture.put("a", &format!("l{number}"));
    }
    sleep(Duration::from_mins(10)).await;
    let later = fixture.seen().len() - attempts;
    assert!((1..=22).contains(&later), "{later}");
    assert_eq!(fixture.depth(), 0);
}

/// The route of a Watcher that was created recently.
#[tokio::test(start_paused = true)]
async fn a_route_that_appears_after_half_an_hour_loses_no_event() {
    let route = Duration::from_mins(30);
    let fixture = Fixture::new(move |seen| {
        if seen.at < route {
            Kcp::Refuses(404)
        } else {
            Kcp::Takes
        }
    });
    for number in 0..100 {
        fixture.put("a", &format!("n{number}"));
    }
    // The circuit permits a probe within a minute, and the last rejected event follows after another minute.
    sleep(route + Duration::from_secs(125)).await;
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, false));
}

/// An outage between two 404 responses does not count as time without a route.
#[tokio::test(start_paused = true)]
async fn only_an_unbroken_hour_of_404_drops_events() {
    let fixture = Fixture::new(|seen| match seen.at.as_secs() / 60 {
        0..40 | 50..80 => Kcp::Refuses(404),
        40..50 => Kcp::Refuses(503),
        _ => Kcp::Takes,
    });
    fixture.put("a", "one");
    sleep(Duration::from_secs(80 * 60 + 125)).await;
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, false));
    assert_eq!(fixture.metric("watcher_delivered_events_total"), Some(1.0));
}

#[rstest]
#[case::not_understood(400)]
#[case::too_large(413)]
#[case::head_too_large(431)]
#[case::not_processable(422)]
#[tokio::test(start_paused = true)]
async fn an_event_that_kcp_always_rejects_is_dropped_and_its_manager_is_asked_to_list_again(
    #[case] status: u16,
) {
    let fixture = Fixture::new(move |seen| match seen.name.as_str() {
        "poison" => Kcp::Refuses(status),
        _ => Kcp::Takes,
    });
    fixture.put("a", "poison");
    fixture.put("a", "sound");
    sleep(Duration::from_mins(10)).await;
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, true));
    let attempts = fixture.of("poison").len();
    assert!((5..=20).contains(&attempts), "{attempts}");
}

/// A listener that rejects all events is one failure, and not one failure for each event.
#[tokio::test(start_paused = true)]
async fn a_manager_that_rejects_every_event_costs_one_attempt_per_back_off() {
    let fixture = Fixture::new(|_| Kcp::Refuses(400));
    for number in 0..10_000 {
        fixture.put("a", &format!("n{number}"));
    }
    sleep(Duration::from_mins(62)).await;
    let attempts = fixture.seen().len();
    assert!(attempts <= 200, "{attempts}");
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, true));
}

#[rstest]
#[case::unauthorized(401)]
#[case::forbidden(403)]
#[case::too_many(429)]
#[case::broken(500)]
#[case::unavailable(503)]
#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_for_as_long_as_it_takes(#[case] status: u16) {
    let fixture = Fixture::new(move |seen| {
        if seen.at < Duration::from_hours(5) {
            Kcp::Refuses(status)
        } else {
            Kcp::Takes
        }
    });
    fixture.put("a", "one");
    fixture.put("a", "two");
    sleep(Duration::from_hours(5) + Duration::from_mins(3)).await;
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, false));
    assert_eq!(fixture.metric("watcher_delivered_events_total"), Some(2.0));
}

/// Time behind an open circuit does not count as an attempt. An event is rejected as often as any other event before it is
/// dropped.
#[tokio::test(start_paused = true)]
async fn an_event_that_waited_behind_a_circuit_is_tried_as_often_as_any_other() {
    let outage = Duration::from_mins(10);
    let fixture = Fixture::configured(&["a"], move |seen| match seen.name.as_str() {
        _ if seen.at < outage => Kcp::Refuses(503),
        "poison" => Kcp::Refuses(400),
        _ => Kcp::Takes,
    });
    for number in 0..100 {
        fixture.put("a", &format!("n{number}"));
    }
    fixture.put("a", "poison");
    sleep(outage).await;
    // The probes were other events.
    assert_eq!(fixture.of("poison").len(), 0);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(fixture.of("poison").len(), 12);
    assert_eq!((fixture.depth(), fixture.lost("a")), (0, true));
}
