//! The watcher's certificates, in force in both directions as soon as they are on the disk.
//!
//! One pair of certificate and key serves two ends: API servers see it as the webhook's, KCP as the runtime's.
//! The public watcher reads it once for the one and per event for the other, so that
//! the two differ until a restart. Here both follow the files within two polls.
//!
//! Invariants:
//! - A set that is no good never replaces one that was; it is told once, by name ([`CertificateError`]).
//! - A mounted Secret changes by a swap of links, which no watch on the files would see, and the files may be read in
//!   the middle of it: so they are polled, compared by content, and a fault counts when it is seen twice.
//! - Whoever connects to KCP uses the configuration of one generation; the session cache goes with it.
//! - The pair alone is enough to serve: with a broken `CA_CERT`, changes are still seen and spooled.
//!
//! Deliberately absent: issuing certificates, and what is older than the files (a revocation list, the system's roots).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use chassis::telemetry::error_chain;
use rustls::ClientConfig;
use serve::TlsHandle;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use self::error::{CertificateError, CertificateFile};
use self::files::{Files, Fingerprint};
use self::material::{Authorities, Pair};

mod error;
mod files;
mod material;
mod server_leaf;

/// The largest file that is read, in bytes: no Secret can be larger.
pub const FILE_BYTES: usize = 1 << 20;

/// How often the files are looked at. The kubelet takes up to a minute to bring a change, so this is nothing beside it.
pub const POLL: Duration = Duration::from_secs(2);

/// Certificates' dates count whole seconds; the last of them is part of their time.
const SECOND: Duration = Duration::from_secs(1);

/// Where the files are, and what is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOptions {
    /// `CA_CERT`: the bundle of authorities by which KCP is known; all in it are trusted. KCP may serve with one of these
    /// certificates itself, as the public gateway does.
    pub authorities: PathBuf,
    /// `TLS_CERT`: the watcher's certificate and its intermediates.
    pub certificate: PathBuf,
    /// `TLS_KEY`: its key, in PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// The certificates in force. Clones share them.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

/// What is in force, for metrics and readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateReport {
    /// How many sets have been put in force, complete ones.
    pub generation: u64,
    /// When the certificate that is shown expires; `None`: there is none to show.
    pub not_after: Option<SystemTime>,
    /// Whether it has, in force: API servers refuse it, as if there were none to show.
    pub expired: bool,
    /// What is wrong with the files now.
    pub problem: Option<String>,
    /// How many times something was wrong with them.
    pub refusals: u64,
}

/// How to speak to KCP.
pub(crate) struct Outbound {
    /// Counts the sets, so that connections can be told apart by it.
    pub(crate) generation: u64,
    pub(crate) config: Arc<ClientConfig>,
}

/// How to speak to KCP, or why we cannot.
pub(crate) type OutboundState = Result<Arc<Outbound>, Arc<CertificateError>>;

struct Shared {
    options: CertificateOptions,
    tls: TlsHandle,
    outbound: watch::Sender<OutboundState>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The pair that is shown to API servers.
    pair: Option<Fingerprint>,
    /// All files, in force in both directions.
    all: Option<Fingerprint>,
    generation: u64,
    not_after: Option<SystemTime>,
    expired: bool,
    problem: Option<Problem>,
    refusals: u64,
}

struct Problem {
    text: String,
    told: bool,
}

impl Certificates {
    /// Reads the files for the first time. Whatever is wrong with them is told and does not stop anybody: they may
    /// become good.
    #[must_use]
    pub fn load(options: CertificateOptions) -> Self {
        let certificates = Self {
            shared: Arc::new(Shared {
                options,
                tls: TlsHandle::empty(),
                outbound: watch::Sender::new(Err(Arc::new(CertificateError::Unread))),
                state: Mutex::default(),
            }),
        };
        certificates.poll(SystemTime::now());
        certificates
    }

    /// What API servers are shown: TLS 1.3 only; empty until the first good pair.
    #[must_use]
    pub fn tls(&self) -> TlsHandle {
        self.shared.tls.clone()
    }

    /// What is in force now.
    #[must_use]
    pub fn report(&self) -> CertificateReport {
        let state = self.lock();
        let told = state.problem.as_ref().filter(|problem| problem.told);
        CertificateReport {
            generation: state.generation,
            not_after: state.not_after,
            expired: state.expired,
            problem: told.map(|problem| problem.text.clone()),
            refusals: state.refusals,
        }
    }

    /// Looks at the files every [`POLL`] until `cancel`.
    pub async fn run(self, cancel: CancellationToken) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while cancel.run_until_cancelled(ticks.tick()).await.is_some() {
            let certificates = self.clone();
            let polled = tokio::task::spawn_blocking(move || certificates.poll(SystemTime::now()));
            // An error: the runtime is ending.
            let _ = polled.await;
        }
    }

    /// How to speak to KCP, now and as it changes.
    pub(crate) fn outbound(&self) -> watch::Receiver<OutboundState> {
        self.shared.outbound.subscribe()
    }

    /// Looks at the files now.
    pub(crate) fn poll(&self, now: SystemTime) {
        let files = Files::read(&self.shared.options);
        let mut state = self.lock();
        state.look_at(now);
        let all = files.all();
        if all.is_some() && all == state.all {
            if state.expired {
                state.refuse(&CertificateError::Expired(CertificateFile::Certificate));
            } else {
                state.settle();
            }
            return;
        }
        match self.adopt(&mut state, files, now) {
            Ok(()) => state.settle(),
            Err(error) => {
                state.refuse(&error);
                self.shared.outbound.send_if_modified(|outbound| {
                    let unusable = outbound.is_err();
                    if unusable {
                        *outbound = Err(Arc::new(error));
                    }
                    unusable
                });
            }
        }
    }

    /// Puts in force what is good of the files: the pair first, for it does not need the authorities.
    fn adopt(
        &self,
        state: &mut State,
        files: Files,
        now: SystemTime,
    ) -> Result<(), CertificateError> {
        let (new_pair, new_all) = (files.pair(), files.all());
        let pair = Pair::read(&files.certificate?, &files.key?, now)?;
        if new_pair != state.pair {
            self.shared.tls.replace(pair.server_config()?);
            state.pair = new_pair;
            state.not_after = Some(pair.not_after);
            state.look_at(now);
        }
        let authorities = Authorities::read(&files.authorities?, now)?;
        let skipped = authorities.skipped;
        let config = pair.client_config(authorities)?;
        state.all = new_all;
        state.generation += 1;
        let generation = state.generation;
        tracing::info!(generation, skipped, "certificates reloaded");
        let outbound = Ok(Arc::new(Outbound {
            generation,
            config: Arc::new(config),
        }));
        self.shared.outbound.send_modify(|it| *it = outbound);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn look_at(&mut self, now: SystemTime) {
        self.expired = self.not_after.is_some_and(|last| now >= last + SECOND);
    }

    fn settle(&mut self) {
        if self.problem.take().is_some_and(|problem| problem.told) {
            tracing::info!("certificate files valid again");
        }
    }

    /// Tells a fault that has lasted for two polls, or that leaves nothing in force; once.
    fn refuse(&mut self, error: &CertificateError) {
        let text = error_chain(error);
        let lasts = matches!(&self.problem, Some(known) if known.text == text);
        let told = lasts && self.problem.as_ref().is_some_and(|known| known.told);
        let tell = !told && (lasts || self.all.is_none());
        if tell {
            self.refusals += 1;
            let in_force = self.generation;
            tracing::error!(error = text, in_force, "failed to reload certificates");
        }
        self.problem = Some(Problem {
            text,
            told: told || tell,
        });
    }
}

#[cfg(test)]
mod tests;
