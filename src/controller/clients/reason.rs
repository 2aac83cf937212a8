//! The reason of an API server for a rejected request, reduced to its machine-readable parts.
//!
//! Invariant: the reason is bounded, and limited to letters, digits and the punctuation of field paths. The message
//! is only used to distinguish a quota from missing permissions, which have the same reason in Kubernetes. It is not
//! kept, since it may quote the request.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause};

/// The `reason` of a `Status`, and the fields in its causes. The reason is empty if the body is not a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    name: String,
    causes: Vec<Cause>,
    quota: bool,
    /// Whether the reason is about a Namespace.
    namespace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause {
    name: String,
    field: String,
}

impl Reason {
    /// Reads a `Status`.
    pub(super) fn read(body: &[u8]) -> Self {
        // The type checks the kind.
        let Ok(status) = serde_json::from_slice::<Status>(body) else {
            return Self::default();
        };
        let details = status.details.unwrap_or_default();
        let causes = details.causes.unwrap_or_default();
        let cause = |it: StatusCause| Cause {
            name: bounded(it.reason, is_name),
            field: bounded(it.field, is_field),
        };
        Self {
            name: bounded(status.reason, is_name),
            causes: causes.into_iter().take(MAX_CAUSES).map(cause).collect(),
            quota: status
                .message
                .is_some_and(|it| it.contains("exceeded quota")),
            namespace: details.kind.as_deref() == Some("namespaces"),
        }
    }

    /// The reason of Kubernetes, such as `Forbidden`; empty if there is none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rejected fields, such as `spec.replicas`; at most sixteen.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.causes.iter().map(|it| it.field.as_str());
        fields.filter(|it| !it.is_empty())
    }

    /// Returns a detail that the reason does not contain: `Forbidden` is also the reason for a missing permission, and `NotFound`
    /// for an object that does not exist.
    fn detail(&self) -> Option<&'static str> {
        if self.quota {
            return Some("a quota is exceeded");
        }
        if self.namespace && self.name == "NotFound" {
            return Some("the namespace does not exist");
        }
        let terminating = self.has_cause("NamespaceTerminating");
        terminating.then_some("the namespace is being deleted")
    }

    /// Returns whether the object changed since it was read, so that reading and writing again may succeed. Returns
    /// `false` if the conflict is a field of another manager, or a name that exists already.
    pub(super) fn is_stale_write(&self) -> bool {
        self.name != "AlreadyExists" && !self.has_cause("FieldManagerConflict")
    }

    fn has_cause(&self, name: &str) -> bool {
        self.causes.iter().any(|it| it.name == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return formatter.write_str("no reason given");
        }
        formatter.write_str(&self.name)?;
        if let Some(detail) = self.detail() {
            return write!(formatter, ": {detail}");
        }
        for (index, field) in self.fields().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            write!(formatter, "{separator}{field}")?;
        }
        Ok(())
    }
}

/// Returns a text that is short and has allowed characters only; any other text becomes empty.
fn bounded(text: Option<String>, allowed: fn(char) -> bool) -> String {
    let is_bounded = |it: &String| it.len() <= MAX_TEXT && it.chars().all(allowed);
    text.filter(is_bounded).unwrap_or_default()
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric()
}

fn is_field(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-/[]\"=".contains(character)
}

const MAX_CAUSES: usize = 16;
const MAX_TEXT: usize = 128;
