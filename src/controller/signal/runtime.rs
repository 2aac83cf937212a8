//! A Runtime of the control plane, as little of it as the signal needs.
//!
//! Invariant: managed fields, specification and conditions are skipped while the answer is read, so neither a page of a
//! list nor what is kept of it holds them. Deliberately absent: writing. [`RuntimeView`] cannot be sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::kcp::{
    FORCE_RECONCILE_KEY, MODE_DIRECT, MODE_LABEL, RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL,
    RUNTIME_VERSION, SIGNALED_REVISION_ANNOTATION, STATE_READY, STATE_TERMINATING,
    SUSPEND_RECONCILIATION,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::{Selector, SelectorExt as _};
use policy::sync::signal::{
    Eligibility, ObservedKeys, ObservedRuntime, RuntimeState, SignalKeys, Signaled,
};
use serde::{Deserialize, Deserializer};

/// A Runtime as it is read from a list, a watch or the answer to a patch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RuntimeView {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Clone, Debug, Deserialize)]
struct Status {
    #[serde(default)]
    state: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// Annotations may be large (`kubectl apply` leaves the whole object in one), so only these are read.
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
        deletion_timestamp,
        labels,
        annotations,
    } = Metadata::deserialize(from)?;
    Ok(ObjectMeta {
        name,
        namespace,
        resource_version,
        deletion_timestamp,
        labels,
        annotations: annotations.map(Into::into),
        ..ObjectMeta::default()
    })
}

impl RuntimeView {
    /// Whether it is being deleted or taken down: its runtime is not contacted any more.
    pub(crate) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.state() == Some(STATE_TERMINATING)
    }

    fn state(&self) -> Option<&str> {
        self.status.as_ref()?.state.as_deref()
    }

    /// How it is to be treated, as far as it tells itself.
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

/// What is stored of a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedRuntime {
    /// The resource version, if it is a number, as those of every API server are.
    version: Option<u64>,
    /// Its eligibility is the one by its own labels and state.
    pub(super) runtime: ObservedRuntime,
}

impl CachedRuntime {
    pub(super) fn read(view: &RuntimeView, selector: &Selector) -> Self {
        let metadata = &view.metadata;
        let is_true = |map: &Option<BTreeMap<String, String>>, key: &str| {
            let value = map.as_ref().and_then(|it| it.get(key));
            value.is_some_and(|it| it == "true")
        };
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).map(String::as_str);
        Self {
            version: metadata
                .resource_version
                .as_ref()
                .and_then(|it| it.parse().ok()),
            runtime: ObservedRuntime {
                eligibility: view.eligibility(selector),
                signaled: Signaled::from(annotation(SIGNALED_REVISION_ANNOTATION)),
                keys: ObservedKeys {
                    label: is_true(&metadata.labels, FORCE_RECONCILE_KEY),
                    annotation: is_true(&metadata.annotations, FORCE_RECONCILE_KEY),
                },
                foreign: false,
                spoiled: false,
                state: match view.state() {
                    _ if is_true(&metadata.annotations, SUSPEND_RECONCILIATION) => {
                        RuntimeState::Suspended
                    }
                    None | Some("" | STATE_READY) => RuntimeState::Ready,
                    Some(_) => RuntimeState::NotReady,
                },
            },
        }
    }

    /// The newer one of the two: a watch may report a state that is older than the response to a write.
    pub(super) fn after(mut self, before: Option<&Self>, keys: SignalKeys) -> Self {
        let versions = before.and_then(|it| Some((it.version?, self.version?, it)));
        if let Some((known, observed, before)) = versions
            && observed < known
        {
            return *before;
        }
        self.runtime.follow(before.map(|it| &it.runtime), keys);
        self
    }

    /// The response to a write: the metadata, without the state.
    pub(super) fn written(metadata: ObjectMeta) -> Self {
        let view = RuntimeView {
            metadata,
            status: None,
        };
        Self::read(&view, &Selector::default())
    }
}
