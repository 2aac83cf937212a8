//! Requests without a response, and events that a listener cannot process. They delay only their own manager.

use super::*;

/// A listener whose consumer hangs accepts connections and sends no response.
#[tokio::test(start_paused = true)]
async fn a_manager_that_does_not_answer_holds_up_no_other_and_is_spared() {
    let fixture = Fixture::new(|seen| match seen.manager.as_str() {
        "stuck" => Kcp::TimesOut,
        _ => Kcp::Takes,
    });
    for number in 0..100 {
        fixture.put("stuck", &format!("s{number}"));
    }
    fixture.put("well", "one");
    sleep(30 * SECOND).await;
    assert_eq!(fixture.of("one").len(), 1);
    sleep(Duration::from_mins(10)).await;
    let put = fixture.begun.elapsed();
    fixture.put("well", "two");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(fixture.of("two"), [put]);
    let seen = fixture.seen().into_iter();
    let tried = seen.filter(|it| it.manager == "stuck").count();
    // The 16 requests of the first window, then one in 15 s plus a backoff of at most a minute.
    assert!((22..=48).contains(&tried), "{tried}");
}

/// A gateway with a broken route looks like many such listeners.
#[tokio::test(start_paused = true)]
async fn without_an_answer_all_managers_together_cost_one_attempt_per_back_off() {
    let outage = Duration::from_mins(30);
    let fixture = Fixture::new(move |seen| {
        if seen.at < outage {
            Kcp::TimesOut
        } else {
            Kcp::Takes
        }
    });
    for number in 0..50 {
        fixture.put(&format!("m{}", number % 5), &format!("n{number}"));
    }
    sleep(outage).await;
    let attempts = fixture.seen().len();
    // About 27 requests in the first windows; then each request takes 15 s, with pauses of 30 to 60 s.
    assert!((40..=90).contains(&attempts), "{attempts}");
    sleep(Duration::from_mins(4)).await;
    assert_eq!(fixture.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn several_that_do_not_answer_delay_no_other() {
    let fixture = Fixture::new(|seen| match seen.manager.as_str() {
        "well" => Kcp::Takes,
        _ => Kcp::TimesOut,
    });
    // Requests to managers that have accepted nothing yet are spaced.
    fixture.put("well", "first");
    for number in 0..60 {
        fixture.put(&format!("m{}", number % 3), &format!("n{number}"));
    }
    sleep(Duration::from_mins(10)).await;
    for number in 0..10 {
        let name = format!("w{number}");
        let put = fixture.begun.elapsed();
        fixture.put("well", &name);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(fixture.of(&name), [put]);
        sleep(Duration::from_mins(1)).await;
    }
}

/// Two managers each have one event that makes their listener hang, and other events that their listener accepts.
#[tokio::test(start_paused = true)]
async fn two_events_that_are_never_answered_hold_up_no_others_for_ever() {
    let fixture = Fixture::new(|seen| match seen.name.as_str() {
        "hangs-a" | "hangs-b" => Kcp::TimesOut,
        _ => Kcp::Takes,
    });
    fixture.put("a", "hangs-a");
    fixture.put("b", "hangs-b");
    sleep(Duration::from_mins(30)).await;
    fixture.put("a", "sound-a");
    fixture.put("b", "sound-b");
    sleep(Duration::from_mins(3)).await;
    assert_eq!(
        (fixture.of("sound-a").len(), fixture.of("sound-b").len()),
        (1, 1)
    );
}

/// One manager has two events that cause an error of its listener.
#[tokio::test(start_paused = true)]
async fn two_events_that_break_their_listener_hold_up_no_others_for_ever() {
    let fixture = Fixture::new(|seen| match seen.name.as_str() {
        "breaks" | "breaks-too" => Kcp::Refuses(500),
        _ => Kcp::Takes,
    });
    fixture.put("a", "breaks");
    fixture.put("a", "breaks-too");
    sleep(Duration::from_mins(30)).await;
    fixture.put("a", "sound");
    sleep(Duration::from_mins(3)).await;
    assert_eq!(fixture.of("sound").len(), 1);
}

/// The circuit of the manager never opens, because the manager accepts each event.
#[tokio::test(start_paused = true)]
async fn a_manager_that_responds_slowly_delays_no_other() {
    let fixture = Fixture::configured(&["slow", "well"], |seen| match seen.manager.as_str() {
        "slow" => Kcp::TakesAfter(10 * SECOND),
        _ => Kcp::Takes,
    });
    for number in 0..100 {
        fixture.put("slow", &format!("s{number}"));
    }
    for number in 0..20 {
        sleep(SECOND).await;
        let name = format!("w{number}");
        let put = fixture.begun.elapsed();
        fixture.put("well", &name);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(fixture.of(&name), [put]);
    }
}
