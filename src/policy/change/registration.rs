//! The ValidatingWebhookConfiguration that makes an API server send the changes that Watchers select: one entry for
//! each Watcher.
//!
//! Invariant: the same Watchers in any order result in the same object. No single Watcher can make the API server
//! reject the object: an invalid Watcher is rejected here, with its name. Deliberately absent: namespace selectors
//! and match conditions. The public object has none, and a condition that fails would skip the review without an
//! error.

use std::collections::{BTreeMap, BTreeSet};

use api::syntax::{is_label, is_label_key, is_label_value, is_subdomain};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::watcher::{Field, ResourceRule, STATUS, Watcher};

/// Name of the configuration, and of its Service.
pub const CONFIGURATION: &str = "skr-webhook";

/// Suffix of the names of entries.
const SUFFIX: &str = "operator.kyma-project.io";

/// A Watcher with the additional fields that the API server needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Namespace of the Watcher on KCP.
    pub namespace: String,
    /// Name of the Watcher.
    pub name: String,
    /// The watched resources and the manager.
    pub watcher: Watcher,
    /// `spec.labelsToWatch`; if empty, objects with any labels are watched.
    pub labels: BTreeMap<String, String>,
}

/// The destination of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// The CA certificates, in PEM, that verify the certificate of the watcher; `None` leaves the field to another client.
    pub authorities: Option<&'a [u8]>,
    /// Maximum time that a write waits for a response of the watcher, in seconds: 1 to 30.
    pub timeout_seconds: u8,
}

/// Reason why a Watcher cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Two Watchers have one name, and the name is the merge key of entries.
    #[error("Watcher {0}: duplicate")]
    Twice(String),
    /// Namespace or name are not valid for an object, or are together too long for the name of an entry.
    #[error("Watcher {0}: namespace or name: not a valid object name")]
    Name(String),
    /// A label is not valid for an object.
    #[error("Watcher {0}: labels: not a valid label")]
    Label(String),
    /// The Watcher selects no resource, or a field of the resource is empty.
    #[error("Watcher {0}: resource: version and resource are required")]
    Resource(String),
}

/// Returns the ValidatingWebhookConfiguration for `registrations`.
///
/// # Errors
/// The first Watcher, by name, that the API server would reject.
pub fn configuration(
    registrations: &[Registration],
    endpoint: &Endpoint<'_>,
) -> Result<Value, RegistrationError> {
    let mut sorted: Vec<&Registration> = registrations.iter().collect();
    sorted.sort_by_key(|it| (&it.namespace, &it.name));
    let mut names = BTreeSet::new();
    let mut entries = Vec::with_capacity(sorted.len());
    for registration in sorted {
        registration.check()?;
        let name = registration.entry_name();
        entries.push(registration.entry(&name, endpoint));
        if !names.insert(name) {
            return Err(RegistrationError::Twice(registration.shown()));
        }
    }
    Ok(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": CONFIGURATION,
            "labels": {"app": CONFIGURATION, "operator.kyma-project.io/managed-by": "kyma"},
        },
        "webhooks": entries,
    }))
}

/// Returns the name of the entry of a Watcher.
#[must_use]
pub fn entry_name(namespace: &str, name: &str) -> String {
    format!("{namespace}.{name}.{SUFFIX}")
}

impl Registration {
    fn shown(&self) -> String {
        format!("{:?}/{:?}", self.namespace, self.name)
    }

    fn entry_name(&self) -> String {
        entry_name(&self.namespace, &self.name)
    }

    /// Whether the API server would accept its entry.
    pub(crate) fn check(&self) -> Result<(), RegistrationError> {
        // The name of the entry contains the name of the Watcher.
        if !is_label(&self.namespace) || !is_subdomain(&self.entry_name()) {
            return Err(RegistrationError::Name(self.shown()));
        }
        let mut labels = self.labels.iter();
        if !labels.all(|(key, value)| is_label_key(key) && is_label_value(value)) {
            return Err(RegistrationError::Label(self.shown()));
        }
        let named = |rule: &ResourceRule| {
            let is_empty = rule.version.is_empty() || rule.resource.is_empty();
            !is_empty && rule.subresource.as_deref() != Some("")
        };
        if self.watcher.resources.is_empty() || !self.watcher.resources.iter().all(named) {
            return Err(RegistrationError::Resource(self.shown()));
        }
        Ok(())
    }

    fn entry(&self, name: &str, endpoint: &Endpoint<'_>) -> Value {
        let mut client = json!({
            "service": {
                "name": CONFIGURATION,
                "namespace": endpoint.namespace,
                "path": format!("/validate/{}", self.watcher.manager),
                "port": 443,
            },
        });
        if let Some(pem) = endpoint.authorities {
            client["caBundle"] = STANDARD.encode(pem).into();
        }
        let rules: Vec<Value> = self
            .watcher
            .resources
            .iter()
            .map(|it| rule(it, self.watcher.field))
            .collect();
        let mut entry = json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client,
            "rules": rules,
            // Without the watcher a write succeeds anyway, and KCP reads all objects periodically.
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            // A review writes the spool, except for a dry run.
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": endpoint.timeout_seconds,
            // Selectors that match all objects are written explicitly, so that selectors of other clients are removed.
            "namespaceSelector": {},
            "objectSelector": {},
        });
        if !self.labels.is_empty() {
            entry["objectSelector"] = json!({"matchLabels": self.labels});
        }
        entry
    }
}

fn rule(rule: &ResourceRule, field: Field) -> Value {
    let ResourceRule {
        group,
        version,
        resource,
        subresource,
    } = rule;
    let resource = match (subresource, field) {
        (Some(subresource), _) => format!("{resource}/{subresource}"),
        (None, Field::Status) => format!("{resource}/{STATUS}"),
        (None, Field::Spec) => resource.clone(),
    };
    json!({
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "scope": "*",
    })
}
