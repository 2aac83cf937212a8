//! From a request to the runtime that sent it, in steps of which each may refuse.
//!
//! Invariant: unless the operator says [`Authentication::None`], no event has a runtime id that a certificate of the
//! authorities in force does not carry. Deliberately absent: HTTP answers (`answer` maps each refusal).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::event::WatchEvent;
use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;

use crate::answer::Refused;
use crate::authorities::Authorities;
use crate::certificate::{ClientCertificate, RuntimeId};
use crate::forwarded::{self, ForwardedError, Print, TrustedHops};
use crate::verifier::{Claim, Refusal, Verifier};

/// Whether senders are told apart.
#[derive(Clone)]
pub enum Authentication {
    /// By the certificate that the gateway forwards.
    Certificate(CertificateCheck),
    /// Not at all: whoever reaches the port is believed, events carry no runtime id, and there are no heartbeats.
    /// For tests, and where something in front of the listener decides.
    None,
}

/// How a forwarded certificate is checked.
#[derive(Clone)]
pub struct CertificateCheck {
    /// Who signs the fleet's certificates.
    pub authorities: Authorities,
    /// How many proxies write into the header.
    pub trusted_hops: TrustedHops,
    /// Who may send, of those whose certificate holds.
    pub verifier: Arc<dyn Verifier>,
    /// How long [`verifier`](Self::verifier) may take before the request is answered 503. Default 5 s.
    pub patience: Duration,
    /// What time it is, for the dates of certificates. Default: the system's clock.
    pub clock: fn() -> SystemTime,
}

impl CertificateCheck {
    /// The defaults: the gateway alone writes into the header.
    #[must_use]
    pub fn new(authorities: Authorities, verifier: impl Verifier) -> Self {
        Self {
            authorities,
            trusted_hops: TrustedHops::None,
            verifier: Arc::new(verifier),
            patience: Duration::from_secs(5),
            clock: SystemTime::now,
        }
    }

    /// The sender's certificate, if chain, dates and usage hold.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Result<Arc<ClientCertificate>, Refused> {
        let (hops, now) = (&self.trusted_hops, (self.clock)());
        let value = forwarded::only_value(headers).map_err(Refused::Forwarded)?;
        let (print, authorities) = (Print::of(value, hops), self.authorities.in_force());
        if let Some(client) = authorities.known(&print, now) {
            return Ok(client);
        }
        let der = forwarded::client_certificate(value, hops).map_err(|error| match error {
            ForwardedError::NotTheGateway => Refused::NotTheGateway,
            other => Refused::Forwarded(other),
        })?;
        let client = ClientCertificate::read(der).map_err(Refused::Malformed)?;
        authorities
            .verify(print, client, now)
            .map_err(Refused::Chain)
    }

    /// The runtime that the sender may speak for.
    pub(crate) async fn runtime(
        &self,
        client: &ClientCertificate,
        event: Option<&WatchEvent>,
    ) -> Result<RuntimeId, Refused> {
        let claim = Claim { client, event };
        timeout(self.patience, self.verifier.verify(claim))
            .await
            .unwrap_or_else(|late| Err(Refusal::Unavailable(late.into())))
            .map_err(Refused::Verifier)
    }
}

/// Checks that the TLS peer is the gateway: one of the leaf's alternative names is `name`.
pub(crate) fn is_gateway(leaf: &CertificateDer<'static>, name: &str) -> bool {
    ClientCertificate::read(leaf.clone())
        .is_ok_and(|peer| peer.alternative_names().iter().any(|it| it == name))
}

#[cfg(test)]
mod tests;
