//! A Runtime of the control plane, as little of it as the signal needs.
//!
//! Invariant: managed fields, specification and conditions are skipped while the answer is read, so neither a page of a
//! list nor what is kept of it holds them. Deliberately absent: writing. [`RuntimeView`] cannot be sent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::kcp::{
    FORCE_RECONCILE_KEY, MODE_DIRECT, MODE_LABEL, RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL,
    RUNTIME_VERSION, STATE_TERMINATING,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use kube::core::{Selector, SelectorExt as _};
use policy::sync::signal::Eligibility;
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

/// Annotations may be large (`kubectl apply` leaves the whole object in one).
#[derive(Deserialize)]
struct Annotations {
    #[serde(
        default,
        rename = "operator.kyma-project.io/force-patch-reconciliation"
    )]
    force: Option<String>,
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
    let force = annotations.and_then(|it| it.force);
    Ok(ObjectMeta {
        name,
        namespace,
        resource_version,
        deletion_timestamp,
        labels,
        annotations: force.map(|value| BTreeMap::from([(FORCE_RECONCILE_KEY.to_owned(), value)])),
        ..ObjectMeta::default()
    })
}

impl RuntimeView {
    /// Whether it is being deleted or taken down: its runtime is not contacted any more.
    pub(crate) fn leaves(&self) -> bool {
        let state = self.status.as_ref().and_then(|it| it.state.as_deref());
        self.metadata.deletion_timestamp.is_some() || state == Some(STATE_TERMINATING)
    }

    /// How it is to be treated, as far as it tells itself.
    pub(crate) fn standing(&self, selector: &Selector) -> Eligibility {
        let no_labels = BTreeMap::new();
        let labels = self.metadata.labels.as_ref().unwrap_or(&no_labels);
        let direct = labels
            .get(MODE_LABEL)
            .is_some_and(|mode| mode == MODE_DIRECT);
        match (self.leaves(), direct) {
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

/// The signal as a Runtime carries it: only the value `"true"` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// The version of the Runtime that this is read from, if it is a number, as every API server's is.
    pub(super) version: Option<u64>,
    pub(super) label: bool,
    pub(super) annotation: bool,
}

impl Marks {
    pub(super) fn read(view: &RuntimeView) -> Self {
        let metadata = &view.metadata;
        let stands = |map: &Option<BTreeMap<String, String>>| {
            let value = map.as_ref().and_then(|it| it.get(FORCE_RECONCILE_KEY));
            value.is_some_and(|value| value == "true")
        };
        Self {
            version: metadata
                .resource_version
                .as_ref()
                .and_then(|it| it.parse().ok()),
            label: stands(&metadata.labels),
            annotation: stands(&metadata.annotations),
        }
    }

    /// Whether it is certainly an older state than the other one: what a watch brings may be older than the answer to a
    /// patch, and would look as if the signal had been taken.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let versions = self.version.zip(other.version);
        versions.is_some_and(|(this, that)| this < that)
    }
}

/// What is kept of a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) marks: Marks,
    /// How it is to be treated, as far as it tells itself.
    pub(super) standing: Eligibility,
}

impl Sight {
    /// The name and what is kept.
    pub(super) fn read(view: &RuntimeView, selector: &Selector) -> (String, Self) {
        let sight = Self {
            marks: Marks::read(view),
            standing: view.standing(selector),
        };
        (view.metadata.name.clone().unwrap_or_default(), sight)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Expression;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn view(metadata: &Value, state: &str) -> RuntimeView {
        let runtime = json!({"metadata": metadata, "status": {"state": state}});
        serde_json::from_value(runtime).unwrap()
    }

    #[rstest]
    #[case::plain(json!({}), "Ready", Eligibility::Selected)]
    #[case::no_state_yet(json!({}), "", Eligibility::Selected)]
    #[case::pending(json!({}), "Pending", Eligibility::Selected)]
    #[case::failed(json!({}), "Failed", Eligibility::Selected)]
    #[case::terminating(json!({}), "Terminating", Eligibility::NotSelected)]
    #[case::being_deleted(json!({"deletionTimestamp": "2026-11-21T00:00:00Z"}), "Ready", Eligibility::NotSelected)]
    #[case::direct(json!({"labels": {"rt-bootstrapper.kyma-project.io/mode": "direct", "plan": "aws"}}), "Ready", Eligibility::Direct)]
    #[case::signal(json!({"labels": {"rt-bootstrapper.kyma-project.io/mode": "signal", "plan": "aws"}}), "Ready", Eligibility::Selected)]
    #[case::not_selected(json!({"labels": {"plan": "trial"}}), "Ready", Eligibility::NotSelected)]
    fn standing_follows_from_labels_and_state(
        #[case] mut metadata: Value,
        #[case] state: &str,
        #[case] standing: Eligibility,
    ) {
        if metadata["labels"].is_null() {
            metadata["labels"] = json!({"plan": "aws"});
        }
        metadata["name"] = json!("a");
        let selector = Selector::from_iter([("plan", "aws")]);
        let (name, sight) = Sight::read(&view(&metadata, state), &selector);
        assert_eq!((name.as_str(), sight.standing), ("a", standing));
    }

    #[test]
    fn an_empty_selector_selects_every_runtime() {
        let (_, sight) = Sight::read(&view(&json!({}), "Ready"), &Selector::default());
        assert_eq!(sight.standing, Eligibility::Selected);
        let absent = Selector::from(Expression::DoesNotExist("plan".to_owned()));
        let (_, sight) = Sight::read(&view(&json!({}), "Ready"), &absent);
        assert_eq!(sight.standing, Eligibility::Selected);
    }

    #[rstest]
    #[case::as_it_should_be("true", true)]
    #[case::capital("True", false)]
    #[case::number("1", false)]
    #[case::empty("", false)]
    fn value_that_is_not_exactly_true_is_no_signal(#[case] value: &str, #[case] stands: bool) {
        let key = "operator.kyma-project.io/force-patch-reconciliation";
        let label = Marks::read(&view(&json!({"labels": {key: value}}), "Ready"));
        assert_eq!((label.label, label.annotation), (stands, false));
        let annotation = Marks::read(&view(
            &json!({"annotations": {key: value, "b": "c"}}),
            "Ready",
        ));
        assert_eq!((annotation.label, annotation.annotation), (false, stands));
    }

    #[test]
    fn what_is_not_needed_is_not_kept() {
        let metadata = json!({
            "name": "a", "uid": "u", "finalizers": ["f"], "managedFields": [{"manager": "m"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "everything"},
        });
        let text = format!("{:?}", view(&metadata, "Ready"));
        for absent in ["everything", "manager: Some", "finalizers: Some"] {
            assert!(!text.contains(absent), "{text}");
        }
    }

    #[test]
    fn versions_that_are_no_numbers_are_never_older() {
        let marks = |version| Marks {
            version,
            ..Marks::default()
        };
        assert!(marks(Some(9)).is_older_than(&marks(Some(10))));
        assert!(!marks(Some(10)).is_older_than(&marks(Some(10))));
        assert!(!marks(None).is_older_than(&marks(Some(10))));
    }
}
