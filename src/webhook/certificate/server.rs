//! Work of each replica: it serves a certificate after the live `caBundle` verifies it.
//!
//! The active certificate is only replaced by a certificate that is [`usable`], and is never removed. While the active
//! certificate is usable, its successor waits until all API servers have observed the `caBundle`. Otherwise an API server
//! would reject the successor, and admit Pods unchanged. The readiness check, one log message and a metric report the start
//! of a deferral.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serve::pair::CertificatePair;
use serve::{TlsHandle, server_config};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{
    Bundle, CertificateMetrics, CertificateSettings, LOOK_AGAIN, LiveEntry, Observed,
    StoredCertificate,
};

/// Reason why a certificate is not activated, or why the active certificate is not trusted. As a string it is a label value
/// of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, thiserror::Error)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DeferReason {
    #[error("the certificate was not read yet")]
    NotReadYet,
    #[error("certificate is missing")]
    Missing,
    #[error("the certificate cannot be used")]
    Unusable,
    #[error("the certificate is expired or not valid yet")]
    Outdated,
    #[error("the webhook configuration was not read yet")]
    EntryNotReadYet,
    #[error("the live caBundle does not verify the certificate")]
    Untrusted,
    #[error("API servers may not have observed the caBundle that verifies the certificate")]
    Propagating,
}

impl DeferReason {
    /// Returns whether the reason occurs at each start or rotation.
    fn is_expected(self) -> bool {
        !matches!(self, Self::Missing | Self::Unusable | Self::Outdated)
    }
}

/// Time in which all API servers observe a `caBundle` that was observed here: usually much less than a second.
const PROPAGATION: Duration = Duration::from_secs(5);

/// Returns whether API servers that connect to `name` accept the certificate. Without a webhook entry no API server connects.
pub(super) fn usable(
    pair: &CertificatePair,
    entry: &Observed<LiveEntry>,
    name: &str,
    now: SystemTime,
) -> Result<(), DeferReason> {
    let validity = pair.validity();
    validity.check(now).map_err(|_| DeferReason::Outdated)?;
    match entry {
        Observed::Unknown => Err(DeferReason::EntryNotReadYet),
        Observed::Present(live) if !Bundle::read(&live.ca_bundle).verifies(pair, name, now) => {
            Err(DeferReason::Untrusted)
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
    /// The chain that is activated next, and the time since when it has been usable.
    pub(crate) next: Option<(Vec<CertificateDer<'static>>, SystemTime)>,
    /// Start of the validity of the certificate, if it is in the future because the clock of the issuer is ahead.
    pub(crate) valid_from: Option<SystemTime>,
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
            // The active certificate may expire, or another certificate may become valid.
            let wait = self.remaining(SystemTime::now()).unwrap_or(LOOK_AGAIN);
            let wait = wait.min(LOOK_AGAIN);
            tokio::select! {
                _ = certificate.changed() => {}
                _ = entry.changed() => {}
                () = sleep(wait) => {}
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
            DeferReason::Unusable
        };
        let name = self.settings.server_name();
        let pair = match certificate {
            Observed::Unknown => Err(DeferReason::NotReadYet),
            Observed::Absent => Err(DeferReason::Missing),
            Observed::Present(stored) => stored.material.pair().map_err(|it| unusable(&it)),
        };
        let begin = pair.as_ref().ok().map(|it| it.validity().not_before);
        self.valid_from = begin.filter(|it| *it > now);
        let pair = pair.and_then(|pair| usable(&pair, entry, name, now).map(|()| pair));
        let is_working = |active: &CertificatePair| usable(active, entry, name, now).is_ok();
        let is_working = self.active.as_ref().is_some_and(is_working);
        if pair.is_err() {
            // The waiting certificate is not usable anymore.
            self.next = None;
        }
        let pair = pair.and_then(|pair| self.propagated(pair, is_working, now));
        let activated = pair.and_then(|pair| self.activate(pair).map_err(|it| unusable(&it)));
        let reason = activated.err();
        if self.deferred != reason {
            self.deferred = reason;
            self.tell(error.as_deref());
        }
        let condition = &self.condition;
        match (&self.active, reason) {
            (None, Some(reason)) => condition.not_ready(reason.to_string()),
            (None, None) => condition.not_ready("no active certificate"),
            (Some(active), _) if active.validity().check(now).is_err() => {
                let end = expiration(active);
                condition.not_ready(format!("active certificate expired at {end}"));
            }
            (Some(_), None) => condition.ready(),
            (Some(_), Some(reason)) => {
                condition.detail(format!("{reason}; the last valid one is still served"));
            }
        }
    }

    /// Returns a usable certificate when it may be activated: at once if the active certificate does not work.
    fn propagated(
        &mut self,
        pair: CertificatePair,
        is_active_working: bool,
        now: SystemTime,
    ) -> Result<CertificatePair, DeferReason> {
        let is_active = self.active.as_ref().map(CertificatePair::chain) == Some(pair.chain());
        if is_active || !is_active_working {
            self.next = None;
            return Ok(pair);
        }
        if !matches!(&self.next, Some((next, _)) if next == pair.chain()) {
            self.next = Some((pair.chain().to_vec(), now));
        }
        if self.remaining(now) != Some(Duration::ZERO) {
            return Err(DeferReason::Propagating);
        }
        self.next = None;
        Ok(pair)
    }

    /// Returns the time until the next certificate may be activated, if there is one.
    fn remaining(&self, now: SystemTime) -> Option<Duration> {
        if let Some(begin) = self.valid_from {
            return Some(begin.duration_since(now).unwrap_or_default());
        }
        let (_, since) = self.next.as_ref()?;
        // A clock that was set back must not extend the wait.
        let waited = now.duration_since(*since).unwrap_or(PROPAGATION);
        Some(PROPAGATION.saturating_sub(waited))
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
        let Some(reason) = self.deferred else { return };
        let label = [("reason", reason.into())];
        self.metrics.deferrals.get_or_create(&label).inc();
        if reason.is_expected() {
            tracing::info!(%reason, "serving certificate activation deferred");
        } else {
            tracing::warn!(%reason, error, "serving certificate rejected");
        }
    }
}

pub(super) fn expiration(pair: &CertificatePair) -> Timestamp {
    Timestamp::try_from(pair.validity().not_after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
