//! What every replica does: it serves a certificate once the live `caBundle` verifies it.
//!
//! The certificate in use is only ever replaced by one that is [`usable`]; it is never removed. A deferral is told at its
//! begin by the readiness check, one log line and a metric.

use std::error::Error;
use std::sync::Arc;
use std::time::SystemTime;

use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use jiff::Timestamp;
use serve::pair::CertificatePair;
use serve::{TlsHandle, server_config};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{
    Bundle, CertificateMetrics, CertificateSettings, LOOK_AGAIN, LiveEntry, Observed,
    StoredCertificate,
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
    pair: &CertificatePair,
    entry: &Observed<LiveEntry>,
    name: &str,
    now: SystemTime,
) -> Result<(), DeferReason> {
    let validity = pair.validity();
    validity.check(now).map_err(|_| DeferReason::OUTDATED)?;
    match entry {
        Observed::Unknown => Err(DeferReason::ENTRY_NOT_READ),
        Observed::Present(live) if !Bundle::read(&live.ca_bundle).verifies(pair, name, now) => {
            Err(DeferReason::UNTRUSTED)
        }
        Observed::Absent | Observed::Present(_) => Ok(()),
    }
}

/// Serves the certificate of the Secret or of the files.
pub(crate) struct CertificateServer {
    pub(crate) tls: TlsHandle,
    pub(crate) condition: ReadinessCheck,
    pub(crate) metrics: CertificateMetrics,
    pub(crate) settings: Arc<CertificateSettings>,
    pub(crate) active: Option<CertificatePair>,
    pub(crate) deferred: Option<DeferReason>,
}

impl CertificateServer {
    pub(crate) async fn run(
        mut self,
        mut certificate: watch::Receiver<Observed<StoredCertificate>>,
        mut entry: watch::Receiver<Observed<LiveEntry>>,
    ) {
        loop {
            let stored = certificate.borrow_and_update().clone();
            let live = entry.borrow_and_update().clone();
            self.update(&stored, &live, SystemTime::now());
            tokio::select! {
                _ = certificate.changed() => {}
                _ = entry.changed() => {}
                // The active certificate may expire.
                () = sleep(LOOK_AGAIN) => {}
            }
        }
    }

    fn update(
        &mut self,
        certificate: &Observed<StoredCertificate>,
        entry: &Observed<LiveEntry>,
        now: SystemTime,
    ) {
        let mut error = None;
        let mut unusable = |it: &(dyn Error + 'static)| {
            error = Some(error_chain(it));
            DeferReason::UNUSABLE
        };
        let name = self.settings.server_name();
        let pair = match certificate {
            Observed::Unknown => Err(DeferReason::NOT_READ),
            Observed::Absent => Err(DeferReason::MISSING),
            Observed::Present(stored) => stored.material.pair().map_err(|it| unusable(&it)),
        };
        let pair = pair.and_then(|pair| usable(&pair, entry, name, now).map(|()| pair));
        let activated = pair.and_then(|pair| self.activate(pair).map_err(|it| unusable(&it)));
        let reason = activated.err();
        if self.deferred != reason {
            self.deferred = reason;
            self.tell(error.as_deref());
        }
        let condition = &self.condition;
        match (&self.active, reason.map(|it| it.1)) {
            (None, text) => condition.not_ready(text.unwrap_or("no active certificate")),
            (Some(active), _) if active.validity().check(now).is_err() => {
                let end = expiration(active);
                condition.not_ready(format!("active certificate expired at {end}"));
            }
            (Some(_), None) => condition.ready(),
            (Some(_), Some(text)) => {
                condition.detail(format!("{text}; the last valid one is still served"));
            }
        }
    }

    fn activate(&mut self, pair: CertificatePair) -> Result<(), rustls::Error> {
        if matches!(&self.active, Some(active) if active.chain() == pair.chain()) {
            return Ok(());
        }
        self.tls.replace(server_config(&pair)?);
        let expires = expiration(&pair);
        self.metrics.expiration.set(expires.as_second());
        tracing::info!(%expires, "serving certificate activated");
        self.active = Some(pair);
        Ok(())
    }

    fn tell(&self, error: Option<&str>) {
        let Some(reason @ DeferReason(label, text)) = self.deferred else {
            return;
        };
        let deferrals = &self.metrics.deferrals;
        deferrals.get_or_create(&[("reason", label)]).inc();
        if reason.is_expected() {
            tracing::info!(reason = text, "serving certificate activation deferred");
        } else {
            tracing::warn!(reason = text, error, "serving certificate rejected");
        }
    }
}

fn expiration(pair: &CertificatePair) -> Timestamp {
    Timestamp::try_from(pair.validity().not_after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
