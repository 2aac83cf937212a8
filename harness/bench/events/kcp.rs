//! KCP as watchers see it: our listener behind a model of its gateway, or what is left of it in an outage.
//!
//! Invariant: the address stays, whatever happens behind it; what the listener accepts is noted with the moment at which
//! it came out of its stream, which is when an operator would look.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use futures::StreamExt as _;
use listener::{
    Authentication, Authorities, CertificateCheck, Events, Liveness, Options,
    RuntimeIdFromCommonName, register_listener_component,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::authority::{Leaf, server};
use super::gateway::{Gateway, Manner};

/// How KCP is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It takes events.
    Up,
    /// Nobody is at the port.
    Refusing,
    /// Handshakes and requests are taken, and none is answered.
    Hanging,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Up, Self::Refusing, Self::Hanging];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Refusing => "refusing",
            Self::Hanging => "hanging",
        }
    }
}

/// KCP.
pub(super) struct Kcp {
    /// Of the gateway.
    pub(super) address: SocketAddr,
    /// Of the listener, behind it.
    pub(super) listener: SocketAddr,
    pub(super) liveness: Liveness,
    pub(super) heard: Arc<Heard>,
    gateway: Arc<Gateway>,
    open: Option<(CancellationToken, JoinHandle<()>)>,
    _ends: DropGuard,
}

/// What came, by the name of the object.
#[derive(Default)]
pub(super) struct Heard {
    objects: Mutex<HashMap<String, Arrivals>>,
}

/// Of one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrivals {
    pub(super) first: Instant,
    pub(super) last: Instant,
    pub(super) times: u32,
}

impl Kcp {
    /// Begins with KCP up.
    pub(super) async fn start(authority: &str, leaf: &Leaf) -> anyhow::Result<Self> {
        let check = CertificateCheck::new(
            Authorities::from_pem(authority.as_bytes())?,
            RuntimeIdFromCommonName,
        );
        let options = Options::new(Authentication::Certificate(check));
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (runnable, events) = register_listener_component(anywhere, MANAGER, options)?;
        let liveness = runnable.liveness();
        let bound = runnable.bind().await?;
        let listener = bound.local_addr();
        let ending = CancellationToken::new();
        let heard = Arc::new(Heard::default());
        tokio::spawn(note(events, heard.clone()));
        tokio::spawn(bound.run(ending.clone()));
        let gateway = Gateway::new(server(authority, leaf)?, listener);
        let mut kcp = Self {
            // The port of the first opening is kept.
            address: anywhere,
            listener,
            liveness,
            heard,
            gateway: Arc::new(gateway),
            open: None,
            _ends: ending.drop_guard(),
        };
        kcp.open(Manner::Serve).await?;
        Ok(kcp)
    }

    /// Becomes so, at once, for those who are connected as well.
    pub(super) async fn become_(&mut self, state: State) -> anyhow::Result<()> {
        if let Some((closing, closed)) = self.open.take() {
            closing.cancel();
            closed.await.map_err(|_| anyhow!("the gateway failed"))?;
        }
        match state {
            State::Up => self.open(Manner::Serve).await,
            State::Hanging => self.open(Manner::Hang).await,
            State::Refusing => Ok(()),
        }
    }

    async fn open(&mut self, manner: Manner) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.context("the gateway's port")?;
        self.address = listener.local_addr()?;
        let closing = CancellationToken::new();
        let running = self.gateway.clone().run(listener, manner, closing.clone());
        self.open = Some((closing, tokio::spawn(running)));
        Ok(())
    }

    /// TLS handshakes of senders so far.
    pub(super) fn handshakes(&self) -> u64 {
        self.gateway.handshakes.load(Ordering::Relaxed)
    }
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arrivals>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, object: &str) -> Option<Arrivals> {
        self.lock().get(object).copied()
    }

    /// Objects that were heard of.
    pub(super) fn objects(&self) -> usize {
        self.lock().len()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arrivals> {
        self.lock().values().copied().collect()
    }

    /// Events in all.
    pub(super) fn events(&self) -> u64 {
        self.lock().values().map(|it| u64::from(it.times)).sum()
    }

    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn note(&self, object: String, now: Instant) {
        let mut objects = self.lock();
        let arrivals = objects.entry(object).or_insert(Arrivals {
            first: now,
            last: now,
            times: 0,
        });
        arrivals.last = now;
        arrivals.times += 1;
    }
}

async fn note(mut events: Events, heard: Arc<Heard>) {
    while let Some(event) = events.next().await {
        heard.note(event.watched.name, Instant::now());
    }
}

/// Who is told of everything.
pub(super) const MANAGER: &str = "bench";
