//! Errors of the API server: `Status` objects with the reasons of a real API server.
//!
//! Texts and codes are those of a real API server; the fidelity test compares them.

use serde_json::{Value, json};

use super::object::Key;

/// A validation error of an object: field, reason and text.
pub(super) type Complaint = (String, &'static str, String);

/// A rejected request: the `Status` with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) Value);

impl Refusal {
    pub(super) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut refusal = Self::without_reason(code, message);
        refusal.0["reason"] = json!(reason);
        refusal
    }

    /// Returns an internal error, which has no reason.
    pub(super) fn without_reason(code: u16, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "details": {}, "code": code,
        }))
    }

    fn about(key: &Key, code: u16, reason: &str, message: impl Into<String>) -> Self {
        let mut refusal = Self::new(code, reason, message);
        let (name, group, kind) = (&*key.name, key.kind.group(), key.kind.resource);
        refusal.0["details"] = json!({"name": name, "group": group, "kind": kind});
        refusal
    }

    /// Adds `details.causes`.
    pub(super) fn because(mut self, complaints: &[Complaint]) -> Self {
        let causes = complaints.iter().map(|(field, reason, message)| {
            json!({"reason": reason, "message": message, "field": field})
        });
        self.0["details"]["causes"] = causes.collect();
        self
    }

    /// Adds the delay after which the client may retry, if there is one.
    pub(super) fn retry_after(mut self, seconds: Option<u64>) -> Self {
        if let Some(seconds) = seconds {
            self.0["details"]["retryAfterSeconds"] = json!(seconds);
        }
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(key: &Key) -> Self {
        Self::about(key, 404, "NotFound", format!("{key} not found"))
    }

    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(super) fn already_exists(key: &Key) -> Self {
        Self::about(key, 409, "AlreadyExists", format!("{key} already exists"))
    }

    pub(super) fn unsupported_media_type(sent: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format ({sent}) - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn forbidden(key: &Key, why: &str) -> Self {
        Self::about(key, 403, "Forbidden", format!("{key} is forbidden: {why}"))
    }

    pub(super) fn not_allowed(verb: &str, resource: &str, key: &Key) -> Self {
        let place = match &*key.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let group = key.kind.group();
        let why = format!(
            "User \"test\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
        );
        Self::forbidden(key, &why)
    }

    pub(super) fn terminating(key: &Key) -> Self {
        let it = format!("namespace {}", key.namespace);
        let why = format!("unable to create new content in {it} because it is being terminated");
        Self::forbidden(key, &why).because(&[(
            "metadata.namespace".to_owned(),
            "NamespaceTerminating",
            format!("{it} is being terminated"),
        )])
    }

    /// Returns the error for a resource version that the server has not reached.
    pub(super) fn too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut refusal = Self::new(504, "Timeout", message).retry_after(Some(1));
        refusal.0["details"]["causes"] = json!([{
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        }]);
        refusal
    }

    /// Returns the error for a resource version whose changes are not available any more.
    pub(super) fn expired() -> Self {
        let message = "The resourceVersion for the provided watch is too old.";
        Self::new(410, "Expired", message)
    }

    /// Returns the error for an outdated resource version.
    pub(super) fn modified(key: &Key) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(key, why)
    }

    /// Returns the error for an object that does not match the client's preconditions.
    pub(super) fn conflict(key: &Key, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {key}: {why}");
        Self::about(key, 409, "Conflict", message)
    }

    pub(super) fn invalid(key: &Key, complaints: &[Complaint]) -> Self {
        let texts = complaints
            .iter()
            .map(|(field, _, text)| format!("{field}: {text}"));
        let texts = texts.collect::<Vec<_>>().join(", ");
        let (kind, name) = (key.kind.name, &key.name);
        let message = format!("{kind} \"{name}\" is invalid: {texts}");
        let mut refusal = Self::about(key, 422, "Invalid", message).because(complaints);
        refusal.0["details"]["kind"] = json!(kind);
        refusal
    }

    pub(super) fn unprocessable(error: &json_patch::PatchError) -> Self {
        let message =
            format!("the server rejected our request due to an error in our request: {error}");
        Self::new(422, "Invalid", message)
    }

    pub(super) fn field_conflicts(conflicts: &[Complaint]) -> Self {
        let texts = conflicts
            .iter()
            .map(|(field, _, text)| format!("{text}: {field}"));
        let texts = texts.collect::<Vec<_>>().join(", ");
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let count = conflicts.len();
        let message = format!("Apply failed with {count} conflict{plural}: {texts}");
        Self::new(409, "Conflict", message).because(conflicts)
    }
}
