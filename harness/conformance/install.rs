//! The webhook on clusters of a landscape owner for the time of a run: installed where nothing of it exists, and removed at the
//! end, with everything that it made.

use std::collections::BTreeSet;

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
        let copies = "copies of the pull Secret, by their label";
        allowed.insert(Allowed::new(Verb::List, "secrets", copies));
        allowed.insert(
            Allowed::new(Verb::Delete, "secrets", copies)
                .within("{namespace}")
                .named("{copy}"),
        );
        allowed
    }

    /// Fails if an object of the installation exists; the product's namespace may.
    pub(crate) async fn is_absent(&self, cluster: &Cluster) -> Result<()> {
        let mut found = Vec::new();
        let made = MADE.iter().map(made_path);
        let own = self.0.iter().filter(|it| !is_namespace(it)).map(path);
        for path in own.chain(made) {
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

    /// Deletes what was created, last first, then what the webhook made.
    pub(crate) async fn uninstall(
        context: &Context<'_>,
        cluster: &Cluster,
        created: &[String],
    ) -> Result<()> {
        let delete = async |path: &str| {
            cluster
                .delete(path, &json!({ "propagationPolicy": "Foreground" }))
                .await?;
            let is_gone = || async {
                ensure!(cluster.find(path).await?.is_none(), "it still exists");
                Ok(())
            };
            let what = format!("{path} is gone");
            anyhow::Ok(until(&what, context.options.patience, is_gone).await?)
        };
        let (namespaces, others): (Vec<&String>, Vec<&String>) = created
            .iter()
            .partition(|it| it.starts_with("/api/v1/namespaces/") && it.split('/').count() == 5);
        for path in others.into_iter().rev() {
            delete(path).await?;
        }
        let copies = format!(
            "/api/v1/secrets?labelSelector={}%3Dtrue",
            names::PULL_SECRET_COPY_LABEL
        );
        for copy in cluster.list(&copies).await? {
            let text = |key: &str| copy["metadata"][key].as_str().unwrap_or_default();
            let path = format!(
                "/api/v1/namespaces/{}/secrets/{}",
                text("namespace"),
                text("name")
            );
            cluster.delete(&path, &json!({})).await?;
        }
        for made in &MADE {
            cluster.delete(&made_path(made), &json!({})).await?;
        }
        for path in namespaces {
            delete(path).await?;
        }
        Ok(())
    }
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

fn made_path((kind, name): &(&str, &str)) -> String {
    let mut parts = kind.splitn(3, '.');
    let (plural, version) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or("v1"),
    );
    let root = parts
        .next()
        .map_or_else(|| "api".to_owned(), |group| format!("apis/{group}"));
    format!(
        "/{root}/{version}/namespaces/{}/{plural}/{name}",
        names::SKR_NAMESPACE
    )
}

/// What the webhook makes itself in its namespace.
const MADE: [(&str, &str); 3] = [
    ("secrets", names::WEBHOOK_CERTIFICATE),
    ("secrets", names::REPAIR_RECORD),
    ("leases.v1.coordination.k8s.io", names::WEBHOOK_LEASE),
];
