//! Reading a runtime: objects, lists, watches; and what is looked at before a write.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::edit::namespaces;
use super::{Inner, Runtime};
use crate::fleet::conditions::Writes;
use crate::fleet::object::{Key, Scene, State, Stored};
use crate::fleet::path::{Query, Requirement, Target};
use crate::fleet::status::Refusal;

/// What a watch is told.
#[derive(Debug, Clone)]
pub(in crate::fleet) struct Change {
    pub(in crate::fleet) key: Key,
    kind: &'static str,
    object: Arc<str>,
}

impl Change {
    /// A line of a watch.
    pub(in crate::fleet) fn line(&self) -> String {
        line(self.kind, &self.object)
    }
}

/// A watch: what is there already, and where the rest comes from.
pub(in crate::fleet) struct Watch {
    pub(in crate::fleet) first: Vec<String>,
    pub(in crate::fleet) rest: broadcast::Receiver<Change>,
}

impl Runtime {
    /// One object.
    pub(in crate::fleet) fn get(&self, target: &Target) -> Result<String, Refusal> {
        let inner = self.inner();
        let key = target.key();
        match inner.live(&key) {
            Some(_) => Ok(inner.render(&key, self.scene(&inner.conditions))),
            None => Err(Refusal::not_found(target.kind, &target.name)),
        }
    }

    /// Those of a collection.
    pub(in crate::fleet) fn list(&self, target: &Target, query: &Query) -> String {
        let inner = self.inner();
        let scene = self.scene(&inner.conditions);
        let items: Vec<String> = inner
            .selected(target, query)
            .filter_map(|(key, stored)| stored.render_item(key, scene))
            .collect();
        format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[{}]}}",
            target.kind.name,
            target.kind.api_version(),
            inner.version,
            items.join(",")
        )
    }

    /// Changes of a collection: from now on if the client has seen everything, after what is there if it asks for
    /// that, and otherwise not at all, because there is no history.
    pub(in crate::fleet) fn watch(&self, target: &Target, query: &Query) -> Watch {
        let mut inner = self.inner();
        let changes = inner
            .changes
            .get_or_insert_with(|| broadcast::channel(WATCH_BACKLOG).0);
        let rest = changes.subscribe();
        let current = inner.version.to_string();
        let first = match query.resource_version.as_deref() {
            None | Some("0") => {
                let scene = self.scene(&inner.conditions);
                let objects = inner
                    .selected(target, query)
                    .filter_map(|(key, stored)| stored.render(key, scene));
                objects.map(|object| line("ADDED", &object)).collect()
            }
            Some(seen) if seen == current => Vec::new(),
            Some(_) => vec![line("ERROR", &expired().to_string())],
        };
        Watch { first, rest }
    }
}

impl Inner {
    pub(super) fn live(&self, key: &Key) -> Option<Arc<State>> {
        self.objects.get(key)?.state.clone()
    }

    /// The object's text; empty for one that is not there.
    pub(super) fn render(&self, key: &Key, scene: Scene<'_>) -> String {
        let stored = self.objects.get(key);
        stored
            .and_then(|stored| stored.render(key, scene))
            .unwrap_or_default()
    }

    /// Whether a write may be carried out at all.
    pub(super) fn admit(&self, target: &Target, is_new: bool) -> Result<(), Refusal> {
        let Target {
            kind,
            namespace,
            name,
        } = target;
        let refuse = |why: &str| Err(Refusal::forbidden(kind, name, why));
        match self.conditions.writes {
            Writes::Forbidden => {
                let why = format!(
                    "User \"fleet\" cannot patch resource \"{}\" in API group \"{}\"",
                    kind.resource, kind.group
                );
                return refuse(&why);
            }
            Writes::NamespaceTerminating if is_new && kind.namespaced => {
                return refuse(&format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                ));
            }
            Writes::QuotaExceeded if is_new && kind.namespaced => {
                return refuse(
                    "exceeded quota: all, requested: count=1, used: count=1, limited: count=1",
                );
            }
            _ => {}
        }
        let home = Target {
            kind: namespaces(),
            namespace: String::new(),
            name: namespace.clone(),
        };
        if is_new && kind.namespaced && self.live(&home.key()).is_none() {
            return Err(Refusal::not_found(namespaces(), namespace));
        }
        Ok(())
    }

    pub(super) fn tell(&self, key: &Key, kind: &'static str, object: &str) {
        if let Some(changes) = &self.changes {
            // Nobody may be watching any more.
            let _ = changes.send(Change {
                key: key.clone(),
                kind,
                object: object.into(),
            });
        }
    }

    fn selected<'a>(
        &'a self,
        target: &'a Target,
        query: &'a Query,
    ) -> impl Iterator<Item = (&'a Key, &'a Stored)> {
        self.objects.iter().filter(move |(key, stored)| {
            let labelled = |state| query.labels.is_empty() || labelled(state, &query.labels);
            selects(target, query, key) && stored.state.as_deref().is_some_and(labelled)
        })
    }
}

/// Whether a collection, or the one of it that is asked for, has the object; labels are not looked at.
pub(in crate::fleet) fn selects(target: &Target, query: &Query, key: &Key) -> bool {
    key.kind == target.kind.number()
        && (target.namespace.is_empty() || *key.namespace == *target.namespace)
        && query.only.as_ref().is_none_or(|only| **only == *key.name)
}

fn labelled(state: &State, requirements: &[Requirement]) -> bool {
    let content = state.owned().content;
    let labels = &content["metadata"]["labels"];
    requirements.iter().all(|Requirement { key, value }| {
        let label = labels.get(key).and_then(Value::as_str);
        value
            .as_deref()
            .map_or(label.is_some(), |value| label == Some(value))
    })
}

fn line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn expired() -> Value {
    let message = "The resourceVersion for the provided watch is too old.";
    let mut status = Refusal::new(410, "Expired", message).body();
    status["details"] = json!({});
    status
}

/// Who falls behind by more is cut off, and lists again.
const WATCH_BACKLOG: usize = 64;
