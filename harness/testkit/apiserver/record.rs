//! What requests asked for, and what became of them.

use serde_json::Value;
use tokio::time::Instant;

/// What a request asks for, in the words of RBAC; an apply is `apply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete`; empty for what is no object.
    pub verb: &'static str,
    /// The resource, with `/status` for that subresource; the path of what is no object.
    pub resource: String,
    /// The namespace; empty for cluster scope and for all namespaces.
    pub namespace: String,
    /// The name; empty for a collection.
    pub name: String,
}

/// One request that came.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// What it asked for.
    pub asked: Asked,
    /// The body, if it is JSON.
    pub body: Value,
    /// Path and query.
    pub uri: String,
    /// The header `Accept`.
    pub accept: String,
    /// The bearer token.
    pub token: String,
    /// When it came.
    pub begin: Instant,
    /// When it was answered.
    pub end: Option<Instant>,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Whether an object changed.
    pub changed: bool,
}

impl Recorded {
    /// Whether it asked for a write.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.asked.verb, "" | "get" | "list" | "watch")
            && !self.asked.resource.starts_with("selfsubject")
    }
}

impl std::fmt::Display for Asked {
    /// `apply secrets a/b`, `list pods`, ` /version`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl Asked {
    /// Whether it is of a pattern: verb, resource and object (`namespace/name` or `name`), of which the last ones may be
    /// left out and each may be `*` or alternatives that are separated by `|`.
    #[must_use]
    pub fn is_of(&self, pattern: &str) -> bool {
        let text = self.to_string();
        let own: Vec<&str> = text.split(' ').collect();
        pattern.split(' ').enumerate().all(|(index, wanted)| {
            let own = own.get(index).copied().unwrap_or_default();
            wanted == "*" || wanted.split('|').any(|wanted| wanted == own)
        })
    }
}
