//! Runtimes that may have a watcher although no Kyma represents them any more. The Certificate of the Kyma says which ones, so
//! that each leader finds them: the runtime of its common name while it is being deleted, and those of an annotation.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use policy::certificates::KYMA_NAMESPACE_ANNOTATION;
use serde_json::{Value, json};

/// Finalizer of a Certificate that is being deleted, until the watcher is removed from the runtime of its common name.
pub(crate) const WATCHER_FINALIZER: &str = "rt-bootstrapper.kyma-project.io/watcher";

/// Annotation of a Certificate with earlier runtime IDs of its Kyma, separated by commas, until the watcher is removed from these
/// runtimes.
const EARLIER_RUNTIME_IDS: &str = "rt-bootstrapper.kyma-project.io/earlier-runtime-ids";

/// A runtime from which the watcher has to be removed, unless a Kyma or a RuntimeBootstrapper represents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftWatcher {
    /// Name of the Kyma that represented the runtime.
    pub(crate) kyma: String,
    pub(crate) runtime_id: String,
    /// Time since which the watcher has to be removed; `None` if only this leader can limit the removal.
    pub(crate) since: Option<Timestamp>,
    /// Whether nothing is left on the runtime.
    pub(crate) is_removed: bool,
}

impl LeftWatcher {
    /// Returns the runtimes that the Certificate of a Kyma in this namespace names.
    pub(super) fn named_by(
        certificate: &DynamicObject,
        (namespace, kyma): (&str, &str),
    ) -> Vec<Self> {
        if !is_of_namespace(certificate, namespace) {
            return Vec::new();
        }
        let left = |runtime_id: &str, since| Self {
            kyma: kyma.to_owned(),
            runtime_id: runtime_id.to_owned(),
            since,
            is_removed: false,
        };
        let earlier = earlier_ids(certificate).map(|it| left(it, None));
        let deleted = certificate.metadata.deletion_timestamp.as_ref();
        let deleted = deleted.filter(|_| has_finalizer(certificate));
        let deleted = deleted.map(|it| left(common_name(certificate), Some(it.0)));
        earlier.chain(deleted).collect()
    }

    /// Returns what is left of the time limit of a removal.
    pub(crate) fn remaining(&self, limit: Duration) -> Duration {
        let passed = self.since.map(|it| Timestamp::now().duration_since(it));
        let passed = passed.and_then(|it| Duration::try_from(it).ok());
        limit.saturating_sub(passed.unwrap_or_default())
    }

    /// Returns whether the deletion of the Certificate has yet to begin, if its Kyma no longer exists.
    pub(crate) fn is_awaited_by(&self, certificate: &DynamicObject, namespace: &str) -> bool {
        is_of_namespace(certificate, namespace)
            && certificate.metadata.deletion_timestamp.is_none()
            && common_name(certificate) == self.runtime_id
    }

    /// Returns the merge patch after which the Certificate does not name the runtime any more; `None` if it does not name it.
    pub(crate) fn release(&self, certificate: &DynamicObject, namespace: &str) -> Option<Value> {
        let id = self.runtime_id.as_str();
        let is_earlier = earlier_ids(certificate).any(|it| it == id);
        let others = joined(earlier_ids(certificate).filter(|it| *it != id));
        // The finalizer also keeps the Certificate for the earlier runtimes.
        let is_last =
            common_name(certificate) == id && has_finalizer(certificate) && others.is_none();
        if !is_of_namespace(certificate, namespace) || !is_earlier && !is_last {
            return None;
        }
        let mut metadata = json!({ "resourceVersion": certificate.resource_version() });
        if is_earlier {
            metadata["annotations"] = json!({ EARLIER_RUNTIME_IDS: others });
        }
        if is_last {
            let finalizers = certificate.finalizers().iter();
            let others: Vec<_> = finalizers.filter(|it| *it != WATCHER_FINALIZER).collect();
            metadata["finalizers"] = json!(others);
        }
        Some(json!({ "metadata": metadata }))
    }
}

/// Adds the runtime IDs to a desired Certificate from whose runtimes the watcher has to be removed: those that the live Certificate
/// names, and its common name if it changes.
pub(crate) fn keep_earlier_ids(desired: &mut Value, live: &DynamicObject) {
    let annotations = &desired["metadata"]["annotations"];
    let namespace = annotations[KYMA_NAMESPACE_ANNOTATION].as_str();
    if !namespace.is_some_and(|it| is_of_namespace(live, it)) {
        return;
    }
    let id = desired["spec"]["commonName"].as_str();
    let ids = earlier_ids(live).chain([common_name(live)]);
    if let Some(ids) = joined(ids.filter(|it| !it.is_empty() && Some(*it) != id)) {
        desired["metadata"]["annotations"][EARLIER_RUNTIME_IDS] = json!(ids);
    }
}

fn is_of_namespace(certificate: &DynamicObject, namespace: &str) -> bool {
    let found = certificate.annotations().get(KYMA_NAMESPACE_ANNOTATION);
    found.is_some_and(|it| it == namespace)
}

fn has_finalizer(certificate: &DynamicObject) -> bool {
    certificate
        .finalizers()
        .iter()
        .any(|it| it == WATCHER_FINALIZER)
}

fn common_name(certificate: &DynamicObject) -> &str {
    let name = certificate.data.pointer("/spec/commonName");
    name.and_then(Value::as_str).unwrap_or_default()
}

fn earlier_ids(certificate: &DynamicObject) -> impl Iterator<Item = &str> {
    let ids = certificate.annotations().get(EARLIER_RUNTIME_IDS);
    let ids = ids.into_iter().flat_map(|it| it.split(','));
    ids.filter(|it| !it.is_empty())
}

fn joined<'a>(ids: impl Iterator<Item = &'a str>) -> Option<String> {
    let ids: Vec<&str> = ids.collect::<BTreeSet<_>>().into_iter().collect();
    (!ids.is_empty()).then(|| ids.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "kcp-system";

    fn certificate(id: &str, earlier: Option<&str>) -> DynamicObject {
        serde_json::from_value(desired(id, earlier)).unwrap()
    }

    fn desired(id: &str, earlier: Option<&str>) -> Value {
        let mut annotations = json!({ KYMA_NAMESPACE_ANNOTATION: OURS });
        if let Some(earlier) = earlier {
            annotations[EARLIER_RUNTIME_IDS] = json!(earlier);
        }
        json!({"metadata": {"name": "k-webhook-tls", "annotations": annotations}, "spec": {"commonName": id}})
    }

    #[test]
    fn certificate_names_each_earlier_runtime_id_until_it_is_released() {
        let mut live = certificate("a", None);
        for (id, expected) in [
            ("a", None),
            ("b", Some("a")),
            ("c", Some("a,b")),
            ("c", Some("a,b")),
            ("a", Some("b,c")),
        ] {
            let mut changed = desired(id, None);
            keep_earlier_ids(&mut changed, &live);
            assert_eq!(changed, desired(id, expected));
            live = serde_json::from_value(changed).unwrap();
        }
        let left = LeftWatcher::named_by(&live, (OURS, "k"));
        let ids: Vec<&str> = left.iter().map(|it| it.runtime_id.as_str()).collect();
        assert_eq!(ids, ["b", "c"]);
        let patch = left[0].release(&live, OURS).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({EARLIER_RUNTIME_IDS: "c"})
        );
        let patch = left[1].release(&certificate("a", Some("c")), OURS).unwrap();
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({EARLIER_RUNTIME_IDS: null})
        );
        assert_eq!(left[0].release(&certificate("a", Some("c")), OURS), None);
        // The Certificate is kept for the runtime of the earlier ID.
        live.metadata.finalizers = Some(vec![WATCHER_FINALIZER.to_owned()]);
        let last = LeftWatcher {
            runtime_id: "a".to_owned(),
            ..left[0].clone()
        };
        assert_eq!(last.release(&live, OURS), None);
        live.metadata
            .annotations
            .as_mut()
            .unwrap()
            .remove(EARLIER_RUNTIME_IDS);
        let patch = last.release(&live, OURS).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!([]));
    }

    /// Another control plane has a Certificate with this name in the namespace.
    #[test]
    fn certificate_of_another_namespace_names_no_runtime() {
        let live = certificate("a", Some("b"));
        assert_eq!(LeftWatcher::named_by(&live, ("other", "k")), []);
        let left = LeftWatcher::named_by(&live, (OURS, "k"));
        assert_eq!(left[0].release(&live, "other"), None);
        let mut changed = desired("c", None);
        changed["metadata"]["annotations"][KYMA_NAMESPACE_ANNOTATION] = json!("other");
        let before = changed.clone();
        keep_earlier_ids(&mut changed, &live);
        assert_eq!(changed, before);
    }
}
