//! What makes an API server send what the Watchers name: one ValidatingWebhookConfiguration, one entry a
//! Watcher.
//!
//! Invariant: the same Watchers in any order give the same object, and no single one of them can make the API server reject
//! it: what it would reject is rejected here, with the name of the Watcher. Deliberately absent: namespace selectors and match
//! conditions; the public object has none, and a condition that fails would skip the review without a word.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::watcher::{Field, ResourceRule, STATUS, Watcher};

/// Name of the configuration, and of the Service that it leads to.
pub const CONFIGURATION: &str = "skr-webhook";

/// What the names of entries end in.
const SUFFIX: &str = "operator.kyma-project.io";

/// A Watcher with what only the API server needs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The Watcher's namespace on KCP.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is watched for whom.
    pub watcher: Watcher,
    /// `spec.labelsToWatch`; empty: objects with any labels.
    pub labels: BTreeMap<String, String>,
}

/// Where reviews are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// The namespace of the Service.
    pub namespace: &'a str,
    /// The certificates, in PEM, that the watcher's own is verified with; `None` leaves the field to another writer.
    pub authorities: Option<&'a [u8]>,
    /// How long a write waits at most for an answer that does not come, in seconds: 1 to 30.
    pub timeout_seconds: u8,
}

/// Why a Watcher cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// Two Watchers have one name; entries are merged by theirs.
    #[error("Watcher {0}: duplicate")]
    Twice(String),
    /// Namespace or name cannot be those of an object, or are too long together for an entry's name.
    #[error("Watcher {0}: namespace or name: not a valid object name")]
    Name(String),
    /// A label that no object could carry.
    #[error("Watcher {0}: labels: not a valid label")]
    Label(String),
    /// Nothing to watch, or a part of it is empty.
    #[error("Watcher {0}: resource: version and resource are required")]
    Resource(String),
}

/// The ValidatingWebhookConfiguration for `registrations`.
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

/// The name of the entry of a Watcher.
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
        if !is_label(&self.namespace)
            || !is_subdomain(&self.name)
            || !is_subdomain(&self.entry_name())
        {
            return Err(RegistrationError::Name(self.shown()));
        }
        let carried = |(key, value): (&String, &String)| is_label_key(key) && is_label_value(value);
        if !self.labels.iter().all(carried) {
            return Err(RegistrationError::Label(self.shown()));
        }
        let named = |rule: &ResourceRule| {
            let parts = [&rule.version, &rule.resource];
            let subresource = rule.subresource.as_deref();
            parts.iter().all(|part| !part.is_empty()) && subresource != Some("")
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
            // A write goes on without us; KCP looks at everything from time to time.
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            // The spool is written, but not for a dry run.
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": endpoint.timeout_seconds,
            // Selectors that match everything are written, too: one that is added by others is removed.
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

/// RFC 1123, as the API server checks it.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_part)
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_label_part(text)
}

fn is_label_part(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_qualified_part(name),
        None => is_qualified_part(key),
    }
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_qualified_part(value)
}

fn is_qualified_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && text.bytes().all(inner)
        && outer(text.as_bytes().first())
        && outer(text.as_bytes().last())
}
