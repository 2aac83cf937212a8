//! Tests with watchers that number their events and send heartbeats.

use std::time::Duration;

use rstest::rstest;

use crate::fixture::{
    EVENT, RUNTIME, Running, ca, check, element, forwarded, options, post, post_to, watcher_header,
};
use crate::{Authentication, Notification, Options, RuntimeId, UnresponsiveReason};

const HEARTBEAT: &str = "/v2/kyma/event/heartbeat";

fn beat(sequence: u64, spool_depth: u64) -> String {
    format!(
        r#"{{"bootId":"b1","sequence":{sequence},"spoolDepth":{spool_depth},"oldestAgeSeconds":4,"version":"1.2.3"}}"#
    )
}

#[tokio::test]
async fn a_numbered_event_and_a_heartbeat_show_what_is_missing() {
    let authority = ca();
    let options = Options {
        runtime_metrics: true,
        ..options(Authentication::Certificate(check(&authority)))
    };
    let listener = Running::with(options).await;
    let header = watcher_header(&authority);
    let mut client = listener.connect().await;
    for number in ["Kyma-Watcher-Sequence: 1", "Kyma-Watcher-Sequence: 3"] {
        let request = post(&[&header, "Kyma-Watcher-Boot-Id: b1", number], EVENT);
        assert_eq!(client.ask(&request).await.unwrap().status, 200);
    }
    let answer = client
        .ask(&post_to(HEARTBEAT, &[&header], &beat(5, 1)))
        .await
        .unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));

    let [runtime] = listener.liveness.snapshot().try_into().unwrap();
    assert_eq!(runtime.runtime_id.as_str(), RUNTIME);
    // Number 2 of the events is missing, and number 4, which the heartbeat reports. Number 5 is still spooled.
    assert_eq!((runtime.missing_events, runtime.silent), (2, false));
    let heartbeat = runtime.watchers[0].heartbeat.as_ref().unwrap();
    assert_eq!(
        (heartbeat.spool_depth, heartbeat.version.as_str()),
        (1, "1.2.3")
    );

    assert_eq!(
        client
            .ask(&post_to(HEARTBEAT, &[&header], &beat(5, 1)))
            .await
            .unwrap()
            .status,
        200
    );
    let labels = format!(r#"{{server_name="listener",manager="kyma",runtime_id="{RUNTIME}"}}"#);
    let value = |name: &str| listener.metric(&format!("watcher_listener_{name}{labels}"));
    assert_eq!(value("runtime_missing_events_total"), Some(2.0));
    assert_eq!(value("spooled_events"), Some(1.0));
    assert_eq!(value("oldest_spooled_event_age_seconds"), Some(4.0));
    assert!(value("heartbeat_age_seconds").is_some());
    let labels = r#"{server_name="listener",manager="kyma"}"#;
    let value = |name: &str| listener.metric(&format!("watcher_listener_{name}{labels}"));
    assert_eq!(value("known_runtimes"), Some(1.0));
    assert_eq!(value("unresponsive_runtimes"), Some(0.0));
    assert_eq!(value("evicted_runtimes_total"), Some(0.0));
    assert_eq!(value("missing_events_total"), Some(2.0));
}

/// The running listener checks the time. A heartbeat that is handled later than three intervals after the start, or is followed
/// by as long a stall, has other notifications: the interval is longer than a stall of a busy machine.
#[tokio::test]
async fn watcher_that_stops_sending_heartbeats_is_notified() {
    let authority = ca();
    let options = Options {
        heartbeat_interval: Duration::from_secs(1),
        ..options(Authentication::Certificate(check(&authority)))
    };
    let mut listener = Running::with(options).await;
    let header = watcher_header(&authority);
    let heartbeat = post_to(HEARTBEAT, &[&header], &beat(0, 1));
    assert_eq!(listener.ask(&heartbeat).await.status, 200);
    let runtime_id = || RuntimeId::parse(RUNTIME).unwrap();
    let expected = [
        Notification::ResyncRequired {
            runtime_id: runtime_id(),
        },
        Notification::Unresponsive {
            runtime_id: runtime_id(),
            reason: UnresponsiveReason::HeartbeatMissing,
        },
    ];
    for expected in expected {
        assert_eq!(listener.next().await, Some(expected));
    }
    assert_eq!(listener.ask(&heartbeat).await.status, 200);
    let recovered = Notification::Recovered {
        runtime_id: runtime_id(),
    };
    assert_eq!(listener.next().await, Some(recovered));
}

#[tokio::test]
async fn requested_resync_is_accepted_with_the_heartbeat_or_the_heartbeat_is_rejected() {
    let authority = ca();
    let options = Options {
        queued_events: 1,
        ..options(Authentication::Certificate(check(&authority)))
    };
    let mut listener = Running::with(options).await;
    let header = watcher_header(&authority);
    let body = beat(1, 0).replace('}', r#","resyncNeeded":true}"#);
    let request = post_to(HEARTBEAT, &[&header], &body);
    let other = forwarded(&element(&authority.leaf("other").unwrap()));
    let before = post_to(HEARTBEAT, &[&other], &body);
    assert_eq!(listener.ask(&before).await.status, 200);
    let full = listener.ask(&request).await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")));
    let runtime_id = RuntimeId::parse("other").unwrap();
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listener.next().await, Some(resync));
    assert_eq!(listener.ask(&request).await.status, 200);
    let runtime_id = RuntimeId::parse(RUNTIME).unwrap();
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listener.next().await, Some(resync));
    let again = listener.ask(&request).await;
    assert_eq!(
        (again.status, again.header("retry-after")),
        (429, Some("5"))
    );
    assert!(!again.closes());
}

/// Invalid headers with numbers do not affect the event.
#[rstest]
#[case::public(&[])]
#[case::half(&["Kyma-Watcher-Sequence: 1"])]
#[case::no_number(&["Kyma-Watcher-Boot-Id: b1", "Kyma-Watcher-Sequence: one"])]
#[case::no_boot_id(&["Kyma-Watcher-Boot-Id: a b", "Kyma-Watcher-Sequence: 1"])]
#[tokio::test]
async fn an_event_that_is_not_numbered_is_an_event(#[case] numbering: &[&str]) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let headers: Vec<&str> = [header.as_str()].iter().chain(numbering).copied().collect();
    assert_eq!(listener.ask(&post(&headers, EVENT)).await.status, 200);
    let [runtime] = listener.liveness.snapshot().try_into().unwrap();
    assert!(runtime.since_event.is_some() && runtime.watchers.is_empty());
    let age = format!(
        r#"watcher_listener_heartbeat_age_seconds{{server_name="listener",manager="kyma",runtime_id="{RUNTIME}"}}"#
    );
    assert_eq!(listener.metric(&age), None);
}

/// The keys are of a later release.
#[tokio::test]
async fn unknown_keys_of_a_heartbeat_are_ignored() {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let unknown = r#","reviewsSeen":2,"later":{"a":[1,{"b":null}]},"spool_depth":"x"}"#;
    let body = beat(3, 1).replace('}', unknown);
    let request = post_to(HEARTBEAT, &[&watcher_header(&authority)], &body);
    assert_eq!(listener.ask(&request).await.status, 200);
    let [runtime] = listener.liveness.snapshot().try_into().unwrap();
    let heartbeat = runtime.watchers[0].heartbeat.as_ref().unwrap();
    let read = (heartbeat.sequence, heartbeat.spool_depth);
    assert_eq!((read, heartbeat.reviews_seen), ((3, 1), Some(2)));
}

#[tokio::test]
async fn a_heartbeat_needs_an_identity_and_a_form() {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let status = async |headers: &[&str], body: &str| {
        listener
            .ask(&post_to(HEARTBEAT, headers, body))
            .await
            .status
    };
    assert_eq!(status(&[], &beat(1, 0)).await, 401);
    assert_eq!(status(&[&header], "{}").await, 400);
    assert_eq!(
        status(
            &[&header],
            &beat(1, 0).replace("1.2.3", &"v".repeat(20_000))
        )
        .await,
        413
    );
    assert_eq!(listener.liveness.snapshot(), []);
}
