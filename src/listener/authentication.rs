//! Determines the runtime that sent a request: the forwarded certificate, its verification, and the verifier of the operator.
//!
//! Invariant: except with [`Authentication::Disabled`], each runtime ID comes from a certificate that a trusted CA has
//! signed and that is valid now. A verifier never gets another certificate. A rejection is a response (4xx), and a request
//! is never dropped silently.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use http::HeaderMap;
use rustls_pki_types::CertificateDer;
use tokio::time::timeout;
use watcher_types::WatchEvent;

use crate::certificate::{ClientCertificate, RuntimeId, TrustAnchors};
use crate::rejection::Rejection;
use crate::xfcc::{self, ForwardedError, TrustedHops};

/// How senders are authenticated.
#[derive(Clone)]
#[non_exhaustive]
pub enum Authentication {
    /// By the certificate that the gateway forwards.
    Certificate(CertificateCheck),
    /// No authentication: each request on the port is accepted as a request of `runtime_id`, and heartbeats are not
    /// supported. For tests.
    Disabled {
        /// The runtime to which all events are attributed.
        runtime_id: RuntimeId,
    },
}

impl From<CertificateCheck> for Authentication {
    fn from(check: CertificateCheck) -> Self {
        Self::Certificate(check)
    }
}

/// Options for the verification of a forwarded certificate. Create the defaults with [`CertificateCheck::new`], then change
/// fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct CertificateCheck {
    /// CAs that sign the certificates of the fleet.
    pub trust_anchors: TrustAnchors,
    /// Number of proxies that write into the header.
    pub trusted_hops: TrustedHops,
    /// Decides which clients with a valid certificate may send.
    pub verifier: Arc<dyn Verifier>,
    /// Timeout of [`verifier`](Self::verifier), after which the response is 503. Default 5 s.
    pub verifier_timeout: Duration,
    /// Clock that is compared with the validity of certificates. Default: the system clock.
    pub clock: fn() -> SystemTime,
}

impl CertificateCheck {
    /// Returns the defaults: only the gateway writes into the header.
    #[must_use]
    pub fn new(trust_anchors: TrustAnchors, verifier: impl Verifier) -> Self {
        Self {
            trust_anchors,
            trusted_hops: TrustedHops::None,
            verifier: Arc::new(verifier),
            verifier_timeout: Duration::from_secs(5),
            clock: SystemTime::now,
        }
    }

    /// Returns the certificate of the sender, if chain, validity and usage are valid.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Result<Arc<ClientCertificate>, Rejection> {
        let bundle = self.trust_anchors.bundle();
        Ok(bundle.client(self.forwarded(headers)?, (self.clock)())?)
    }

    /// Returns the client that a header names, without verification of the certificate.
    pub(crate) fn claimed(&self, headers: &HeaderMap) -> Option<ClientCertificate> {
        ClientCertificate::read(self.forwarded(headers).ok()?).ok()
    }

    fn forwarded(&self, headers: &HeaderMap) -> Result<CertificateDer<'static>, ForwardedError> {
        xfcc::client_certificate(xfcc::only_value(headers)?, &self.trusted_hops)
    }

    /// Returns the runtime of the sender.
    pub(crate) async fn runtime(
        &self,
        certificate: Arc<ClientCertificate>,
        event: Option<Arc<WatchEvent>>,
    ) -> Result<RuntimeId, Rejection> {
        let identity = ClientIdentity { certificate, event };
        timeout(self.verifier_timeout, self.verifier.verify(identity))
            .await
            .unwrap_or_else(|late| Err(VerifyError::Unavailable(late.into())))
            .map_err(Rejection::Verifier)
    }
}

/// Input of a [`Verifier`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientIdentity {
    /// Certificate of the sender. Its chain, validity and usage are valid.
    pub certificate: Arc<ClientCertificate>,
    /// Event in the request; `None` for a heartbeat.
    pub event: Option<Arc<WatchEvent>>,
}

/// Reason why a client is not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The certificate contains no valid runtime ID. The response is 400, as in the public listener.
    #[error("common name of the client certificate: not a valid runtime ID")]
    NoRuntimeId,
    /// The sender is known and not allowed. The response is 403, and contains the text.
    #[error("{0}")]
    Denied(Cow<'static, str>),
    /// The verifier has no result at the moment. The response is 503 with `Retry-After`; the source is only logged.
    #[error("client cannot be verified at the moment")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

/// Decides whether a client is accepted, and to which runtime it belongs. Implemented for each closure `Fn(ClientIdentity)
/// -> impl Future<Output = Result<RuntimeId, VerifyError>>`.
pub trait Verifier: Send + Sync + 'static {
    /// Returns the runtime of the client. After [`CertificateCheck::verifier_timeout`] the response is 503.
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>>;
}

impl<F, R> Verifier for F
where
    F: Fn(ClientIdentity) -> R + Send + Sync + 'static,
    R: Future<Output = Result<RuntimeId, VerifyError>> + Send + 'static,
{
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        self(identity).boxed()
    }
}

/// Accepts each certificate of the fleet's CA. Its common name is the runtime ID.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeIdFromCommonName;

impl Verifier for RuntimeIdFromCommonName {
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        future::ready(runtime_id(&identity.certificate)).boxed()
    }
}

/// Lookup of the domain of a runtime for [`SanPinning`].
pub trait SkrDomainLookup: Send + Sync + 'static {
    /// Returns the annotation `skr-domain` of the Kyma of `runtime`; `None` if there is no such Kyma or it has no domain.
    ///
    /// # Errors
    /// The domain is not known at the moment.
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn StdError + Send + Sync>>>;
}

/// Accepts a certificate whose runtime has a Kyma, if the `skr-domain` of that Kyma is a DNS name of the certificate.
/// Therefore a certificate is valid for one runtime only, and not after its Kyma is deleted.
#[derive(Clone, Debug)]
pub struct SanPinning<L>(L);

impl<L: SkrDomainLookup> SanPinning<L> {
    /// Creates a verifier that compares with the domains of `lookup`.
    pub fn new(lookup: L) -> Self {
        Self(lookup)
    }

    async fn runtime(&self, client: &ClientCertificate) -> Result<RuntimeId, VerifyError> {
        let runtime = runtime_id(client)?;
        let domain = self.0.skr_domain(&runtime).await;
        let domain = domain
            .map_err(VerifyError::Unavailable)?
            .ok_or(VerifyError::Denied("the runtime is not known".into()))?;
        // DNS names are case-insensitive.
        let pinned = |name: &String| name.eq_ignore_ascii_case(&domain);
        if client.dns_names().iter().any(pinned) {
            return Ok(runtime);
        }
        let text = "the client certificate is not for the runtime's domain";
        Err(VerifyError::Denied(text.into()))
    }
}

impl<L: SkrDomainLookup> Verifier for SanPinning<L> {
    fn verify(&self, identity: ClientIdentity) -> BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        async move { self.runtime(&identity.certificate).await }.boxed()
    }
}

fn runtime_id(client: &ClientCertificate) -> Result<RuntimeId, VerifyError> {
    client
        .common_name()
        .and_then(RuntimeId::parse)
        .ok_or(VerifyError::NoRuntimeId)
}

#[cfg(test)]
mod tests;
