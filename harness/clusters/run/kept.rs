//! Containers and their network that are kept on request until `cargo harness cluster down`.
//!
//! They belong to one checkout on one host. Names and labels contain a hash of both, so that another checkout, or another host
//! with the same Docker socket, neither uses nor removes them.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use testkit::until::until;

use crate::docker::{self, Labelled};
use crate::images::digest;
use crate::workspace;

/// Label of kept objects; the value is a digest of the image and the options.
pub(super) const KEPT: &str = "kyma.harness.kept";
/// Label with the checkout and the host for which an object is kept.
const OWNER: &str = "kyma.harness.owner";

/// A checkout on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner(String);

impl Owner {
    /// Returns the owner of this process. In a container the host name is that of the container.
    pub(super) fn this() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self::of(&format!("{}:{}", host.trim(), workspace::root().display()))
    }

    /// Returns the owner as a digest, which is a valid label value for every path.
    fn of(host_and_path: &str) -> Self {
        Self(digest(host_and_path.as_bytes()))
    }

    /// Returns the name of the kept network, which is also the prefix of the names of kept containers.
    pub(super) fn prefix(&self) -> String {
        format!("kyma-kept-{}", short_hash(&self.0))
    }

    pub(super) fn labels(&self, digest: &str) -> HashMap<String, String> {
        let labels = [(KEPT, digest), (OWNER, self.0.as_str())];
        HashMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())))
    }

    pub(super) fn own(&self, mut found: Vec<Labelled>) -> Vec<Labelled> {
        found.retain(|found| found.labels.get(OWNER) == Some(&self.0));
        found
    }
}

/// Returns the first 32 bits of a SHA-256 hash in hexadecimal.
pub(super) fn short_hash(text: &str) -> String {
    digest(text.as_bytes())["sha256:".len()..][..8].to_owned()
}

/// Returns the name of the kept network. Without one, `create` creates it; otherwise the result is `None`.
///
/// Docker accepts several networks with one name, and then rejects containers in them. The daemon accepts the name of a bridge
/// only once. So if several processes create the network concurrently, one of them succeeds and the others use its network.
pub(super) async fn network(owner: &Owner, create: bool) -> anyhow::Result<Option<String>> {
    let name = owner.prefix();
    let exists = async || -> anyhow::Result<bool> {
        let networks = docker::labelled(KEPT).await?;
        Ok(networks.iter().any(|network| network.name == name))
    };
    if exists().await? {
        return Ok(Some(name));
    }
    if !create {
        return Ok(None);
    }
    // The limit of Linux is 15 characters.
    let bridge = format!("kyma-{}", short_hash(&name));
    let labels = owner.labels("network");
    if let Err(refused) = docker::create_network(&name, Some(&bridge), &labels).await {
        // Another process created the bridge; its network may not be listed yet.
        let listed = async || exists().await?.then_some(()).context("it is not");
        let listed = until("the kept network is listed", LISTED, listed).await;
        listed.map_err(|_| refused)?;
    }
    Ok(Some(name))
}

pub(super) async fn forget(owner: &Owner) -> anyhow::Result<Vec<String>> {
    let found = owner.own(docker::labelled(KEPT).await?);
    for it in &found {
        docker::remove(it).await?;
    }
    Ok(found.into_iter().map(|it| it.name).collect())
}

const LISTED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::run::id::RunId;

    /// Returns a unique owner, because test runs of several checkouts may overlap.
    fn owner(name: &str) -> Owner {
        Owner::of(&format!("{name}-{}", RunId::next()))
    }

    #[tokio::test]
    async fn several_processes_that_create_the_kept_network_get_one() {
        let owner = owner("host:/own");
        assert_eq!(network(&owner, false).await.unwrap(), None);
        let created = join_all((0..8).map(|_| network(&owner, true))).await;
        let removed = forget(&owner).await.unwrap();
        assert_eq!(removed, [owner.prefix()]);
        for result in created {
            assert_eq!(result.unwrap(), Some(owner.prefix()));
        }
    }

    #[tokio::test]
    async fn what_is_kept_for_another_checkout_is_neither_listed_nor_removed() {
        let owners = ["host:/own", "other-host:/own", "host:/other"].map(owner);
        for owner in &owners {
            network(owner, true).await.unwrap();
        }
        let removed = forget(&owners[0]).await;
        let left = docker::labelled(KEPT).await.unwrap();
        let left = owners.clone().map(|owner| owner.own(left.clone()).len());
        for owner in &owners[1..] {
            forget(owner).await.unwrap();
        }
        assert_eq!(removed.unwrap(), [owners[0].prefix()]);
        assert_eq!(left, [0, 1, 1]);
    }
}
