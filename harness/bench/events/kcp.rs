//! KCP as watchers see it: a gateway's address ([`Kcp`]), and behind it an operator with our listener ([`Operator`]), or
//! what is left of both in an outage.
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
    Authentication, Authorities, CertificateCheck, Event, Liveness, Options,
    RuntimeIdFromCommonName, register_listener_component,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::authority::{Authority, server};
use super::gateway::{Gateway, Manner};
use super::watcher::free_address;

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

/// An operator on KCP: our listener, and who takes events from it. Ends when it is dropped.
pub(super) struct Operator {
    /// Of the listener.
    pub(super) address: SocketAddr,
    pub(super) liveness: Liveness,
    _ends: DropGuard,
}

impl Operator {
    /// Takes every event with `take`.
    pub(super) async fn start(
        authentication: Authentication,
        mut take: impl FnMut(Event) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let options = Options::new(authentication);
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let (runnable, mut events) = register_listener_component(anywhere, MANAGER, options)?;
        let liveness = runnable.liveness();
        let bound = runnable.bind().await?;
        let address = bound.local_addr();
        let ending = CancellationToken::new();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                take(event);
            }
        });
        tokio::spawn(bound.run(ending.clone()));
        Ok(Self {
            address,
            liveness,
            _ends: ending.drop_guard(),
        })
    }

    /// One who remembers what there was.
    pub(super) async fn listening(authority: &str) -> anyhow::Result<(Self, Arc<Heard>)> {
        let heard = Arc::new(Heard::default());
        let noting = heard.clone();
        let take = move |event: Event| noting.note(event.watched.name, Instant::now());
        Ok((Self::start(checked(authority)?, take).await?, heard))
    }
}

/// Senders are the runtimes that their certificates name.
pub(super) fn checked(authority: &str) -> anyhow::Result<Authentication> {
    let authorities = Authorities::from_pem(authority.as_bytes())?;
    let check = CertificateCheck::new(authorities, RuntimeIdFromCommonName);
    Ok(Authentication::Certificate(check))
}

/// KCP's gateway, with the listener behind it. Ends when it is dropped.
pub(super) struct Kcp {
    pub(super) address: SocketAddr,
    gateway: Arc<Gateway>,
    open: Option<(CancellationToken, JoinHandle<()>)>,
    ending: CancellationToken,
    _ends: DropGuard,
}

impl Kcp {
    /// Begins with KCP up.
    pub(super) async fn before(
        authority: &Authority,
        listener: SocketAddr,
    ) -> anyhow::Result<Self> {
        let leaf = authority.leaf("gateway")?;
        let ending = CancellationToken::new();
        let mut kcp = Self {
            address: free_address()?,
            gateway: Arc::new(Gateway::new(server(&authority.pem, &leaf)?, listener)),
            open: None,
            _ends: ending.clone().drop_guard(),
            ending,
        };
        kcp.open(Manner::Serve).await?;
        Ok(kcp)
    }

    /// Turns into this state at once, for those who are connected as well.
    pub(super) async fn turn(&mut self, state: State) -> anyhow::Result<()> {
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
        let closing = self.ending.child_token();
        let running = self.gateway.clone().run(listener, manner, closing.clone());
        self.open = Some((closing, tokio::spawn(running)));
        Ok(())
    }

    /// TLS handshakes of senders so far.
    pub(super) fn handshakes(&self) -> u64 {
        self.gateway.handshakes.load(Ordering::Relaxed)
    }
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

    /// Of all objects.
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

    pub(super) fn note(&self, object: String, now: Instant) {
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

/// Who is told of everything.
pub(super) const MANAGER: &str = "bench";
