//! Every replica's part: a leaf is taken into use once callers trust it.
//!
//! Invariant: the handle is only ever replaced by a pair that [`super::gate`] let through; it is never emptied. Trouble
//! is told three ways, each at its change: the condition, one log line, a metric. Deliberately absent: any write.

use std::sync::Arc;

use chassis::readiness::Condition;
use chassis::telemetry::error_chain;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serve::TlsHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::gate::{Hold, Offer, Trust, Verdict, gate, trust};
use super::observe::{Cell, LiveEntry, Sighting, StoredSecret};
use super::{
    CertificateMetrics, CertificateSettings, LOOK_AGAIN, Material, Pair, PairError, Validity,
};

/// Where a certificate goes, and who is told.
#[derive(Clone)]
pub struct Presenter {
    /// What the server presents.
    pub tls: TlsHandle,
    /// Not ready while nothing, or an expired leaf, is served; a remark while something is wrong with the next one.
    pub condition: Condition,
    /// Tells when the leaf in use expires.
    pub metrics: CertificateMetrics,
    /// The name that callers verify.
    pub settings: Arc<CertificateSettings>,
}

/// Serves what the Secret holds, until `shutdown`. The cells are those that [`super::watch_secret`] and
/// [`super::watch_entry`] write; needs no rights beside theirs.
pub async fn serve_from_secret(
    presenter: Presenter,
    secret: Cell<StoredSecret>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
) {
    present(presenter, secret, entry, shutdown).await;
}

/// Serves what the certificate files hold, until `shutdown`. The cells are those that [`super::watch_files`] and
/// [`super::watch_entry`] write; needs no rights beside the latter's.
pub async fn serve_from_files(
    presenter: Presenter,
    files: Cell<Material>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
) {
    present(presenter, files, entry, shutdown).await;
}

impl AsRef<Material> for StoredSecret {
    fn as_ref(&self) -> &Material {
        &self.material
    }
}

impl AsRef<Self> for Material {
    fn as_ref(&self) -> &Self {
        self
    }
}

async fn present<T: AsRef<Material>>(
    presenter: Presenter,
    source: Cell<T>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
) {
    let (mut sources, mut entries) = (source.subscribe(), entry.subscribe());
    let mut state = State::new(presenter);
    let serve = async {
        loop {
            let material = sources.borrow_and_update().clone();
            let live = entries.borrow_and_update().clone();
            state.look(&material, &live, Timestamp::now());
            tokio::select! {
                _ = sources.changed() => {}
                _ = entries.changed() => {}
                // For the leaf in use may expire.
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    };
    shutdown.run_until_cancelled(serve).await;
}

struct State {
    presenter: Presenter,
    served: Option<Served>,
    told: Option<Hold>,
}

struct Served {
    chain: Vec<CertificateDer<'static>>,
    validity: Validity,
}

impl State {
    fn new(presenter: Presenter) -> Self {
        Self {
            presenter,
            served: None,
            told: None,
        }
    }

    fn look<T: AsRef<Material>>(
        &mut self,
        source: &Sighting<T>,
        entry: &Sighting<LiveEntry>,
        now: Timestamp,
    ) {
        let read = match source {
            Sighting::Unknown => Err((Offer::Unknown, None)),
            Sighting::Absent => Err((Offer::Missing, None)),
            Sighting::Present(found) => {
                Pair::read((**found).as_ref()).map_err(|error| (Offer::Unusable, Some(error)))
            }
        };
        match read {
            Err((offer, error)) => self.hold_or(gate(offer, Trust::Unknown), error.as_ref(), now),
            Ok(pair) => {
                let name = self.presenter.settings.server_name();
                let verdict = gate(self.offer(&pair, now), trust(&pair, entry, name, now));
                if verdict == Verdict::Swap {
                    self.swap(pair);
                }
                self.hold_or(verdict, None, now);
            }
        }
    }

    fn offer(&self, pair: &Pair, now: Timestamp) -> Offer {
        let served = self.served.as_ref();
        if !pair.validity().contains(now) {
            Offer::Outdated
        } else if served.is_some_and(|served| served.chain == pair.chain()) {
            Offer::Served
        } else {
            Offer::New
        }
    }

    fn swap(&mut self, pair: Pair) {
        let validity = pair.validity();
        self.served = Some(Served {
            chain: pair.chain().to_vec(),
            validity,
        });
        self.presenter.tls.replace(pair.into_config());
        self.presenter.metrics.serving_until(validity.not_after);
        tracing::info!(expires = %validity.not_after, "serving certificate activated");
    }

    fn hold_or(&mut self, verdict: Verdict, error: Option<&PairError>, now: Timestamp) {
        let hold = match verdict {
            Verdict::Hold(hold) => Some(hold),
            Verdict::Swap | Verdict::Settled => None,
        };
        self.tell(hold, error);
        let condition = &self.presenter.condition;
        match (&self.served, hold) {
            (None, hold) => {
                condition.not_ready(hold.map_or("no active certificate", Hold::text));
            }
            (Some(served), _) if !served.validity.contains(now) => {
                let end = served.validity.not_after;
                condition.not_ready(format!("active certificate expired at {end}"));
            }
            (Some(_), None) => condition.ready(),
            (Some(_), Some(hold)) => {
                let text = hold.text();
                condition.detail(format!("{text}; the last valid one is still served"));
            }
        }
    }

    fn tell(&mut self, hold: Option<Hold>, error: Option<&PairError>) {
        if self.told == hold {
            return;
        }
        self.told = hold;
        let Some(hold) = hold else {
            return;
        };
        self.presenter.metrics.held(hold.as_str());
        let error = error.map(|error| error_chain(error));
        let reason = hold.text();
        if hold.is_ordinary() {
            tracing::info!(reason, "serving certificate activation deferred");
        } else {
            tracing::warn!(reason, error, "serving certificate rejected");
        }
    }
}

#[cfg(test)]
mod tests;
