use rstest::rstest;
use testkit::apiserver::ApiServer;
use tokio::time::Instant;

use super::*;
use crate::fixture::{
    cluster, ended, endpoint, failure_of, outcome, reason_of, scenario, with_metrics,
};
use crate::{Endpoint, Options, Report, Run};

const SCENARIO: &str = "
name: x
description: y
config: {overrides: {}}
workloads: []
events:
";
const REPORTED: &str = "- {name: a status, manifest: kyma.yaml, change: {subresource: status, patch: {status: {state: Warning}}}, reported: true}\n";
const NOT_REPORTED: &str = "- {name: a spec, manifest: kyma.yaml, change: {patch: {spec: {channel: fast}}}, reported: false}\n";

/// A watcher that reports the creation of every object.
#[derive(Debug, Clone, Copy)]
struct Watcher {
    /// Resources for whose changes the API server calls the watcher.
    asked: &'static str,
    /// Number of events that the watcher creates for each of these changes.
    events: usize,
    /// Whether KCP accepts the events of these changes.
    is_connected: bool,
}

const NEVER_ASKED: Watcher = Watcher {
    asked: "",
    events: 0,
    is_connected: true,
};
const STATUS: Watcher = Watcher {
    asked: "kymas/status",
    events: 1,
    is_connected: true,
};
const SPEC: Watcher = Watcher {
    asked: "kymas",
    ..STATUS
};

impl Watcher {
    /// Returns the metrics page of the watcher. As in the real watcher, an event is delivered at once, and again five seconds
    /// later.
    fn page(self, server: &ApiServer) -> String {
        let created = server.requests_of("create kymas");
        let changed = server.requests_of(&format!("patch {}", self.asked));
        let asked = created.len() + changed.len();
        let events = changed
            .iter()
            .flat_map(|it| std::iter::repeat_n(it, self.events));
        let (mut delivered, mut waiting) = (10, 0);
        let kept = events.map(|it| (it, self.is_connected));
        for (event, is_connected) in created.iter().map(|it| (it, true)).chain(kept) {
            let is_confirmed = event.begin.elapsed() >= Duration::from_secs(5);
            delivered += usize::from(is_connected) + usize::from(is_connected && is_confirmed);
            waiting += usize::from(!is_connected || !is_confirmed);
        }
        format!(
            "watcher_admission_request_total {asked}\nwatcher_delivered_events_total {delivered}\nwatcher_outbox_events {waiting}\n"
        )
    }
}

/// Returns a runtime with one Pod of a watcher.
fn runtime() -> ApiServer {
    let server = cluster(r#"{"overrides": {}}"#);
    server.put(&pod("skr-webhook-1"));
    server
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "skr-webhook"}},
    })
}

fn watched(server: &ApiServer, watcher: Watcher) -> Endpoint {
    let seen = server.clone();
    with_metrics(endpoint("skr", server), move || Some(watcher.page(&seen)))
}

async fn checked(events: &str, endpoint: Endpoint) -> Report {
    let scenario = scenario(&format!("{SCENARIO}{events}"));
    let options = Options::default();
    let run = Run::new(&scenario, None, vec![endpoint], options).unwrap();
    ended(run).await.unwrap()
}

#[rstest]
#[case::reported(REPORTED, STATUS)]
#[case::not_asked(NOT_REPORTED, STATUS)]
#[case::asked_and_not_reported(NOT_REPORTED, Watcher { events: 0, ..SPEC })]
#[tokio::test(start_paused = true)]
async fn watcher_that_reports_what_it_must_passes(#[case] event: &str, #[case] watcher: Watcher) {
    let server = runtime();
    let report = checked(event, watched(&server, watcher)).await;
    assert_eq!(*outcome(&report, "Change"), Outcome::Passed);
    assert_eq!(server.count("patch kymas|kymas/status"), 1);
}

#[tokio::test(start_paused = true)]
async fn unreported_change_shows_nothing_if_the_watcher_is_never_called() {
    let server = runtime();
    let page = "watcher_admission_request_total 7\nwatcher_outbox_events 0\n";
    let endpoint = with_metrics(endpoint("skr", &server), || Some(page.to_owned()));
    let report = checked(NOT_REPORTED, endpoint).await;
    let reason = reason_of(outcome(&report, "Change"));
    let said = "the API server has not called the watcher during this run";
    assert!(reason.starts_with(said), "{reason}");
    assert_eq!(server.count("patch kymas"), 1);
}

/// The watcher is not called for the creation of an object, so only the reported change shows that it can be called.
#[tokio::test(start_paused = true)]
async fn reported_change_is_made_first_and_shows_that_the_watcher_is_called() {
    let server = runtime();
    let seen = server.clone();
    let endpoint = with_metrics(endpoint("skr", &server), move || {
        let changed = seen.count("patch kymas/status");
        Some(format!(
            "watcher_admission_request_total {changed}\nwatcher_delivered_events_total {changed}\nwatcher_outbox_events 0\n"
        ))
    });
    let report = checked(&format!("{NOT_REPORTED}{REPORTED}"), endpoint).await;
    assert_eq!(*outcome(&report, "Change \"a status\""), Outcome::Passed);
    assert_eq!(*outcome(&report, "Change \"a spec\""), Outcome::Passed);
}

#[rstest]
#[case::not_asked(REPORTED, SPEC, "no event")]
#[case::asked_and_no_event(REPORTED, Watcher { events: 0, ..STATUS }, "no event")]
#[case::not_delivered(REPORTED, Watcher { is_connected: false, ..STATUS }, "no event")]
#[case::one_too_many(NOT_REPORTED, SPEC, "1 events delivered, 1 not delivered yet")]
#[case::several_too_many(
    NOT_REPORTED,
    Watcher { events: 2, ..SPEC },
    "2 events delivered, 2 not delivered yet"
)]
#[case::one_too_many_waits(
    NOT_REPORTED,
    Watcher { is_connected: false, ..SPEC },
    "0 events delivered, 1 not delivered yet"
)]
#[tokio::test(start_paused = true)]
async fn watcher_that_reports_something_else_fails(
    #[case] event: &str,
    #[case] watcher: Watcher,
    #[case] found: &str,
) {
    let server = runtime();
    let report = checked(event, watched(&server, watcher)).await;
    let failure = failure_of(outcome(&report, "Change"));
    let expected = match event {
        REPORTED => "an event delivered to KCP",
        _ => "no event",
    };
    assert_eq!((&*failure.expected, &*failure.found), (expected, found));
    let location = "skr: kyma.yaml with {\"s";
    assert!(failure.location.starts_with(location), "{failure:?}");
    let next = "kubectl --kubeconfig skr -n kyma-system logs -l app=skr-webhook --tail=50";
    assert_eq!(failure.next, next);
}

#[tokio::test(start_paused = true)]
async fn watcher_whose_outbox_does_not_become_empty_fails_before_anything_is_changed() {
    let server = runtime();
    let page = "watcher_delivered_events_total 3\nwatcher_outbox_events 2\n";
    let endpoint = with_metrics(endpoint("skr", &server), || Some(page.to_owned()));
    let report = checked(NOT_REPORTED, endpoint).await;
    let failure = failure_of(outcome(&report, "Change"));
    assert_eq!(failure.expected, "an empty outbox");
    let found = "2 events are not delivered";
    assert!(failure.found.ends_with(found), "{failure:?}");
    assert_eq!(server.count("patch kymas|kymas/status"), 0);
}

#[tokio::test(start_paused = true)]
async fn change_is_not_made_without_metrics_of_a_watcher() {
    let server = runtime();
    server.remove("pods", NAMESPACE, "skr-webhook-1");
    let report = checked(REPORTED, watched(&server, NEVER_ASKED)).await;
    let reason = reason_of(outcome(&report, "Change"));
    let said = "no Pod with labels app=skr-webhook in kyma-system";
    assert_eq!(
        reason,
        format!("the metrics of the watcher cannot be read: {said}")
    );
    assert_eq!(server.count("create namespaces"), 0);
}

/// After the change the page does not exist, or another process starts its counters at zero.
#[rstest]
#[case::gone(None, "could not find the requested resource")]
#[case::restarted(Some("watcher_outbox_events 0\n"), "was replaced meanwhile")]
#[tokio::test(start_paused = true)]
async fn watcher_that_ends_during_a_check_has_shown_nothing(
    #[values(REPORTED, NOT_REPORTED)] event: &str,
    #[case] page: Option<&'static str>,
    #[case] said: &str,
) {
    let server = runtime();
    let seen = server.clone();
    let endpoint = with_metrics(endpoint("skr", &server), move || {
        match seen.count("patch kymas|kymas/status") {
            0 => Some(NEVER_ASKED.page(&seen)),
            _ => page.map(str::to_owned),
        }
    });
    let report = checked(event, endpoint).await;
    let reason = reason_of(outcome(&report, "Change"));
    assert!(reason.contains(said), "{reason}");
}

/// Another Pod replaced the first one, and its counters may have the values that the check expects.
#[rstest]
#[case::reported(REPORTED, STATUS)]
#[case::missing(REPORTED, SPEC)]
#[case::not_reported(NOT_REPORTED, STATUS)]
#[case::one_too_many(NOT_REPORTED, SPEC)]
#[tokio::test(start_paused = true)]
async fn watcher_that_is_replaced_during_a_check_has_shown_nothing(
    #[case] event: &str,
    #[case] watcher: Watcher,
) {
    let server = runtime();
    let seen = server.clone();
    let endpoint = with_metrics(endpoint("skr", &server), move || {
        if seen.count("patch kymas|kymas/status") == 1 {
            seen.remove("pods", NAMESPACE, "skr-webhook-1");
            seen.put(&pod("skr-webhook-2"));
        }
        Some(watcher.page(&seen))
    });
    let report = checked(event, endpoint).await;
    let reason = reason_of(outcome(&report, "Change"));
    assert!(reason.contains("was replaced meanwhile"), "{reason}");
}

/// The scenario `watcher-status` has these two changes, and its run must take at most a minute.
#[tokio::test(start_paused = true)]
async fn two_changes_take_less_than_twenty_seconds_of_waiting() {
    let server = runtime();
    let begin = Instant::now();
    let both = format!("{REPORTED}{NOT_REPORTED}");
    let report = checked(&both, watched(&server, STATUS)).await;
    assert_eq!(*outcome(&report, "Change \"a status\""), Outcome::Passed);
    assert_eq!(*outcome(&report, "Change \"a spec\""), Outcome::Passed);
    let taken = begin.elapsed();
    assert!(taken < Duration::from_secs(20), "{taken:?}");
}
