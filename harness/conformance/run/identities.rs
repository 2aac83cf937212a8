//! Checks of the clusters before the first write: whether the users have all permissions, and whether the clusters are
//! distinct.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;

use crate::cluster::Cluster;
use crate::requests::Allowed;

/// Checks that the user of each cluster has every permission that the run needs.
pub(super) async fn have_rights(clusters: &[Cluster], allowed: &[BTreeSet<Allowed>]) -> Result<()> {
    let asked = clusters
        .iter()
        .zip(allowed)
        .map(|(cluster, allowed)| async move {
            let mut missing = BTreeSet::new();
            for allowed in allowed {
                if !cluster.is_allowed(allowed).await? {
                    missing.insert(allowed.shown_right());
                }
            }
            anyhow::Ok((cluster, missing))
        });
    let (mut text, mut errors) = (String::new(), Vec::new());
    for answer in join_all(asked).await {
        match answer {
            Ok((cluster, missing)) => {
                for right in missing {
                    let _ = write!(text, "\n  {}: {right}", cluster.name);
                }
            }
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    ensure!(
        text.is_empty(),
        "the users of the kubeconfigs lack rights; nothing was changed. The names of namespaces of a run are new each time, so rights \
         in them can be given for all namespaces only:{text}"
    );
    Ok(())
}

/// Returns the UID of each cluster. Fails if two of them are the same cluster.
pub(super) async fn identities(clusters: &[Cluster]) -> Result<Vec<String>> {
    let asked = clusters.iter().map(|cluster| async move {
        let namespace = cluster.find("/api/v1/namespaces/kube-system").await?;
        let namespace = namespace.unwrap_or_default();
        let uid = namespace["metadata"]["uid"].as_str().map(str::to_owned);
        uid.with_context(|| format!("{}: the Namespace kube-system has no UID", cluster.name))
    });
    let mut found: BTreeMap<String, &str> = BTreeMap::new();
    let (mut uids, mut errors) = (Vec::new(), Vec::new());
    for (cluster, uid) in clusters.iter().zip(join_all(asked).await) {
        match uid {
            Err(error) => errors.push(format!("{error:#}")),
            Ok(uid) => {
                if let Some(other) = found.insert(uid.clone(), &cluster.name) {
                    errors.push(format!(
                        "{other} and {} are the same cluster (UID {uid}), expected different ones",
                        cluster.name
                    ));
                }
                uids.push(uid);
            }
        }
    }
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(uids)
}
