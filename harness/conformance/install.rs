//! The webhook on clusters of a landscape owner for the time of a run: installed where nothing of it exists, and removed at the
//! end, with everything that it made.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use api::names;
use serde_json::{Value, json};
use testkit::until::until;

use crate::cluster::Cluster;
use crate::requests::{Allowed, Verb, resource};
use crate::run::Context;
use crate::runtime::webhook_deployment;

/// Objects that a run installs.
#[derive(Debug, Clone)]
pub struct Installation(Vec<Value>);

impl Installation {
    /// The configuration of a landscape and the manifests of the webhook, in the order in which they are created.
    pub fn new(objects: Vec<Value>) -> Self {
        // A Namespace may come twice: of the landscape, and of the manifests.
        let mut seen = BTreeSet::new();
        let objects = objects.into_iter().filter(|it| seen.insert(path(it)));
        Self(objects.collect())
    }

    pub(crate) fn allowed(&self) -> BTreeSet<Allowed> {
        let mut allowed = BTreeSet::new();
        for object in &self.0 {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            for verb in [Verb::Get, Verb::Create, Verb::Delete] {
                let mut request = Allowed::of(verb, object, "the installation").named(name);
                if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                    request = request.within(namespace);
                }
                allowed.insert(request);
            }
        }
        for (kind, name) in MADE {
            let made = "what the webhook made";
            for verb in [Verb::Get, Verb::Delete] {
                allowed.insert(
                    Allowed::new(verb, kind, made)
                        .within(names::SKR_NAMESPACE)
                        .named(name),
                );
            }
        }
        for (kind, namespace) in WATCHER {
            let watcher = "whether the watcher is installed";
            let read = Allowed::new(Verb::Get, kind, watcher).named(CONFIGURATION);
            allowed.insert(read.within(namespace));
        }
        let copies = "copies of the pull Secret, by their label";
        allowed.insert(Allowed::new(Verb::List, "secrets", copies));
        allowed.insert(
            Allowed::new(Verb::Delete, "secrets", copies)
                .within("{namespace}")
                .named("{copy}"),
        );
        allowed
    }

    /// Fails if an object of the installation, one that the webhook makes, or the watcher exists; the product's namespace may.
    pub(crate) async fn is_absent(&self, cluster: &Cluster) -> Result<()> {
        let made = MADE.map(|(kind, name)| path_of(kind, names::SKR_NAMESPACE, name));
        let watcher = WATCHER.map(|(kind, namespace)| path_of(kind, namespace, CONFIGURATION));
        let own = self.0.iter().filter(|it| !is_namespace(it)).map(path);
        let mut found = copies(cluster).await?;
        for path in own.chain(made).chain(watcher) {
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

    /// Creates all objects and waits until the webhook is available.
    pub(crate) async fn install(&self, context: &Context<'_>, cluster: &Cluster) -> Result<()> {
        for object in &self.0 {
            let path = path(object);
            if is_namespace(object) && cluster.find(&path).await?.is_some() {
                continue;
            }
            context.installed(cluster, path);
            cluster.create(&collection(object), object).await?;
        }
        until(
            "the webhook is available",
            context.options.patience,
            || async {
                let deployment = cluster
                    .find(&webhook_deployment())
                    .await?
                    .unwrap_or_default();
                let available = deployment["status"]["availableReplicas"]
                    .as_u64()
                    .unwrap_or_default();
                let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
                ensure!(available >= wanted, "{available} of {wanted} replicas");
                Ok(())
            },
        )
        .await?;
        Ok(())
    }

    /// Deletes what was created, last first, then what the webhook made. What cannot be deleted does not keep the rest.
    ///
    /// # Errors
    /// The commands that delete what is left.
    pub(crate) async fn uninstall(
        context: &Context<'_>,
        cluster: &Cluster,
        created: &[String],
    ) -> Result<()> {
        let delete = async |path: &str| {
            let options = json!({ "propagationPolicy": "Foreground" });
            cluster.delete(path, &options).await?;
            let is_gone = || async {
                ensure!(cluster.find(path).await?.is_none(), "it still exists");
                Ok(())
            };
            anyhow::Ok(until("it is gone", context.options.patience, is_gone).await?)
        };
        let (namespaces, others): (Vec<&String>, Vec<&String>) = created
            .iter()
            .partition(|it| it.starts_with("/api/v1/namespaces/") && it.split('/').count() == 5);
        let mut left = String::new();
        let mut note = |what: &str, deleted: Result<()>| {
            if let Err(error) = deleted {
                let kubectl = &cluster.kubectl;
                let _ = write!(left, "\n  {kubectl} delete {what}  # {error:#}");
            }
        };
        for path in others.into_iter().rev() {
            note(&format!("--raw {path}"), delete(path).await);
        }
        let mut rest = MADE
            .map(|(kind, name)| path_of(kind, names::SKR_NAMESPACE, name))
            .to_vec();
        match copies(cluster).await {
            Ok(copies) => rest.extend(copies),
            Err(error) => {
                let label = names::PULL_SECRET_COPY_LABEL;
                let all = format!("secrets --all-namespaces -l {label}=true");
                note(&all, Err(error));
            }
        }
        for path in rest {
            let deleted = cluster.delete(&path, &json!({})).await;
            note(&format!("--raw {path}"), deleted);
        }
        for path in namespaces {
            note(&format!("--raw {path}"), delete(path).await);
        }
        ensure!(left.is_empty(), "{left}");
        Ok(())
    }
}

/// The paths of the copies of the pull Secret.
async fn copies(cluster: &Cluster) -> Result<Vec<String>> {
    let label = names::PULL_SECRET_COPY_LABEL;
    let copies = format!("/api/v1/secrets?labelSelector={label}%3Dtrue");
    let copies = cluster.list(&copies).await?;
    let path = |copy: &Value| {
        let text = |key: &str| copy["metadata"][key].as_str().unwrap_or_default();
        path_of("secrets", text("namespace"), text("name"))
    };
    Ok(copies.iter().map(path).collect())
}

fn is_namespace(object: &Value) -> bool {
    object["kind"] == "Namespace"
}

/// The path of the objects of a kind: those of a namespace where the object names one.
fn collection(object: &Value) -> String {
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        return crate::workloads::collection(object, namespace);
    }
    let kind = resource(object);
    let root = if kind.group.is_empty() {
        "api".to_owned()
    } else {
        format!("apis/{}", kind.group)
    };
    format!("/{root}/{}/{}", kind.version, kind.plural)
}

fn path(object: &Value) -> String {
    format!(
        "{}/{}",
        collection(object),
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}

/// `kind` is `plural` or `plural.version.group`; an object of cluster scope has no namespace.
fn path_of(kind: &str, namespace: &str, name: &str) -> String {
    let object = Allowed::new(Verb::Get, kind, "");
    object.within(namespace).named(name).path()
}

/// What the webhook makes itself in its namespace.
const MADE: [(&str, &str); 3] = [
    ("secrets", names::WEBHOOK_CERTIFICATE),
    ("secrets", names::REPAIR_RECORD),
    ("leases.v1.coordination.k8s.io", names::WEBHOOK_LEASE),
];

/// The watcher on a runtime: kinds and namespaces of its objects, whose name is [`CONFIGURATION`].
const WATCHER: [(&str, &str); 2] = [
    ("deployments.v1.apps", names::SKR_NAMESPACE),
    (
        "validatingwebhookconfigurations.v1.admissionregistration.k8s.io",
        "",
    ),
];
const CONFIGURATION: &str = "skr-webhook";
