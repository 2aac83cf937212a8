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
