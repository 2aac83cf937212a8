//! The one network that kept containers share.
//!
//! Docker accepts several networks of one name, and refuses every container of such a name as ambiguous. A bridge has
//! a name too, and that one the daemon accepts once: of several processes that create the network at the same time,
//! one succeeds and the others find what it made.

use std::time::Duration;

use super::{KEPT, Owner, short_hash};
use crate::docker::{Docker, DockerError, Labelled};
use testkit::until::until;

/// Name of the kept network, which `create` makes if there is none; without it `None` says that nothing is kept.
///
/// Several networks of the name, as earlier versions could leave them, are removed with the kept containers in them:
/// Docker starts no further container there.
///
/// # Errors
/// When Docker does not answer or refuses.
pub(super) async fn network(
    docker: &Docker,
    name: &str,
    create: bool,
) -> Result<Option<String>, DockerError> {
    // One after the other within this process, so that only one removes what is ambiguous.
    static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _guard = LOCK.lock().await;
    let mut found = named(docker, name).await?;
    if found.len() > 1 {
        remove_all(docker, &found).await?;
        found.clear();
    }
    if found.is_empty() && !create {
        return Ok(None);
    }
    if found.is_empty() {
        get_or_create(docker, name).await?;
    }
    Ok(Some(name.to_owned()))
}

async fn get_or_create(docker: &Docker, name: &str) -> Result<(), DockerError> {
    let labels = Owner::this().labels("network");
    let Err(refused) = docker
        .create_network_once(name, &bridge(name), labels)
        .await
    else {
        return Ok(());
    };
    // Another process has the bridge; its network may not be listed yet.
    let listed = until("the kept network is listed", LISTED, || async {
        match named(docker, name).await {
            Ok(found) if found.is_empty() => Err("it is not".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    });
    listed.await.map_err(|_| refused)
}

async fn named(docker: &Docker, name: &str) -> Result<Vec<Labelled>, DockerError> {
    let mut networks = docker.networks(KEPT).await?;
    networks.retain(|network| network.name == name);
    Ok(networks)
}

async fn remove_all(docker: &Docker, networks: &[Labelled]) -> Result<(), DockerError> {
    for network in networks {
        for container in docker.containers_in(&network.id, KEPT).await? {
            docker.remove_container(&container.id).await?;
        }
        docker.remove_network(&network.id).await?;
    }
    Ok(())
}

/// Name of the bridge of a network: Linux allows 15 characters.
fn bridge(network: &str) -> String {
    format!("kyma-{}", short_hash(network))
}

const LISTED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunId;

    /// As several processes at once: without the lock of one process.
    #[tokio::test]
    async fn several_processes_that_create_the_kept_network_get_one() {
        let docker = Docker::connect().await.unwrap();
        let name = format!("kyma-test-{}", RunId::next());
        let creators = (0..8).map(|_| get_or_create(&docker, &name));
        let created = futures::future::join_all(creators).await;
        let found = named(&docker, &name).await.unwrap();
        remove(&docker, &found).await;
        assert_eq!(found.len(), 1);
        for result in created {
            result.unwrap();
        }
    }

    #[tokio::test]
    async fn an_ambiguous_kept_network_is_replaced_by_one() {
        let docker = Docker::connect().await.unwrap();
        let name = format!("kyma-test-{}", RunId::next());
        for _ in 0..3 {
            let labels = Owner::this().labels("network");
            docker.create_network(&name, labels).await.unwrap();
        }
        let before = named(&docker, &name).await.unwrap();
        let network = network(&docker, &name, true).await;
        let after = named(&docker, &name).await.unwrap();
        remove(&docker, &before).await;
        remove(&docker, &after).await;
        assert_eq!(before.len(), 3, "the daemon refuses duplicates by itself");
        assert_eq!(network.unwrap(), Some(name));
        assert_eq!(after.len(), 1);
        assert!(before.iter().all(|network| network.id != after[0].id));
    }

    #[tokio::test]
    async fn nothing_is_created_for_a_run_that_keeps_nothing() {
        let docker = Docker::connect().await.unwrap();
        let name = format!("kyma-test-{}", RunId::next());
        assert_eq!(network(&docker, &name, false).await.unwrap(), None);
        assert!(named(&docker, &name).await.unwrap().is_empty());
    }

    async fn remove(docker: &Docker, networks: &[Labelled]) {
        for network in networks {
            docker.remove_network(&network.id).await.unwrap();
        }
    }
}
