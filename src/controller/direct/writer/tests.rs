use kube::runtime::events::Reporter;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::compact_status::InternPool;
use super::*;
use crate::fixture::{ControlPlane, Mode, bootstrapper};

fn update(name: &str, has_event: bool) -> StatusUpdate {
    StatusUpdate {
        name: name.into(),
        uid: None,
        status: InternPool::default().intern(RuntimeBootstrapperStatus::default()),
        has_event,
    }
}

/// Returns a change of the condition Ready to this reason.
fn change(name: &str, reason: &str) -> StatusUpdate {
    let ready = Condition {
        kind: READY.to_owned(),
        status: ConditionStatus::False,
        observed_generation: None,
        last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
    };
    let status = RuntimeBootstrapperStatus {
        conditions: vec![ready],
        ..RuntimeBootstrapperStatus::default()
    };
    StatusUpdate {
        status: InternPool::default().intern(status),
        ..update(name, true)
    }
}

/// Returns the queue for these resources, and its task.
fn queue(kcp: &ControlPlane, names: &[&str]) -> (StatusQueue, JoinHandle<()>) {
    for name in names {
        kcp.put(bootstrapper(name));
    }
    drop(kcp.take_requests());
    let events = EventWriter {
        client: kcp.client(),
        reporter: Reporter {
            controller: "rt-bootstrapper-controller".to_owned(),
            instance: None,
        },
        action: "Synchronize",
    };
    let metrics = DirectMetrics::register(&mut Registry::default());
    let (queue, writing) = status_queue(events, kcp.namespace, NonZeroU32::MIN, metrics);
    (queue, tokio::spawn(writing))
}

fn written(kcp: &ControlPlane) -> Vec<String> {
    let writes = kcp.writes_of("runtimebootstrappers").into_iter();
    writes.map(|it| it.asked.name).collect()
}

/// An admission plugin of the control plane may reject the status of one runtime permanently.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_always_rejected_does_not_delay_others() {
    let kcp = ControlPlane::new(Mode::Direct);
    let (queue, running) = queue(&kcp, &["a", "b", "c"]);
    let pattern = format!("patch runtimebootstrappers {}/a", kcp.namespace);
    let _fault = kcp.fault(&pattern).status(403);
    queue.send(update("a", true));
    for name in ["b", "c"] {
        queue.send(update(name, false));
    }
    sleep(Duration::from_mins(1)).await;
    let written = written(&kcp);
    assert!(written.contains(&"b".to_owned()), "{written:?}");
    assert!(written.contains(&"c".to_owned()), "{written:?}");
    running.abort();
}

/// Before credentials are revoked, the statuses show which runtimes have not got the new ones.
#[tokio::test(start_paused = true)]
async fn a_change_of_ready_is_written_before_other_changes() {
    let kcp = ControlPlane::new(Mode::Direct);
    let names = ["a", "b", "c", "d", "e"];
    let (queue, running) = queue(&kcp, &names);
    for name in names {
        queue.send(update(name, false));
    }
    // The first status is written at once, and another one each second.
    sleep(Duration::from_millis(500)).await;
    queue.send(update("e", true));
    queue.send(update("d", true));
    queue.send(update("d", false));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(written(&kcp), ["a", "e", "d", "b", "c"], "each once");
    drop(queue);
    running.await.unwrap();
}

/// A change within the minute has no Event later: the condition has the same content.
#[tokio::test(start_paused = true)]
async fn an_event_follows_after_a_minute_and_none_before() {
    let kcp = ControlPlane::new(Mode::Direct);
    let (queue, running) = queue(&kcp, &["a", "b"]);
    let reasons = || -> Vec<String> {
        let events = kcp.requests_of("create events").into_iter();
        let text = |it: &serde_json::Value| it.as_str().unwrap().to_owned();
        events
            .map(|it| {
                format!(
                    "{} {}",
                    text(&it.body["regarding"]["name"]),
                    text(&it.body["reason"])
                )
            })
            .collect()
    };
    queue.send(change("a", "Timeout"));
    sleep(Duration::from_secs(50)).await;
    queue.send(change("a", "Unauthorized"));
    queue.send(change("b", "Timeout"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(reasons(), ["a Timeout", "b Timeout"]);
    sleep(Duration::from_secs(10)).await;
    queue.send(change("a", "ConnectionFailed"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(reasons(), ["a Timeout", "b Timeout", "a ConnectionFailed"]);
    running.abort();
}
