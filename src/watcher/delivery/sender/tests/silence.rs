//! Posts that are taken and never answered, and events that are never digested: they delay their own manager, and no other one.

use super::*;

/// A listener whose consumer is stuck takes what it is sent, and says nothing.
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
    // Eight of the first window, then one in 15 s and a back-off of at most a minute.
    assert!((14..=40).contains(&tried), "{tried}");
}

/// A gateway that is there and leads nowhere looks like many such listeners.
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
    // The first windows; then each takes 15 s, and 30 to 60 lie between two.
    assert!((25..=70).contains(&attempts), "{attempts}");
    sleep(Duration::from_mins(4)).await;
    assert_eq!(fixture.depth(), 0);
}

#[tokio::test(start_paused = true)]
async fn several_that_do_not_answer_delay_no_other() {
    let fixture = Fixture::new(|seen| match seen.manager.as_str() {
        "well" => Kcp::Takes,
        _ => Kcp::TimesOut,
    });
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

/// Events that hang their listener, one of each of two managers, and others that it would take.
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

/// The same with an answer, and of one manager.
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

/// Its circuit never opens, because it takes each event.
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
