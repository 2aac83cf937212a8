//! A manager on KCP, as far as watchers meet it: the listener that it embeds, and what it heard.
//!
//! It runs in this process, at the container network's own address, where Pods on KCP reach it through a Service without
//! a selector. Invariant: what it heard outlives its listener, which scenarios stop and start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use anyhow::Context as _;
use futures::StreamExt as _;
use listener::{
    Authentication, CertificateCheck, Events, Liveness, Options, register_listener_component,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::HEARTBEAT;
use super::heard::Heard;

/// See the module.
pub(super) struct Manager {
    name: &'static str,
    address: SocketAddr,
    check: CertificateCheck,
    pub(super) heard: Heard,
    busy: watch::Sender<bool>,
    running: Mutex<Option<Running>>,
}

struct Running {
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    liveness: Liveness,
}

impl Manager {
    /// Listens at an address of this machine, at a free port.
    pub(super) async fn start(
        name: &'static str,
        address: IpAddr,
        check: CertificateCheck,
    ) -> anyhow::Result<Self> {
        let mut manager = Self {
            name,
            address: (address, 0).into(),
            check,
            heard: Heard::default(),
            busy: watch::channel(false).0,
            running: Mutex::default(),
        };
        manager.address = manager.listen().await?;
        Ok(manager)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has no listener from now on.
    pub(super) async fn stop(&self) -> anyhow::Result<()> {
        let running = self.running.lock().ok().and_then(|mut it| it.take());
        let Some(running) = running else {
            return Ok(());
        };
        running.shutdown.cancel();
        running.serving.await.context("the listener")
    }

    /// Listens again where it did.
    pub(super) async fn resume(&self) -> anyhow::Result<()> {
        self.stop().await?;
        self.listen().await.map(drop)
    }

    /// Takes nothing out of the queue while it is so.
    pub(super) fn set_busy(&self, busy: bool) {
        self.busy.send_replace(busy);
    }

    /// Who is alive, as the listener says.
    pub(super) fn liveness(&self) -> anyhow::Result<Liveness> {
        let running = self.running.lock().ok();
        let liveness = running.and_then(|it| it.as_ref().map(|it| it.liveness.clone()));
        liveness.context("no listener runs")
    }

    async fn listen(&self) -> anyhow::Result<SocketAddr> {
        let options = Options {
            queued_events: QUEUE,
            heartbeat_interval: HEARTBEAT,
            retry_after: std::time::Duration::from_secs(1),
            linger: std::time::Duration::ZERO,
            grace: std::time::Duration::from_secs(1),
            ..Options::new(Authentication::Certificate(self.check.clone()))
        };
        let (listener, events) = register_listener_component(self.address, self.name, options)?;
        let liveness = listener.liveness();
        let bound = listener.bind().await?;
        let address = bound.local_addr();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(bound, shutdown.clone()));
        tokio::spawn(receive(events, self.heard.clone(), self.busy.subscribe()));
        if let Ok(mut running) = self.running.lock() {
            *running = Some(Running {
                shutdown,
                serving,
                liveness,
            });
        }
        Ok(address)
    }
}

async fn serve(bound: listener::Bound, shutdown: CancellationToken) {
    if let Err(error) = bound.run(shutdown).await {
        tracing::warn!(%error, "a listener of the stage ended");
    }
}

async fn receive(mut events: Events, heard: Heard, mut busy: watch::Receiver<bool>) {
    while let Some(event) = events.next().await {
        if busy.wait_for(|busy| !busy).await.is_err() {
            return;
        }
        heard.add(event);
    }
}

/// Fewer than a scenario's crowd, so that a busy manager has to say no; more than come at once, so that another need not.
const QUEUE: usize = 64;
