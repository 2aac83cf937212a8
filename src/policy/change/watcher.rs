//! What a Watcher custom resource says about changes.

use watcher_types::{NamespacedName, PathSegment};

use super::review::Request;
use super::skip_reason::SkipReason;

/// The subresource, and the field, of this name.
pub(super) const STATUS: &str = "status";

/// One Watcher, as far as it concerns what is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Who gets the events: the path segment of the review's URL and of the event's.
    pub manager: PathSegment,
    /// What of the object itself is looked at. With [`Field::Spec`] and no `resources` the decisions are the public
    /// watcher's, which knows no Watcher and goes by the review's subresource.
    pub field: Field,
    /// What is watched; empty: whatever the API server sends here, because its rules are made of the Watchers.
    pub resources: Vec<ResourceRule>,
}

/// `spec.field` of a Watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The `spec`; of a kind without one, its content.
    Spec,
    /// The `status`.
    Status,
}

/// `spec.resourceToWatch` of a Watcher; each part may be `*`, with the meaning that it has in a webhook's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    /// The API group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The subresource; `None` leaves it to the field: `spec` means the object itself, `status` its `status`.
    pub subresource: Option<String>,
}

impl ResourceRule {
    /// Takes the parts as a Watcher has them; `resource` is `resource` or `resource/subresource`.
    #[must_use]
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            subresource,
        }
    }

    fn names_resource(&self, request: &Request<'_>) -> bool {
        let (group, version, resource) = request.resource();
        is(&self.group, group) && is(&self.version, version) && is(&self.resource, resource)
    }

    fn names_subresource(&self, request: &Request<'_>, field: Field) -> bool {
        let subresource = match (&self.subresource, field) {
            (Some(named), _) => named,
            (None, Field::Spec) => "",
            (None, Field::Status) => STATUS,
        };
        subresource == "*" || subresource.eq_ignore_ascii_case(request.subresource())
    }
}

impl Watcher {
    /// Whether what `request` is about is watched.
    pub(super) fn admits(
        &self,
        request: &Request<'_>,
        watched: &NamespacedName,
    ) -> Result<(), SkipReason> {
        let mut named = self
            .resources
            .iter()
            .filter(|rule| rule.names_resource(request))
            .peekable();
        if self.resources.is_empty() {
            return Ok(());
        }
        let watched = watched.clone();
        if named.peek().is_none() {
            return Err(SkipReason::NotWatched { watched });
        }
        if named.any(|rule| rule.names_subresource(request, self.field)) {
            return Ok(());
        }
        Err(SkipReason::InvalidSubresource { watched })
    }
}

fn is(rule: &str, requested: &str) -> bool {
    rule == "*" || rule == requested
}
