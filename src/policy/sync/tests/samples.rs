//! Sources, manifests and names that are valid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api_server::Runtime;
use crate::sync::ObjectNames;
use crate::sync::Salt;
use crate::sync::desired::{Desired, DesiredObject, UntouchedReason};
use crate::sync::history::{Grace, SourceHistory};
use crate::sync::manifests::Installation;
use crate::sync::plan::SyncDeferred;
use crate::sync::sources::{
    Document, PullSecret, SourceState, Sources, TrustBundle, read_configuration, read_pull_secret,
    read_trust_bundle,
};

pub(super) const NAMESPACE: &str = "kyma-system";
pub(super) const BUNDLE: &str = "landscape";
pub(super) const UID: &str = "5f0c5f3c-0000-4000-8000-000000000001";
pub(super) fn salt() -> Salt {
    Salt::new("11111111-2222-4333-8444-555555555555")
}

/// Returns the manifests of the webhook, with the fields that are relevant for the order.
pub(super) fn manifests(version: &str) -> Vec<Value> {
    let labels = json!({ "app.kubernetes.io/name": "rt-bootstrapper" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "manager", "namespace": NAMESPACE } }),
        json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "manager-role" },
            "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"] }] }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "webhook-service", "namespace": NAMESPACE },
            "spec": { "selector": labels, "ports": [{ "name": "https", "port": 443, "targetPort": "webhook" }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "rt-bootstrapper-controller-manager", "namespace": NAMESPACE,
                "labels": { "app.kubernetes.io/version": version } },
            "spec": { "replicas": 2, "paused": false, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "manager", "image": format!("webhook:{version}"),
                        "command": ["/runtime-bootstrapper", "webhook"] }] } } } }),
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "webhook-configuration" },
            "webhooks": [{ "name": "mpod-v1.kb.io", "failurePolicy": "Ignore", "objectSelector": {},
                "namespaceSelector": { "matchExpressions": [
                    { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"] }] },
                "clientConfig": { "service": { "name": "webhook-service", "namespace": NAMESPACE } } }] }),
    ]
}

pub(super) fn installation(version: &str) -> Installation {
    Installation::new(manifests(version)).unwrap()
}

pub(super) fn secret(password: &str) -> SourceState<Arc<PullSecret>> {
    let config =
        json!({ "auths": { "registry.example": { "username": "u", "password": password } } });
    SourceState::of(Some(read_pull_secret(
        &salt(),
        Some("kubernetes.io/dockerconfigjson"),
        Some(config.to_string().as_bytes()),
    )))
}

/// Returns a PEM block with the outer form of a certificate.
pub(super) fn pem(content: u8) -> String {
    use base64::Engine as _;
    let der = base64::engine::general_purpose::STANDARD.encode([0x30, 0x03, 0x02, 0x01, content]);
    format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")
}

pub(super) fn bundle(content: u8) -> SourceState<Arc<TrustBundle>> {
    let text = pem(content);
    SourceState::of(Some(read_trust_bundle(&salt(), None, Some(&text))))
}

pub(super) fn document(extra: &str) -> SourceState<Arc<Document>> {
    let text = format!(r#"{{"overrides":{{"docker.io":"mirror.example"}}{extra}}}"#);
    let data = BTreeMap::from([(api::names::CONFIG_KEY.to_owned(), text)]);
    SourceState::of(Some(read_configuration(&salt(), Some(&data))))
}

/// Returns the key of a document that names a bundle.
pub(super) fn mounting(bundle: &str) -> String {
    format!(
        r#","clusterTrustBundle":{{"name":"{bundle}","certWritePath":"a.crt","volumeMountPath":"/b","volumeName":"c"}}"#
    )
}

/// No grace period: an absent source is deleted.
pub(super) const AT_ONCE: Grace = Grace {
    now: Timestamp::UNIX_EPOCH,
    period: Duration::ZERO,
};

/// A grace period of five minutes: an absent source is missing, and not deleted yet.
pub(super) const NOT_YET: Grace = Grace {
    period: Duration::from_mins(5),
    ..AT_ONCE
};

/// Returns the names of the sources on KCP.
pub(super) fn source_names() -> ObjectNames {
    ObjectNames {
        pull_secret: Some("pull".to_owned()),
        trust_bundle: Some("roots".to_owned()),
        ..ObjectNames::on_kcp()
    }
}

/// Returns three valid sources.
pub(super) fn sources() -> Sources {
    Sources {
        names: source_names(),
        pull_secret: secret("one"),
        trust_bundle: bundle(1),
        configuration: document(""),
    }
}

/// Returns the desired state of a runtime, if the sources have not changed.
pub(super) fn desired(sources: &Sources) -> Desired {
    let mut known = SourceHistory::default();
    known.advance(sources, AT_ONCE);
    after(sources, &known)
}

pub(super) fn after(sources: &Sources, known: &SourceHistory) -> Desired {
    Desired::new(sources, known, &Runtime::new().names)
}

pub(super) fn absent() -> Sources {
    Sources {
        names: source_names(),
        pull_secret: SourceState::Absent,
        trust_bundle: SourceState::Absent,
        configuration: SourceState::Absent,
    }
}

pub(super) fn unreadable<T>() -> SourceState<T> {
    SourceState::Invalid("x".to_owned())
}

pub(super) fn what(wanted: &DesiredObject) -> &'static str {
    match wanted {
        DesiredObject::Present { .. } => "present",
        DesiredObject::Removed => "removed",
        DesiredObject::Untouched(UntouchedReason::Disabled) => "off",
        DesiredObject::Untouched(UntouchedReason::Unmanaged) => "unmanaged",
        DesiredObject::Untouched(UntouchedReason::InvalidReference(_)) => "held",
        DesiredObject::Untouched(UntouchedReason::Deferred(deferred)) => match deferred {
            SyncDeferred::InvalidSource { .. } => "invalid",
            SyncDeferred::DeletionPending { .. } => "pending",
            SyncDeferred::SourceNotFound { .. } => "never",
            other => panic!("{other}"),
        },
    }
}
