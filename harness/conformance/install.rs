//! Installation of the webhook on clusters of a landscape owner for the duration of a run. The clusters must not have the
//! webhook before. At the end all its objects are removed, including those that the webhook created.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use api::names::{
    PULL_SECRET_COPY_LABEL, REPAIR_RECORD, SKR_NAMESPACE, WEBHOOK_CERTIFICATE, WEBHOOK_LEASE,
};
use serde_json::{Value, json};
use testkit::json::{name, text};
use testkit::until::until;

use crate::cluster::Cluster;
use crate::requests::{collection, path, words};
use crate::run::{Context, LABEL};
use crate::runtime::webhook_deployment;

/// Objects that a run installs.
#[derive(Debug, Clone)]
pub struct Installation(Vec<Value>);

impl Installation {
    /// Returns an installation with the configuration of a landscape and the manifests of the webhook, in the order of their
    /// creation.
    pub fn new(objects: Vec<Value>) -> Self {
        // The landscape and the manifests can contain the same Namespace.
        let mut seen = BTreeSet::new();
        let objects = objects.into_iter().filter(|it| seen.insert(words(it)));
        Self(objects.collect())
    }

    /// Returns the requests of the installation, as lines of [`Allowed`](crate::requests::Allowed).
    pub(crate) fn requests(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for object in self.0.iter().map(words) {
            let verbs = ["get", "create", "delete"];
            lines.extend(verbs.map(|verb| format!("{verb} {object} # the installation")));
        }
        for object in made() {
            let verbs = ["get", "delete"];
            lines.extend(verbs.map(|verb| format!("{verb} {object} # what the webhook made")));
        }
        lines.extend(watcher().map(|it| format!("get {it} # whether the watcher is installed")));
        let copies = "copies of the pull Secret, by their label";
        lines.push(format!("list secrets # {copies}"));
        lines.push(format!("delete secrets {{namespace}}/{{copy}} # {copies}"));
        lines
    }

    /// Fails if an object of the installation, an object that the webhook creates, or the watcher exists. Namespaces may exist.
    pub(crate) async fn is_absent(&self, cluster: &Cluster) -> Result<()> {
        let own = self.0.iter().filter(|it| !is_namespace(it)).map(words);
        let mut found = copies(cluster).await?;
        for object in own.chain(made()).chain(watcher()) {
            let path = path(&object);
            if cluster.find(&path).await?.is_some() {
                found.push(path);
            }
        }
        ensure!(
            found.is_empty(),
            "{}: --install is for clusters without the product, and these objects exist; nothing was changed:\n  {}",
            cluster.name,
            found.join("\n  ")
        );
        Ok(())
    }

    /// Creates all objects, with the label of the run, and waits until the webhook is available.
    pub(crate) async fn install(&self, context: &Context<'_>, cluster: &Cluster) -> Result<()> {
        for object in &self.0 {
            let path = path(&words(object));
            if is_namespace(object) && cluster.find(&path).await?.is_some() {
                continue;
            }
            context.installed(cluster, path);
            let collection = collection(object, text(&object["metadata"]["namespace"]));
            let mut object = object.clone();
            object["metadata"]["labels"][LABEL] = json!(context.namespaces.0);
            cluster.create(&collection, &object).await?;
        }
        let is_available = || async {
            let deployment = cluster.find(&webhook_deployment()).await?;
            let deployment = deployment.unwrap_or_default();
            let available = deployment["status"]["availableReplicas"].as_u64();
            let available = available.unwrap_or_default();
            let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
            ensure!(available >= wanted, "{available} of {wanted} replicas");
            Ok(())
        };
        let patience = context.options.patience;
        Ok(until("the webhook is available", patience, is_available).await?)
    }

    /// Deletes the created objects in reverse order, then the objects that the webhook created. An object that cannot be
    /// deleted does not prevent the deletion of the others. Objects of another client stay, and then also the Namespaces. If it is
    /// the Deployment, also the objects that its webhook created stay.
    ///
    /// # Errors
    ///
    /// The error contains the commands that delete the remaining objects.
    pub(crate) async fn uninstall(
        context: &Context<'_>,
        cluster: &Cluster,
        created: &[String],
    ) -> Result<()> {
        let mut left = String::new();
        let mut note = |what: &str, error: &anyhow::Error| {
            let _ = write!(left, "\n  {} delete {what}  # {error:#}", cluster.kubectl);
        };
        let (namespaces, others): (Vec<&String>, Vec<&String>) = created
            .iter()
            .partition(|it| it.starts_with("/api/v1/namespaces/") && it.split('/').count() == 5);
        let (mut has_run, mut is_shared) = (false, false);
        for path in others.into_iter().rev() {
            let removed = remove(context, cluster, path).await;
            let is_foreign = matches!(removed, Ok(false));
            is_shared |= is_foreign;
            has_run |= *path == webhook_deployment() && !is_foreign;
            if let Err(error) = removed {
                note(&format!("--raw {path}"), &error);
            }
        }
        let mut rest = Vec::new();
        if has_run {
            rest.extend(made().map(|it| path(&it)));
            match copies(cluster).await {
                Ok(copies) => rest.extend(copies),
                Err(error) => {
                    let all = format!("secrets --all-namespaces -l {PULL_SECRET_COPY_LABEL}=true");
                    note(&all, &error);
                }
            }
        }
        for path in rest {
            if let Err(error) = cluster.delete(&path, &json!({})).await {
                note(&format!("--raw {path}"), &error);
            }
        }
        for path in namespaces.into_iter().filter(|_| !is_shared) {
            if let Err(error) = remove(context, cluster, path).await {
                note(&format!("--raw {path}"), &error);
            }
        }
        ensure!(left.is_empty(), "{left}");
        Ok(())
    }
}

/// Deletes the object at a path if this run created it, and waits until it is gone. Returns whether nothing is left at the path, or
/// an object of another client. The label also identifies an object whose creation had no response.
async fn remove(context: &Context<'_>, cluster: &Cluster, path: &str) -> Result<bool> {
    let Some(found) = cluster.find(path).await? else {
        return Ok(true);
    };
    let metadata = &found["metadata"];
    if metadata["labels"][LABEL] != *context.namespaces.0 {
        return Ok(false);
    }
    let uid = &metadata["uid"];
    let options = json!({ "propagationPolicy": "Foreground", "preconditions": { "uid": uid } });
    cluster.delete(path, &options).await?;
    let is_gone = || async {
        let now = cluster.find(path).await?.unwrap_or_default();
        ensure!(now["metadata"]["uid"] != *uid, "it still exists");
        anyhow::Ok(now.is_null())
    };
    Ok(until("it is gone", context.options.patience, is_gone).await?)
}

/// Returns the paths of the copies of the pull Secret.
async fn copies(cluster: &Cluster) -> Result<Vec<String>> {
    let all = format!("/api/v1/secrets?labelSelector={PULL_SECRET_COPY_LABEL}%3Dtrue");
    let copies = cluster.list(&all).await?;
    let paths = copies.iter().map(|it| {
        let namespace = text(&it["metadata"]["namespace"]);
        path(&format!("secrets {namespace}/{}", name(it)))
    });
    Ok(paths.collect())
}

fn is_namespace(object: &Value) -> bool {
    object["kind"] == "Namespace"
}

/// Returns the objects that the webhook creates in its namespace.
fn made() -> [String; 3] {
    [
        format!("secrets {SKR_NAMESPACE}/{WEBHOOK_CERTIFICATE}"),
        format!("secrets {SKR_NAMESPACE}/{REPAIR_RECORD}"),
        format!("leases.v1.coordination.k8s.io {SKR_NAMESPACE}/{WEBHOOK_LEASE}"),
    ]
}

/// Returns the objects of the watcher on a runtime.
fn watcher() -> [String; 2] {
    [
        format!("deployments.v1.apps {SKR_NAMESPACE}/skr-webhook"),
        "validatingwebhookconfigurations.v1.admissionregistration.k8s.io skr-webhook".to_owned(),
    ]
}
