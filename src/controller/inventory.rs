//! The Runtimes on KCP, which are watched once for all controllers of a process.
//!
//! Invariants: managed fields, the specification and conditions are skipped while a response is read, so neither a
//! page of a list nor a stored Runtime contains them. Each controller receives every change, in the order of the
//! watch. Not in here: the state that a controller stores of a Runtime, and writes. A `RuntimeView` cannot be
//! written.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::kcp::{
    FORCE_RECONCILE_KEY, MODE_DIRECT, MODE_LABEL, RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL,
    RUNTIME_VERSION, SIGNALED_REVISION_ANNOTATION, STATE_TERMINATING, SUSPEND_RECONCILIATION,
};
use component_base::readiness::Readiness;
use component_base::watch::{WatchChange, changes, watch_with_backoff};
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use policy::sync::signal::Eligibility;
use serde::{Deserialize, Deserializer};

/// Number of objects in one page of a list, which bounds the memory.
pub(crate) const PAGE_SIZE: u32 = 200;

/// The changes of all Runtimes, for one controller. The stream ends with the watch.
pub struct RuntimeChanges(pub(crate) BoxStream<'static, WatchChange<RuntimeView>>);

/// Watches all Runtimes. Selectors are applied to the changes: with a selector of the watch, a Runtime whose labels change would
/// look deleted.
#[must_use]
pub fn runtimes(client: &Client, namespace: &str, readiness: &Readiness) -> RuntimeChanges {
    let api: Api<RuntimeView> = Api::namespaced(client.clone(), namespace);
    let config = Config::default().page_size(PAGE_SIZE);
    let check = readiness.check("runtimes-watch");
    RuntimeChanges(changes(watch_with_backoff(api, config, check)).boxed())
}

/// Returns the changes for two controllers, and the future that forwards them. A controller that reads slowly does
/// not delay the other one.
pub fn share(
    mut changes: RuntimeChanges,
) -> (
    RuntimeChanges,
    RuntimeChanges,
    impl Future<Output = ()> + Send + use<>,
) {
    let ((to_one, one), (to_other, other)) = (mpsc::unbounded(), mpsc::unbounded());
    let forwarding = async move {
        while let Some(change) = changes.0.next().await {
            // The receiver of a controller that is off is dropped.
            drop(to_one.unbounded_send(change.clone()));
            drop(to_other.unbounded_send(change));
        }
    };
    let [one, other] = [one, other].map(|it| RuntimeChanges(it.boxed()));
    (one, other, forwarding)
}

/// A Runtime as read from a list, a watch or the response to a patch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RuntimeView {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
    status: Option<Status>,
}

impl From<ObjectMeta> for RuntimeView {
    /// Converts the response to a write of the metadata, which does not contain the state.
    fn from(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            status: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Annotations>,
}

/// The annotations that the controller reads. All others are skipped, because annotations may be large: `kubectl
/// apply` stores the whole object in one.
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "operator.kyma-project.io/force-patch-reconciliation")]
    force: Option<String>,
    #[serde(rename = "operator.kyma-project.io/suspend-patch-reconciliation")]
    suspend: Option<String>,
    #[serde(rename = "rt-bootstrapper.kyma-project.io/signaled-revision")]
    signaled: Option<String>,
}

impl From<Annotations> for BTreeMap<String, String> {
    fn from(annotations: Annotations) -> Self {
        let all = [
            (FORCE_RECONCILE_KEY, annotations.force),
            (SUSPEND_RECONCILIATION, annotations.suspend),
            (SIGNALED_REVISION_ANNOTATION, annotations.signaled),
        ];
        let found = all.into_iter();
        found
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

fn trimmed<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let Metadata {
        name,
        namespace,
        resource_version,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations,
    } = Metadata::deserialize(from)?;
    Ok(ObjectMeta {
        name,
        namespace,
        resource_version,
        creation_timestamp,
        deletion_timestamp,
        labels,
        annotations: annotations.map(Into::into),
        ..ObjectMeta::default()
    })
}

impl RuntimeView {
    /// Returns whether the Runtime is being deleted or terminated. The runtime is no longer contacted then.
    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.state() == Some(STATE_TERMINATING)
    }

    /// Returns the state that KIM reports.
    pub(crate) fn state(&self) -> Option<&str> {
        self.status.as_ref()?.state.as_deref()
    }

    /// Returns whether the Runtime may be signaled, from its labels and its state.
    pub(crate) fn eligibility(&self, selector: &Selector) -> Eligibility {
        let no_labels = BTreeMap::new();
        let labels = self.metadata.labels.as_ref().unwrap_or(&no_labels);
        let direct = labels
            .get(MODE_LABEL)
            .is_some_and(|mode| mode == MODE_DIRECT);
        match (self.is_terminating(), direct) {
            (false, true) => Eligibility::Direct,
            (false, false) if selector.matches(labels) => Eligibility::Selected,
            (true, _) | (false, false) => Eligibility::NotSelected,
        }
    }
}

impl Resource for RuntimeView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        RUNTIME_KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        RUNTIME_GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        RUNTIME_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        RUNTIME_PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn names(changes: RuntimeChanges) -> impl Future<Output = Vec<String>> {
        let names = changes.0.map(|change| match change {
            WatchChange::Put(view) => view.metadata.name.unwrap_or_default(),
            WatchChange::Removed(name) => name,
            WatchChange::Listed => "listed".to_owned(),
        });
        names.collect()
    }

    #[tokio::test]
    async fn each_controller_gets_all_changes_and_needs_no_other_one() {
        let view = RuntimeView::from(ObjectMeta {
            name: Some("a".to_owned()),
            ..ObjectMeta::default()
        });
        let changes = || {
            let removed = WatchChange::Removed("b".to_owned());
            let changes = [WatchChange::Put(view.clone()), WatchChange::Listed, removed];
            RuntimeChanges(stream::iter(changes).boxed())
        };
        let all = ["a", "listed", "b"];
        let (one, other, forwarding) = share(changes());
        // The other controller does not read until all changes were forwarded.
        let (seen, ()) = tokio::join!(names(one), forwarding);
        assert_eq!(seen, all);
        assert_eq!(names(other).await, all);
        let (one, other, forwarding) = share(changes());
        drop(one);
        let (seen, ()) = tokio::join!(names(other), forwarding);
        assert_eq!(seen, all);
    }
}
