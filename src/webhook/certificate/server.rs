//! What every replica does: it serves a certificate once the live `caBundle` verifies it.
//!
//! The certificate in use is only ever replaced by one that is [`usable`]; it is never removed. A deferral is told at its
//! begin by the readiness check, one log line and a metric.

use std::sync::Arc;

use chassis::readiness::Condition;
use chassis::telemetry::error_chain;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serve::TlsHandle;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Bundle, CertificateMetrics, CertificateSettings, LOOK_AGAIN, LiveEntry, Observed, Pair,
    StoredCertificate, Validity,
};

/// Why a certificate is not activated, or why the active one is not trusted: the label of metrics, and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferReason(&'static str, &'static str);

impl DeferReason {
    const NOT_READ: Self = Self("not_read_yet", "the certificate was not read yet");
    const MISSING: Self = Self("missing", "certificate is missing");
    const UNUSABLE: Self = Self("unusable", "the certificate cannot be used");
    const OUTDATED: Self = Self("outdated", "the certificate is expired or not valid yet");
    const ENTRY_NOT_READ: Self = Self(
        "entry_not_read_yet",
        "the webhook configuration was not read yet",
    );
    const UNTRUSTED: Self = Self(
        "untrusted",
        "the live caBundle does not verify the certificate",
    );

    /// Whether it occurs at each start or rotation.
    fn is_expected(self) -> bool {
        [Self::NOT_READ, Self::ENTRY_NOT_READ, Self::UNTRUSTED].contains(&self)
    }
}

/// Whether API servers that ask for `name` accept the certificate. Without a webhook entry none asks.
pub(super) fn usable(
    pair: &Pair,
    entry: &Observed<LiveEntry>,
    name: &str,
    now: Timestamp,
) -> Result<(), DeferReason> {
    if !pair.validity().contains(now) {
        return Err(DeferReason::OUTDATED);
    }
    match entry {
        Observed::Unknown => Err(DeferReason::ENTRY_NOT_READ),
        Observed::Absent => Ok(()),
        Observed::Present(live) => pair
            .verified_by(&Bundle::read(&live.ca_bundle), name, now)
            .then_some(())
            .ok_or(DeferReason::UNTRUSTED),
    }
}

/// Serves the certificate of the Secret or of the files.
pub(crate) struct CertificateServer {
    pub(crate) tls: TlsHandle,
    pub(crate) condition: Condition,
    pub(crate) metrics: CertificateMetrics,
    pub(crate) settings: Arc<CertificateSettings>,
    pub(crate) active: Option<(Vec<CertificateDer<'static>>, Validity)>,
    pub(crate) deferred: Option<DeferReason>,
}

impl CertificateServer {
    pub(crate) async fn run(
        mut self,
        mut certificate: watch::Receiver<Observed<StoredCertificate>>,
        mut entry: watch::Receiver<Observed<LiveEntry>>,
        shutdown: CancellationToken,
    ) {
        let serve = async {
            loop {
                let stored = certificate.borrow_and_update().clone();
                let live = entry.borrow_and_update().clone();
                self.update(&stored, &live, Timestamp::now());
                tokio::select! {
                    _ = certificate.changed() => {}
                    _ = entry.changed() => {}
                    // The active certificate may expire.
                    () = sleep(LOOK_AGAIN) => {}
                }
            }
        };
        shutdown.run_until_cancelled(serve).await;
    }

    fn update(
        &mut self,
        certificate: &Observed<StoredCertificate>,
        entry: &Observed<LiveEntry>,
        now: Timestamp,
    ) {
        let mut error = None;
        let name = self.settings.server_name();
        let pair = match certificate {
            Observed::Unknown => Err(DeferReason::NOT_READ),
            Observed::Absent => Err(DeferReason::MISSING),
            Observed::Present(stored) => Pair::read(&stored.material).map_err(|it| {
                error = Some(error_chain(&it));
                DeferReason::UNUSABLE
            }),
        };
        let pair = pair.and_then(|pair| usable(&pair, entry, name, now).map(|()| pair));
        let reason = pair.map(|pair| self.activate(pair)).err();
        if self.deferred != reason {
            self.deferred = reason;
            self.tell(error.as_deref());
        }
        let text = reason.map(|it| it.1);
        match (&self.active, text) {
            (None, text) => self
                .condition
                .not_ready(text.unwrap_or("no active certificate")),
            (Some((_, validity)), _) if !validity.contains(now) => {
                let end = validity.not_after;
                self.condition
                    .not_ready(format!("active certificate expired at {end}"));
            }
            (Some(_), None) => self.condition.ready(),
            (Some(_), Some(text)) => {
                let text = format!("{text}; the last valid one is still served");
                self.condition.detail(text);
            }
        }
    }

    fn activate(&mut self, pair: Pair) {
        if matches!(&self.active, Some((chain, _)) if *chain == pair.chain()) {
            return;
        }
        let validity = pair.validity();
        self.active = Some((pair.chain().to_vec(), validity));
        self.tls.replace(pair.into_config());
        self.metrics.activated(validity.not_after);
        tracing::info!(expires = %validity.not_after, "serving certificate activated");
    }

    fn tell(&self, error: Option<&str>) {
        let Some(reason @ DeferReason(label, text)) = self.deferred else {
            return;
        };
        self.metrics.deferred(label);
        if reason.is_expected() {
            tracing::info!(reason = text, "serving certificate activation deferred");
        } else {
            tracing::warn!(reason = text, error, "serving certificate rejected");
        }
    }
}

#[cfg(test)]
mod tests;
