//! What users write on the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::heard::Watched;
use super::objects::{GROUP, VERSION, WATCHED_BY};
use super::watcher::Skr;
use crate::world::Dialogue;

/// A type of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Kyma,
    ConfigMap,
    ClusterRole,
    Deployment,
}

/// One object.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) kind: Kind,
    namespace: String,
    pub(super) name: String,
}

/// What was written, and how long the slowest write took.
#[derive(Debug, Clone, Default)]
pub(super) struct Writes {
    pub(super) names: Vec<String>,
    pub(super) slowest: Duration,
}

/// Kymas that are made one after the other until somebody asks for them.
pub(super) struct Stream {
    over: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<Writes>>,
}

static NAMES: AtomicU32 = AtomicU32::new(0);

impl Kind {
    pub(super) fn of(words: &str) -> anyhow::Result<Self> {
        Ok(match words {
            "Kyma" => Self::Kyma,
            "ConfigMap" => Self::ConfigMap,
            "ClusterRole" => Self::ClusterRole,
            "Deployment" => Self::Deployment,
            other => bail!("{other}: not in the vocabulary"),
        })
    }

    fn version(self) -> (&'static str, &'static str) {
        match self {
            Self::Kyma => (GROUP, VERSION),
            Self::ConfigMap => ("", "v1"),
            Self::ClusterRole => ("rbac.authorization.k8s.io", "v1"),
            Self::Deployment => ("apps", "v1"),
        }
    }

    fn content(self) -> (&'static str, Value) {
        match self {
            Self::Kyma => ("spec", json!({ "channel": "regular" })),
            Self::ConfigMap => ("data", json!({ "key": "one" })),
            Self::ClusterRole => ("rules", json!([])),
            Self::Deployment => ("spec", deployment()),
        }
    }
}

impl Subject {
    /// A name that nobody has yet.
    pub(super) fn fresh(kind: Kind, namespace: &str) -> Self {
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: format!("{namespace}-{number}"),
        }
    }

    /// Where it is in the API.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn collection(&self) -> String {
        let namespace = &self.namespace;
        match self.kind {
            Kind::Kyma => format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/kymas"),
            Kind::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Kind::ClusterRole => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
            Kind::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        }
    }

    /// The object, watched for `watched_by` or for nobody.
    pub(super) fn object(&self, watched_by: Option<&str>) -> Value {
        let (group, version) = self.kind.version();
        let version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let (key, content) = self.kind.content();
        let mut object = json!({
            "apiVersion": version, "kind": format!("{:?}", self.kind),
            "metadata": { "name": self.name }, (key): content,
        });
        if self.kind != Kind::ClusterRole {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        if let Some(watched_by) = watched_by {
            object["metadata"]["labels"] = json!({ (WATCHED_BY): watched_by });
        }
        object
    }

    /// How events name it. Of a Deployment only the scale is watched, which is of a type of its own.
    pub(super) fn heard_as(&self) -> Watched {
        let (group, version, kind) = match self.kind {
            Kind::Deployment => ("autoscaling", "v1", "Scale".to_owned()),
            kind => (kind.version().0, kind.version().1, format!("{kind:?}")),
        };
        Watched {
            gvk: (group.to_owned(), version.to_owned(), kind),
            namespace: match self.kind {
                Kind::ClusterRole => String::new(),
                _ => self.namespace.clone(),
            },
            name: self.name.clone(),
        }
    }

    /// Stores it.
    pub(super) async fn create(
        &self,
        dialogue: &Dialogue,
        watched_by: Option<&str>,
    ) -> anyhow::Result<()> {
        let object = self.object(watched_by);
        let path = self.collection();
        let answer = dialogue.ask(Method::POST, &path, Some(&object)).await?;
        answer.good().map(drop)
    }

    /// Does what a user does, in the words of the features.
    pub(super) async fn write(&self, dialogue: &Dialogue, words: &str) -> anyhow::Result<()> {
        let (method, suffix, body) = match words {
            "changes its spec" => (Method::PATCH, "", json!({ "spec": { "channel": "fast" } })),
            "changes its labels" => {
                let labels = json!({ "colour": "blue" });
                (
                    Method::PATCH,
                    "",
                    json!({ "metadata": { "labels": labels } }),
                )
            }
            "changes its status" => (
                Method::PATCH,
                "/status",
                json!({ "status": { "state": "Ready" } }),
            ),
            "changes its data" => (Method::PATCH, "", json!({ "data": { "key": "two" } })),
            "changes its rules" => (Method::PATCH, "", json!({ "rules": [rule()] })),
            "scales it" => (
                Method::PATCH,
                "/scale",
                json!({ "spec": { "replicas": 2 } }),
            ),
            "changes nothing" => {
                let live = dialogue.get(&self.path()).await?.object;
                (Method::PUT, "", live)
            }
            "deletes it" => (Method::DELETE, "", Value::Null),
            "would change its spec" => (
                Method::PATCH,
                "?dryRun=All",
                json!({ "spec": { "channel": "fast" } }),
            ),
            "would delete it" => (Method::DELETE, "?dryRun=All", Value::Null),
            other => bail!("{other}: not in the vocabulary"),
        };
        let path = format!("{}{suffix}", self.path());
        let body = (!body.is_null()).then_some(&body);
        dialogue.ask(method, &path, body).await?.good().map(drop)
    }
}

impl Stream {
    /// Kymas in a namespace.
    pub(super) fn of_kymas(skr: &Skr, namespace: &str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (dialogue, namespace) = (skr.dialogue.clone(), namespace.to_owned());
        let task = tokio::spawn({
            let over = Arc::clone(&over);
            async move {
                let mut writes = Writes::default();
                while !over.load(Ordering::Relaxed) {
                    writes.add_kyma(&dialogue, &namespace).await?;
                }
                Ok(writes)
            }
        });
        Self { over, task }
    }

    /// Ends it, and tells what was written.
    pub(super) async fn end(self) -> anyhow::Result<Writes> {
        self.over.store(true, Ordering::Relaxed);
        let writes = self.task.await.context("the stream of Kymas")??;
        ensure!(!writes.names.is_empty(), "no Kyma was made");
        Ok(writes)
    }

    /// Ends it, whatever became of it.
    pub(super) fn abandon(self) {
        self.task.abort();
    }
}

impl Writes {
    /// Makes one more Kyma.
    pub(super) async fn add_kyma(
        &mut self,
        dialogue: &Dialogue,
        namespace: &str,
    ) -> anyhow::Result<()> {
        let kyma = Subject::fresh(Kind::Kyma, namespace);
        let begin = Instant::now();
        kyma.create(dialogue, Some("kyma")).await?;
        self.slowest = self.slowest.max(begin.elapsed());
        self.names.push(kyma.name);
        Ok(())
    }
}

fn rule() -> Value {
    json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] })
}

/// No Pod of it runs: only its scale matters.
fn deployment() -> Value {
    json!({
        "replicas": 0,
        "selector": { "matchLabels": { "app": "scaled" } },
        "template": {
            "metadata": { "labels": { "app": "scaled" } },
            "spec": {
                "nodeSelector": { "nowhere": "true" },
                "containers": [{ "name": "none", "image": "localhost/none:1" }],
            },
        },
    })
}
