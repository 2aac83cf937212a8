//! State that the checks of a run share: their results, and the objects that the run creates and removes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use serde_json::json;
use testkit::json::name as name_of;
use testkit::locked;
use testkit::until::until;
use tokio::time::Instant;

use super::Options;
use crate::cluster::Cluster;
use crate::install::Installation;
use crate::model::{Mode, Namespace};
use crate::report::{Check, Family, Moment, Outcome, PodReport, seconds};
use crate::requests::OWN_NAMESPACES;
use crate::scenario::Scenario;

/// Names of the namespaces that a run creates, by the ID of the run.
#[derive(Debug, Clone)]
pub(crate) struct Namespaces(pub(crate) String);

impl Namespaces {
    pub(crate) fn of_workload(&self, index: usize) -> String {
        format!("{OWN_NAMESPACES}{}-{index}", self.0)
    }

    pub(crate) fn of_event(&self, index: usize) -> String {
        format!("{OWN_NAMESPACES}{}-event-{index}", self.0)
    }
}

/// State that the checks share.
pub(crate) struct Context<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) options: Options,
    pub(crate) namespaces: Namespaces,
    /// Whether this run installed the webhook, so that the API server may not reach it yet.
    pub(crate) is_new: bool,
    pub(super) begin: Instant,
    pub(super) said: &'a (dyn Fn(&Check) + Sync),
    pub(super) found: Mutex<Found>,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) checks: Vec<Check>,
    pub(super) pods: Vec<PodReport>,
    pub(super) timeline: Vec<Moment>,
    /// Clusters and namespaces that may exist on them.
    made: Vec<(Cluster, String)>,
    /// Clusters and paths of objects of an installation that may exist on them.
    installed: Vec<(Cluster, String)>,
}

impl Context<'_> {
    /// Returns the mode of the landscape's controller, if the scenario specifies it.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.scenario.landscape.mode()
    }

    /// Takes all results, at the end of the run.
    pub(super) fn taken(&self) -> Found {
        std::mem::take(&mut locked(&self.found))
    }

    /// Adds the result of a check that is possible for any implementation.
    pub(crate) fn contract(&self, cluster: &Cluster, title: &str, outcome: Outcome) {
        self.record(cluster, title, Family::Contract, outcome);
    }

    /// Adds the result of a check of metrics, version or warnings of this project's components.
    pub(crate) fn metrics(&self, cluster: &Cluster, title: &str, outcome: Outcome) {
        self.record(cluster, title, Family::Metrics, outcome);
    }

    fn record(&self, cluster: &Cluster, title: &str, family: Family, outcome: Outcome) {
        let check = Check {
            cluster: cluster.name.clone(),
            title: title.to_owned(),
            family,
            outcome,
            at: seconds(self.begin.elapsed()),
        };
        (self.said)(&check);
        locked(&self.found).checks.push(check);
    }

    pub(crate) fn keep_pod(&self, pod: PodReport) {
        locked(&self.found).pods.push(pod);
    }

    pub(crate) fn keep_moments(&self, moments: Vec<Moment>) {
        locked(&self.found).timeline.extend(moments);
    }

    /// Records an object of an installation before its creation. If the creation fails, the object can be one of another client.
    pub(crate) fn installed(&self, cluster: &Cluster, path: String) {
        locked(&self.found).installed.push((cluster.clone(), path));
    }

    /// Removes the installation from every cluster that may have a part of it.
    pub(super) async fn uninstall(&self) -> Result<()> {
        let installed = std::mem::take(&mut locked(&self.found).installed);
        let mut by_cluster: BTreeMap<&str, (&Cluster, Vec<String>)> = BTreeMap::new();
        for (cluster, path) in &installed {
            let of_cluster = by_cluster.entry(&cluster.name);
            let (_, paths) = of_cluster.or_insert_with(|| (cluster, Vec::new()));
            paths.push(path.clone());
        }
        let by_cluster = by_cluster.values();
        let removed =
            by_cluster.map(|(cluster, paths)| Installation::uninstall(self, cluster, paths));
        let removed = super::every(removed).await;
        removed.context("the installation could not be removed")?;
        Ok(())
    }

    /// Creates a namespace of the run, and waits until Pods can be created there.
    pub(crate) async fn create_namespace(
        &self,
        cluster: &Cluster,
        name: &str,
        extra: &Namespace,
    ) -> Result<()> {
        let mut labels = extra.labels.clone();
        labels.insert(LABEL.to_owned(), self.namespaces.0.clone());
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels, "annotations": extra.annotations },
        });
        // Recorded before the request, because the namespace may exist even if the response is lost.
        let made = (cluster.clone(), name.to_owned());
        locked(&self.found).made.push(made);
        cluster.create("/api/v1/namespaces", &namespace).await?;
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let exists = || async { cluster.find(&path).await?.context("not yet") };
        let what = "the namespace has its ServiceAccount";
        until(what, self.options.patience, exists).await?;
        Ok(())
    }

    /// Deletes the namespaces of the run, and waits until they do not exist.
    pub(super) async fn remove_namespaces(&self) -> Result<()> {
        let made = std::mem::take(&mut locked(&self.found).made);
        let removed = made.iter().map(|(cluster, name)| async move {
            let path = format!("/api/v1/namespaces/{name}");
            cluster.delete(&path, &json!({})).await?;
            // Without this request each Pod may take half a minute.
            for pod in cluster.list(&format!("{path}/pods")).await? {
                let path = format!("{path}/pods/{}", name_of(&pod));
                cluster
                    .delete(&path, &json!({ "gracePeriodSeconds": 1 }))
                    .await?;
            }
            let is_gone = || async {
                ensure!(cluster.find(&path).await?.is_none(), "it still exists");
                Ok(())
            };
            until("the namespace is gone", REMOVAL, is_gone).await?;
            anyhow::Ok(())
        });
        let mut left = String::new();
        for ((cluster, name), removed) in made.iter().zip(join_all(removed).await) {
            if let Err(error) = removed {
                let kubectl = &cluster.kubectl;
                let _ = write!(left, "\n  {kubectl} delete namespace {name}  # {error:#}");
            }
        }
        ensure!(
            left.is_empty(),
            "not everything that this run made could be removed:{left}"
        );
        Ok(())
    }
}

/// Label of every namespace of a run, and of every object of its installation; its value is the run's ID.
/// `kubectl delete namespaces -l LABEL` removes the namespaces that a killed run left.
pub(crate) const LABEL: &str = "rt-bootstrapper.kyma-project.io/conformance-run";
/// Time limit for the removal of a namespace.
const REMOVAL: Duration = Duration::from_mins(1);
