//! Certificates of both sides: of the gateway and of the watcher, all of one CA.

use std::sync::{Arc, PoisonError};

use testkit::pki::Authority;

use super::environment::Watching;
use super::{DOMAIN, RUNTIME};
use crate::gateway::{self, Certificates};

impl Watching {
    /// The CA that signs now.
    pub(crate) fn authority(&self) -> Arc<Authority> {
        let current = self.authority.lock();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Rotates the CA of both sides without an interruption: first both CAs are trusted, then the new one signs, then the
    /// old one is no longer trusted.
    pub(crate) async fn rotate(&self) -> anyhow::Result<()> {
        let old = self.authority();
        let new = Arc::new(fresh_authority()?);
        let both = [old.as_ref(), new.as_ref()];
        self.distribute(&old, &both).await?;
        self.distribute(&new, &both).await?;
        *self
            .authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Arc::clone(&new);
        self.distribute(&new, &[&new]).await
    }

    /// Gives certificates of the current CA to both sides, which then trust no other one.
    pub(crate) async fn restore_certificates(&self) -> anyhow::Result<()> {
        let current = self.authority();
        self.distribute(&current, &[&current]).await
    }

    async fn distribute(&self, signer: &Authority, trusted: &[&Authority]) -> anyhow::Result<()> {
        let bundle: String = trusted.iter().map(|it| it.pem()).collect();
        self.trusted.replace(bundle.as_bytes())?;
        let certificates = gateway_certificates(signer, trusted)?;
        self.gateway.renew(&self.kcp, &certificates).await?;
        self.runtime
            .renew(&watcher_certificates(signer, trusted)?)
            .await
    }
}

pub(super) fn fresh_authority() -> anyhow::Result<Authority> {
    Ok(Authority::new(&format!(
        "watcher CA {:016x}",
        fastrand::u64(..)
    ))?)
}

pub(super) fn gateway_certificates(
    signer: &Authority,
    trusted: &[&Authority],
) -> anyhow::Result<Certificates> {
    let host = gateway::HOST;
    Ok(Certificates::issue(signer, host, &[host], trusted)?)
}

/// One certificate for both directions, as the lifecycle manager orders it: for the Service of the webhook, and for KCP.
pub(super) fn watcher_certificates(
    signer: &Authority,
    trusted: &[&Authority],
) -> anyhow::Result<Certificates> {
    let names = [
        DOMAIN,
        "skr-webhook.kyma-system.svc",
        "skr-webhook.kyma-system.svc.cluster.local",
    ];
    Ok(Certificates::issue(signer, RUNTIME, &names, trusted)?)
}
