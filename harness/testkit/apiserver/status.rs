//! Errors of the API server: `Status` objects with the reasons of a real one.
//!
//! Wording and codes are those of answers of a real API server; the fidelity test compares them.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::merge::{Conflict, Operation};
use super::request::Target;

/// What is wrong with an object: field, kind of fault, text.
pub(super) type Complaint = (String, &'static str, String);

fn causes(complaints: &[Complaint]) -> Value {
    let causes = complaints.iter().map(
        |(field, reason, message)| json!({"reason": reason, "message": message, "field": field}),
    );
    causes.collect()
}

/// A request that is not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    /// Empty for a fault of the server that has none.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Value,
    /// Seconds, as `Retry-After` has them.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: json!({}),
            retry_after: None,
        }
    }

    fn about(self, kind: &Kind, name: &str) -> Self {
        let details = json!({"name": name, "group": kind.group, "kind": kind.resource});
        Self { details, ..self }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self::new(404, "NotFound", message).about(kind, name)
    }

    /// A path that no kind has.
    pub(super) fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message).about(kind, name)
    }

    pub(super) fn unsupported_media_type(sent: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format ({sent}) - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    /// The rights do not allow it.
    pub(super) fn not_allowed(verb: &str, target: &Target) -> Self {
        let Target {
            kind,
            namespace,
            name,
            status,
        } = target;
        let verb = if verb == "apply" { "patch" } else { verb };
        let part = if *status { "/status" } else { "" };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let why = format!(
            "User \"test\" cannot {verb} resource \"{}{part}\" in API group \"{}\" {place}",
            kind.resource, kind.group
        );
        Self::forbidden(kind, name, &why)
    }

    /// The namespace is being deleted.
    pub(super) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut refusal = Self::forbidden(kind, name, &why);
        refusal.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        refusal
    }

    /// A version that the server has not reached.
    pub(super) fn too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {wanted}, current: {current}");
        let mut refusal = Self::new(504, "Timeout", message);
        refusal.details = json!({"causes": [{
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        }]});
        refusal.retry_after = Some(1);
        refusal
    }

    /// A version whose changes are forgotten.
    pub(super) fn expired() -> Self {
        Self::new(
            410,
            "Expired",
            "The resourceVersion for the provided watch is too old.",
        )
    }

    /// The resource version of another write.
    pub(super) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// An object that is not the one that the client means.
    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let object = format!("{} \"{name}\"", kind.qualified());
        let message = format!("Operation cannot be fulfilled on {object}: {why}");
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// The object itself is wrong.
    pub(super) fn invalid(kind: &Kind, name: &str, complaints: &[Complaint]) -> Self {
        let texts = complaints
            .iter()
            .map(|(field, _, text)| format!("{field}: {text}"));
        let texts: Vec<String> = texts.collect();
        let message = format!("{} \"{name}\" is invalid: {}", kind.name, texts.join(", "));
        let mut refusal = Self::new(422, "Invalid", message).about(kind, name);
        refusal.details["kind"] = json!(kind.name);
        refusal.details["causes"] = causes(complaints);
        refusal
    }

    /// A patch that cannot be carried out.
    pub(super) fn unprocessable(message: &str) -> Self {
        let message =
            format!("the server rejected our request due to an error in our request: {message}");
        Self::new(422, "Invalid", message)
    }

    pub(super) fn field_conflicts(conflicts: &[Conflict]) -> Self {
        let complaint = |it: &Conflict| {
            let mut text = format!("conflict with {:?}", it.manager);
            if it.operation == Operation::Update {
                text = format!("{text} using {}", it.api_version);
            }
            (it.field.clone(), "FieldManagerConflict", text)
        };
        let complaints: Vec<Complaint> = conflicts.iter().map(complaint).collect();
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let texts = complaints
            .iter()
            .map(|(field, _, text)| format!("{text}: {field}"));
        let texts: Vec<String> = texts.collect();
        let (count, texts) = (conflicts.len(), texts.join(", "));
        let message = format!("Apply failed with {count} conflict{plural}: {texts}");
        let mut refusal = Self::new(409, "Conflict", message);
        refusal.details = json!({ "causes": causes(&complaints) });
        refusal
    }

    /// Its body.
    pub(super) fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "details": self.details,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if let Some(seconds) = self.retry_after {
            status["details"]["retryAfterSeconds"] = json!(seconds);
        }
        status
    }
}
