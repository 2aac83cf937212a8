use kube::runtime::events::Reporter;
use prometheus_client::registry::Registry;
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

/// Before credentials are revoked, the statuses show which runtimes have not got the new ones.
#[tokio::test(start_paused = true)]
async fn a_change_of_ready_is_written_before_other_changes() {
    let kcp = ControlPlane::new(Mode::Direct);
    let names = ["a", "b", "c", "d", "e"];
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
    let running = tokio::spawn(writing);
    for name in names {
        queue.send(update(name, false));
    }
    // The first status is written at once, and another one each second.
    sleep(Duration::from_millis(500)).await;
    queue.send(update("e", true));
    queue.send(update("d", true));
    queue.send(update("d", false));
    sleep(Duration::from_secs(10)).await;
    let writes = kcp.writes_of("runtimebootstrappers").into_iter();
    let order: Vec<String> = writes.map(|it| it.asked.name).collect();
    assert_eq!(order, ["a", "e", "d", "b", "c"], "each once");
    drop(queue);
    running.await.unwrap();
}
