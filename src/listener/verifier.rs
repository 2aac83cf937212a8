//! Who may send, decided on a certificate whose chain already holds.
//!
//! The required optional verification function; its example, SAN pinning, is [`SanPinning`]. Invariant: a verifier
//! never sees a certificate that the authorities have not signed for now. A refusal is an answer (4xx), never a silent
//! drop: the public listener answered 200 to what it threw away.

use std::borrow::Cow;
use std::error::Error as StdError;

use api::event::WatchEvent;
use futures::future::BoxFuture;
use futures::{FutureExt as _, future};

use crate::certificate::{ClientCertificate, RuntimeId};

/// What a verifier judges.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The sender's certificate; chain, dates and usage hold.
    pub client: &'a ClientCertificate,
    /// What it reports; `None` for a heartbeat.
    pub event: Option<&'a WatchEvent>,
}

/// Why a claim is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The certificate names no runtime. Answered 400, as in the public listener.
    #[error("common name of the client certificate: not a valid runtime ID")]
    NoRuntimeId,
    /// The sender is known and may not. Answered 403. The text goes to the sender.
    #[error("{0}")]
    Denied(Cow<'static, str>),
    /// It cannot be told now. Answered 503 with `Retry-After`; the source goes to the log alone.
    #[error("client cannot be verified at the moment")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

/// Decides whether a claim is accepted, and which runtime it is from.
pub trait Verifier: Send + Sync + 'static {
    /// The runtime that `claim` is from. Answers late only at the sender's cost: after
    /// [`CertificateCheck::patience`](crate::CertificateCheck::patience) the request is answered 503.
    fn verify<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<RuntimeId, Refusal>>;
}

/// Believes each certificate of the fleet's authority; its common name is the runtime id.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeIdFromCommonName;

impl Verifier for RuntimeIdFromCommonName {
    fn verify<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<RuntimeId, Refusal>> {
        future::ready(runtime_id(claim.client)).boxed()
    }
}

/// Where [`SanPinning`] learns the domain of a runtime.
pub trait SkrDomainLookup: Send + Sync + 'static {
    /// The annotation `skr-domain` of the Kyma that belongs to `runtime`; `None` when there is no such Kyma or it has
    /// no domain.
    ///
    /// # Errors
    /// It cannot be told now.
    fn skr_domain<'a>(
        &'a self,
        runtime: &'a RuntimeId,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn StdError + Send + Sync>>>;
}

/// Believes a certificate whose runtime has a Kyma, and which has that Kyma's `skr-domain` among its subject
/// alternative names. So a certificate serves one runtime only, and none that is gone.
#[derive(Clone, Debug)]
pub struct SanPinning<L> {
    lookup: L,
}

impl<L: SkrDomainLookup> SanPinning<L> {
    /// Pins to what `lookup` says.
    pub fn new(lookup: L) -> Self {
        Self { lookup }
    }
}

impl<L: SkrDomainLookup> Verifier for SanPinning<L> {
    fn verify<'a>(&'a self, claim: Claim<'a>) -> BoxFuture<'a, Result<RuntimeId, Refusal>> {
        async move {
            let runtime = runtime_id(claim.client)?;
            let domain = self.lookup.skr_domain(&runtime).await;
            let domain = domain
                .map_err(Refusal::Unavailable)?
                .ok_or(Refusal::Denied("the runtime is not known".into()))?;
            // DNS names have no letter case.
            let pinned = |name: &String| name.eq_ignore_ascii_case(&domain);
            if claim.client.alternative_names().iter().any(pinned) {
                Ok(runtime)
            } else {
                Err(Refusal::Denied(
                    "the client certificate is not for the runtime's domain".into(),
                ))
            }
        }
        .boxed()
    }
}

fn runtime_id(client: &ClientCertificate) -> Result<RuntimeId, Refusal> {
    client
        .common_name()
        .and_then(RuntimeId::parse)
        .ok_or(Refusal::NoRuntimeId)
}

#[cfg(test)]
mod tests;
