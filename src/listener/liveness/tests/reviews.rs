//! Tests with watchers that send heartbeats and receive no admission reviews.

use super::*;

const FAILED: UnresponsiveReason = UnresponsiveReason::HandshakeFailed;
const UNREVIEWED: UnresponsiveReason = UnresponsiveReason::ReviewMissing;

impl Listening {
    /// Sends a heartbeat of each of `watchers` with these numbers of reviews and failed handshakes, and advances the time
    /// by a minute.
    async fn round(&self, watchers: &[&str], reviews: u64, failures: u64) {
        for watcher in watchers {
            self.send_counts(watcher, reviews, failures);
        }
        self.pass(HEARTBEAT_INTERVAL).await;
    }

    /// Sends a heartbeat with these numbers of reviews of all managers and of this manager, with a current last review, and
    /// advances the time by a minute.
    async fn round_of(&self, watcher: &str, all: u64, own: u64) {
        let mut heartbeat = beat(watcher, 0, 0);
        (heartbeat.reviews_seen, heartbeat.handshake_failures) = (Some(all), Some(0));
        heartbeat.last_review_age_seconds = Some(0);
        heartbeat.manager_reviews_seen = Some(own);
        heartbeat.manager_last_review_age_seconds = (own > 0).then_some(0);
        self.send("r", heartbeat);
        self.pass(HEARTBEAT_INTERVAL).await;
    }

    fn send_counts(&self, watcher: &str, reviews: u64, failures: u64) {
        let mut heartbeat = beat(watcher, 0, 0);
        heartbeat.reviews_seen = Some(reviews);
        heartbeat.handshake_failures = Some(failures);
        self.send("r", heartbeat);
    }

    /// Sends a heartbeat of a release without the new keys.
    async fn old_round(&self, watcher: &str) {
        self.beat(watcher, 0, 0);
        self.pass(HEARTBEAT_INTERVAL).await;
    }

    /// Takes the queued notifications, without resyncs.
    fn states(&mut self) -> Vec<Notification> {
        let resync = |it: &Notification| matches!(it, Notification::ResyncRequired { .. });
        let taken = self.taken().into_iter();
        taken.filter(|it| !resync(it)).collect()
    }
}

/// For example a customer has deleted the entry of one manager from the webhook configuration.
#[tokio::test(start_paused = true)]
async fn reviews_for_other_managers_hide_no_missing_ones() {
    let mut listening = Listening::new();
    listening.round_of("a", 1, 0).await;
    listening.liveness.expect_review(&id("r"));
    for all in 2..6 {
        listening.round_of("a", all, 0).await;
    }
    assert_eq!(listening.states(), [unresponsive(UNREVIEWED)]);
    listening.round_of("a", 6, 1).await;
    assert_eq!(listening.states(), [recovered()]);
}

#[tokio::test(start_paused = true)]
async fn wrong_ca_bundle_is_noticed_within_three_heartbeats_until_a_review_arrives() {
    let mut listening = Listening::new();
    listening.round(&["a", "b"], 5, 0).await;
    for failures in [3, 9] {
        listening.round(&["a", "b"], 5, failures).await;
    }
    assert_eq!(listening.states(), []);
    listening.round(&["a", "b"], 5, 12).await;
    assert_eq!(listening.states(), [unresponsive(FAILED)]);
    assert_eq!(listening.only().unresponsive, Some(FAILED));
    assert_eq!(listening.liveness.totals().unresponsive, 1);
    // A pause, a restart, and failures of one of two replicas do not show that reviews arrive.
    for _ in 0..2 {
        listening.round(&["a", "b"], 5, 12).await;
    }
    for _ in 0..2 {
        listening.round(&["c"], 0, 0).await;
    }
    for failures in 2..12 {
        listening.round(&["c"], 0, failures / 2).await;
        listening.round(&["d"], 0, 0).await;
    }
    assert_eq!(listening.states(), []);
    listening.send_counts("c", 0, 5);
    listening.round(&["d"], 1, 0).await;
    assert_eq!(listening.states(), [recovered()]);
}

/// The failures may be of another client without the CA, such as a probe, while the API server had no reviews to send.
#[tokio::test(start_paused = true)]
async fn failed_handshakes_that_stop_for_three_heartbeats_are_no_reason_any_more() {
    let mut listening = Listening::new();
    for (reviews, failures) in [(5, 0), (5, 1), (5, 2), (5, 3)] {
        listening.round(&["a", "b"], reviews, failures).await;
    }
    assert_eq!(listening.taken(), [unresponsive(FAILED)]);
    for _ in 0..2 {
        listening.round(&["a", "b"], 5, 3).await;
    }
    listening.send_counts("a", 5, 3);
    listening.pass(Duration::from_secs(6)).await;
    assert_eq!(listening.taken(), [], "b may have failures");
    listening.round(&["b"], 5, 3).await;
    assert_eq!(listening.states(), [recovered()]);
    assert_eq!(listening.liveness.totals().unresponsive, 0);
    for failures in [4, 5, 6] {
        assert_eq!(listening.states(), []);
        listening.round(&["a", "b"], 5, failures).await;
    }
    assert_eq!(listening.states(), [unresponsive(FAILED)], "again");
}

/// Changes before the recovery were missed.
#[rstest]
#[tokio::test(start_paused = true)]
async fn recovery_of_reviews_requires_a_resync(
    #[values(0, 1)] failures: u64,
    #[values(true, false)] unheard_between: bool,
) {
    let mut listening = Listening::new();
    listening.round(&["a"], 5, 0).await;
    listening.pass(HEARTBEAT_INTERVAL).await;
    listening.liveness.expect_review(&id("r"));
    for round in 1..5 {
        listening.round(&["a"], 5, failures * round).await;
    }
    if unheard_between {
        listening.pass(HEARTBEAT_INTERVAL * 9).await;
    }
    assert_eq!(listening.taken().len(), 1, "the latest state");
    listening.round(&["a"], 6, 4).await;
    let runtime_id = id("r");
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listening.taken(), [recovered(), resync]);
    for _ in 0..9 {
        listening.round(&["a"], 6, 4).await;
    }
    assert_eq!(listening.taken(), []);
}

/// The operator expects a review.
#[tokio::test(start_paused = true)]
async fn expected_review_is_still_missing_when_failed_handshakes_stop() {
    let mut listening = Listening::new();
    for failures in 1..4 {
        listening.round(&["a"], 0, failures).await;
    }
    assert_eq!(listening.taken(), [unresponsive(FAILED)]);
    listening.liveness.expect_review(&id("r"));
    for _ in 0..3 {
        listening.round(&["a"], 0, 3).await;
    }
    assert_eq!(listening.taken(), [unresponsive(UNREVIEWED)]);
    listening.round(&["a"], 1, 3).await;
    assert_eq!(listening.states(), [recovered()]);
}

/// There is no earlier heartbeat if the handshakes fail since the start of the watcher.
#[tokio::test(start_paused = true)]
async fn first_heartbeat_is_compared_with_the_start_of_the_watcher() {
    let mut listening = Listening::new();
    for failures in [1, 2, 3] {
        assert_eq!(listening.taken(), []);
        listening.round(&["a"], 0, failures).await;
    }
    assert_eq!(listening.taken(), [unresponsive(FAILED)]);
}

/// Reviews were frequent until the CA was replaced, which was before the third heartbeat of each watcher.
#[rstest]
#[case::failures_in_the_same_interval([&[(5, 0), (9, 0), (11, 3), (11, 9), (11, 14)]; 2])]
#[case::failures_from_the_next_interval_on([&[(5, 0), (9, 0), (11, 0), (11, 6), (11, 9)]; 2])]
#[case::a_port_scan_before([&[(5, 0), (9, 1), (11, 1), (11, 6), (11, 9)]; 2])]
#[case::kept_connections_to_one_watcher_alone([
    &[(5, 0), (9, 0), (11, 0), (11, 6), (11, 9)],
    &[(0, 0), (0, 0), (0, 0), (0, 4), (0, 7)],
])]
#[tokio::test(start_paused = true)]
async fn wrong_ca_bundle_within_an_interval_is_noticed_by_the_third_heartbeat_after_it(
    #[case] watchers: [&[(u64, u64); 5]; 2],
) {
    let mut listening = Listening::new();
    for round in 0..5 {
        assert_eq!(listening.taken(), [], "after {round} heartbeats");
        for (name, counts) in ["a", "b"].into_iter().zip(watchers) {
            let (reviews, failures) = counts[round];
            listening.send_counts(name, reviews, failures);
        }
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    assert_eq!(listening.taken(), [unresponsive(FAILED)]);
}

#[rstest]
#[case::one_that_succeeds(&[(0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6)])]
#[case::a_port_scan_now_and_then(&[(0, 1), (0, 1), (0, 2), (0, 3), (0, 3), (0, 4), (0, 5), (0, 5)])]
#[case::a_port_scan_while_reviews_arrive(&[(3, 0), (5, 1), (8, 1), (9, 2), (12, 2), (14, 5), (15, 5)])]
#[case::a_permanent_scan_while_reviews_arrive(&[(3, 1), (5, 2), (8, 3), (9, 4), (9, 5), (9, 6), (11, 7)])]
#[case::a_permanent_scan_while_reviews_are_rare(&[(1, 1), (1, 2), (2, 3), (2, 4), (2, 5), (3, 6), (3, 7)])]
#[case::a_port_scan_of_two_intervals(&[(3, 0), (5, 0), (7, 1), (7, 2), (9, 2)])]
#[case::one_after_the_last_review(&[(3, 0), (5, 0), (5, 1), (5, 1), (5, 1), (5, 1)])]
#[tokio::test(start_paused = true)]
async fn single_failed_handshakes_are_no_reason(#[case] rounds: &[(u64, u64)]) {
    let mut listening = Listening::new();
    for &(reviews, failures) in rounds {
        listening.round(&["a"], reviews, failures).await;
    }
    assert_eq!(listening.taken(), []);
}

#[tokio::test(start_paused = true)]
async fn one_watcher_whose_handshakes_succeed_is_enough() {
    let mut listening = Listening::new();
    for round in 1..9 {
        listening.round(&["a"], 0, round).await;
        listening.round(&["b"], 0, 0).await;
    }
    assert_eq!(listening.taken(), []);
    // The watcher `b` is not live anymore. Only the other watcher counts.
    for round in 10..15 {
        listening.round(&["a"], 0, round).await;
    }
    let runtime_id = id("r");
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listening.taken(), [resync, unresponsive(FAILED)]);
}

/// Connections to Pods that end or start are interrupted, while the API server reviews few changes.
#[tokio::test(start_paused = true)]
async fn rollout_is_no_reason() {
    let mut listening = Listening::new();
    for (reviews, failures) in [(3, 0), (5, 0), (6, 1)] {
        listening.round(&["a", "b"], reviews, failures).await;
    }
    for ended in ["a", "b"] {
        let mut last = beat(ended, 0, 0);
        (last.reviews_seen, last.handshake_failures) = (Some(6), Some(2));
        last.ending = true;
        listening.send("r", last);
    }
    for (reviews, failures) in [(0, 1), (0, 2), (1, 2), (2, 3)] {
        listening.round(&["c", "d"], reviews, failures).await;
    }
    assert_eq!(listening.taken(), []);
}

#[tokio::test(start_paused = true)]
async fn missing_review_of_an_announced_change_is_noticed_within_three_heartbeats() {
    let mut listening = Listening::new();
    for _ in 0..60 {
        listening.round(&["a", "b"], 5, 0).await;
    }
    assert_eq!(listening.states(), [], "nothing was changed");
    listening.liveness.expect_review(&id("r"));
    listening.round(&["a", "b"], 5, 0).await;
    // Each reconcile announces a review. Only the first announcement has an effect.
    listening.liveness.expect_review(&id("r"));
    listening.round(&["a", "b"], 5, 0).await;
    assert_eq!(listening.states(), []);
    listening.round(&["a", "b"], 5, 0).await;
    assert_eq!(listening.states(), [unresponsive(UNREVIEWED)]);
    // New Pods have sent fewer than three heartbeats, and the following silence has another reason.
    listening.round(&["c"], 0, 0).await;
    assert_eq!(listening.states(), []);
    listening.pass(Duration::from_mins(3)).await;
    assert_eq!(listening.states(), [unresponsive(MISSING)]);
    for _ in 0..2 {
        listening.round(&["c"], 0, 0).await;
    }
    assert_eq!(listening.states(), [unresponsive(UNREVIEWED)]);
    listening.round(&["c"], 1, 0).await;
    assert_eq!(listening.states(), [recovered()]);
}

#[rstest]
#[case::first(1)]
#[case::second(2)]
#[case::third(3)]
#[tokio::test(start_paused = true)]
async fn review_of_one_watcher_is_enough(#[case] heartbeat: u32) {
    let mut listening = Listening::new();
    listening.round(&["a", "b"], 5, 0).await;
    listening.pass(HEARTBEAT_INTERVAL / 2).await;
    listening.liveness.expect_review(&id("r"));
    for _ in 1..heartbeat {
        listening.round(&["a", "b"], 5, 0).await;
    }
    listening.round(&["b"], 6, 0).await;
    for _ in 0..9 {
        listening.round(&["a"], 5, 0).await;
        listening.round(&["b"], 6, 0).await;
    }
    assert_eq!(listening.taken(), []);
}

/// The admission of a change precedes the end of its write, and therefore the announcement.
#[tokio::test(start_paused = true)]
async fn review_within_the_interval_before_the_announcement_is_enough() {
    let mut listening = Listening::new();
    listening.round(&["a"], 5, 0).await;
    // The heartbeat with the review arrives a minute before the announcement.
    listening.round(&["a"], 6, 0).await;
    listening.liveness.expect_review(&id("r"));
    for _ in 0..5 {
        listening.round(&["a"], 6, 0).await;
    }
    assert_eq!(listening.taken(), []);
    listening.liveness.expect_review(&id("r"));
    for _ in 0..3 {
        listening.round(&["a"], 6, 0).await;
    }
    assert_eq!(listening.taken(), [unresponsive(UNREVIEWED)]);
}

#[tokio::test(start_paused = true)]
async fn each_watcher_has_three_heartbeats_to_show_a_review() {
    let mut listening = Listening::new();
    listening.round(&["a"], 0, 0).await;
    listening.liveness.expect_review(&id("r"));
    for _ in 0..2 {
        listening.round(&["a"], 0, 0).await;
    }
    for _ in 0..2 {
        listening.round(&["a", "b"], 0, 0).await;
    }
    assert_eq!(listening.taken(), [], "b may have received it");
    listening.round(&["a", "b"], 0, 0).await;
    assert_eq!(listening.taken(), [unresponsive(UNREVIEWED)]);
}

#[tokio::test(start_paused = true)]
async fn failed_handshakes_that_find_the_queue_full_are_notified_later() {
    let mut listening = Listening::with(10, HEARTBEAT_INTERVAL, 1);
    let runtime_id = id("other");
    let other = Notification::ResyncRequired { runtime_id };
    listening.queue.enqueue(other.clone());
    for failures in [1, 2, 3, 3] {
        listening.round(&["a"], 0, failures).await;
    }
    assert_eq!(listening.taken(), [other]);
    listening.pass(Duration::from_secs(6)).await;
    assert_eq!(listening.taken(), [unresponsive(FAILED)]);
}

/// Ages are relative to the arrival of the heartbeat. The clock of the runtime is irrelevant, and is not sent.
#[tokio::test(start_paused = true)]
async fn the_age_of_the_last_review_gives_its_time() {
    let mut listening = Listening::new();
    let mut heartbeat = beat("a", 0, 0);
    heartbeat.reviews_seen = Some(7);
    heartbeat.last_review_age_seconds = Some(40);
    // A certificate that has expired by a clock that is ten minutes fast is only reported.
    heartbeat.certificate_not_after = Some(0);
    advance(Duration::from_hours(2)).await;
    listening.send("r", heartbeat.clone());
    let since = || listening.only().since_review.map(|it| it.as_secs());
    assert_eq!(since(), Some(40));
    listening.pass(Duration::from_secs(30)).await;
    assert_eq!(since(), Some(70));
    // The review was before the interval that precedes the announcement.
    listening.liveness.expect_review(&id("r"));
    for age in [100, 160, 220] {
        heartbeat.last_review_age_seconds = Some(age);
        listening.send("r", heartbeat.clone());
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    assert_eq!(listening.taken(), [unresponsive(UNREVIEWED)]);
}

#[tokio::test(start_paused = true)]
async fn watchers_of_older_releases_are_not_judged_by_keys_that_they_do_not_send() {
    let mut listening = Listening::new();
    listening.liveness.expect_review(&id("r"));
    for _ in 0..10 {
        listening.old_round("a").await;
    }
    assert_eq!(listening.states(), []);
    // A watcher of an older release may receive reviews. It prevents the reason of failed handshakes, but does not replace
    // an announced review.
    listening.liveness.forget(&id("r"));
    for round in 1..6 {
        listening.beat("a", 0, 0);
        listening.round(&["b"], 0, round).await;
    }
    assert_eq!(listening.states(), []);
    listening.liveness.expect_review(&id("r"));
    for _ in 0..3 {
        listening.beat("a", 0, 0);
        listening.round(&["b"], 0, 6).await;
    }
    assert_eq!(listening.states(), [unresponsive(UNREVIEWED)]);
    // The older release replaces all watchers, so there is no information about reviews.
    for _ in 0..4 {
        listening.old_round("c").await;
    }
    assert_eq!(listening.states(), [recovered()]);
}
