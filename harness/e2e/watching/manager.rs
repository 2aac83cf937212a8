//! A manager on KCP: the listener that it embeds, and the events that it received.
//!
//! It runs in this process, at the address of the container network, where Envoy on KCP reaches it through a Service without a
//! selector. Received events are kept when a scenario stops the listener.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use listener::{
    Authentication, CertificateCheck, Event, Liveness, Notification, Notifications, Options,
    UnresponsiveReason, register_listener_component,
};
use prometheus_client::registry::Registry;
use serde_json::json;
use testkit::locked;
use testkit::metrics::Samples;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::HEARTBEAT_INTERVAL;

/// An event, and its time of arrival.
pub(crate) type Received = (Event, SystemTime);

/// Returns the body that a watcher posts for an event about an object.
pub(crate) fn body([group, version, kind]: [&str; 3], namespace: &str, name: &str) -> String {
    let about = json!({
        "watched": { "Namespace": namespace, "Name": name },
        "watchedGvk": { "group": group, "version": version, "kind": kind },
    });
    about.to_string()
}

pub(crate) struct Manager {
    pub(crate) name: &'static str,
    pub(super) address: SocketAddr,
    check: CertificateCheck,
    events: Arc<Mutex<Vec<Received>>>,
    /// Notifications of other kinds, and their times of arrival.
    others: Arc<Mutex<Vec<(Notification, Instant)>>>,
    /// While true, no event is taken out of the queue of the listener.
    blocked: watch::Sender<bool>,
    running: Mutex<Option<Running>>,
}

struct Running {
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    liveness: Liveness,
    registry: Registry,
}

impl Manager {
    /// Starts a listener on a free port of an address of this machine.
    pub(super) async fn start(
        name: &'static str,
        address: IpAddr,
        check: CertificateCheck,
    ) -> Result<Self> {
        let mut manager = Self {
            name,
            address: (address, 0).into(),
            check,
            events: Arc::default(),
            others: Arc::default(),
            blocked: watch::channel(false).0,
            running: Mutex::default(),
        };
        manager.address = manager.listen().await?;
        Ok(manager)
    }

    pub(super) async fn stop(&self) -> Result<()> {
        let Some(running) = locked(&self.running).take() else {
            return Ok(());
        };
        running.shutdown.cancel();
        running.serving.await.context("the listener")
    }

    pub(super) async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.listen().await.map(drop)
    }

    /// Blocks the queue of the listener, so that it becomes full.
    pub(super) fn block(&self, blocked: bool) {
        self.blocked.send_replace(blocked);
    }

    pub(crate) fn liveness(&self) -> Result<Liveness> {
        let running = locked(&self.running);
        let liveness = running.as_ref().map(|it| it.liveness.clone());
        liveness.context("no listener runs")
    }

    /// Returns the metrics of the listener; none while it is stopped.
    pub(crate) fn metrics(&self) -> Samples {
        let running = locked(&self.running);
        let samples = running.as_ref().map(|it| Samples::of(&it.registry));
        samples.unwrap_or_default()
    }

    /// Returns the events with a body, in the order of arrival.
    pub(crate) fn received(&self, about: &str) -> Vec<Received> {
        let events = locked(&self.events);
        let is_about = |(event, _): &&Received| {
            let (watched, gvk) = (&event.watched, &event.watched_gvk);
            let gvk = [gvk.group.as_str(), &gvk.version, &gvk.kind];
            body(gvk, &watched.namespace, &watched.name) == about
        };
        events.iter().filter(is_about).cloned().collect()
    }

    /// Returns why and since when the runtime is unresponsive, from the last notification.
    pub(crate) fn unresponsive(&self) -> Option<(UnresponsiveReason, Instant)> {
        let others = locked(&self.others);
        let last = others.iter().rev().find_map(|(it, arrived)| match it {
            Notification::Unresponsive { reason, .. } => Some(Some((*reason, *arrived))),
            Notification::Recovered { .. } => Some(None),
            _ => None,
        });
        last.flatten()
    }

    /// Returns the names of the objects in a namespace that events were about, with the arrival of the first event.
    pub(crate) fn received_in(&self, namespace: &str) -> BTreeMap<String, SystemTime> {
        let events = locked(&self.events);
        // For equal keys, a map keeps the last value.
        let about = events.iter().rev();
        let about = about.filter(|(event, _)| event.watched.namespace == namespace);
        about
            .map(|(event, arrived)| (event.watched.name.clone(), *arrived))
            .collect()
    }

    async fn listen(&self) -> Result<SocketAddr> {
        let mut options = Options::new(Authentication::Certificate(self.check.clone()));
        options.queued_events_per_runtime = QUEUE;
        options.runtime_metrics = true;
        options.heartbeat_interval = HEARTBEAT_INTERVAL;
        options.retry_after = Duration::from_secs(1);
        options.linger = Duration::ZERO;
        options.grace = Duration::from_secs(1);
        let (listener, notifications) =
            register_listener_component(self.address, self.name, options)?;
        let liveness = listener.liveness();
        let mut registry = Registry::default();
        listener.register_metrics(&mut registry);
        let bound = listener.bind().await?;
        let address = bound.local_addr();
        let shutdown = CancellationToken::new();
        let run = bound.run(shutdown.clone());
        let serving = tokio::spawn(async move {
            if let Err(error) = run.await {
                tracing::warn!(%error, "listener failed");
            }
        });
        let (events, others) = (Arc::clone(&self.events), Arc::clone(&self.others));
        let receiving = receive(notifications, events, others, self.blocked.subscribe());
        tokio::spawn(receiving);
        *locked(&self.running) = Some(Running {
            shutdown,
            serving,
            liveness,
            registry,
        });
        Ok(address)
    }
}

async fn receive(
    mut notifications: Notifications,
    events: Arc<Mutex<Vec<Received>>>,
    others: Arc<Mutex<Vec<(Notification, Instant)>>>,
    mut blocked: watch::Receiver<bool>,
) {
    while let Some(notification) = notifications.next().await {
        if blocked.wait_for(|blocked| !blocked).await.is_err() {
            return;
        }
        match notification {
            Notification::Changed(event) => locked(&events).push((event, SystemTime::now())),
            other => locked(&others).push((other, Instant::now())),
        }
    }
}

/// Size of the queue: smaller than the number of Kymas during an outage, so that a blocked manager rejects events, and larger
/// than the number of events that arrive at once otherwise.
const QUEUE: usize = 64;
