//! The fields of a Watcher custom resource that select changes.

pub use api::watcher::WatchedField as Field;
use watcher_types::{NamespacedName, PathSegment};

use super::review::Request;
use super::skip_reason::SkipReason;

/// Name of the subresource, and of the field.
pub(super) const STATUS: &str = "status";

/// The fields of a Watcher that determine the sent events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// The receiver of the events: the path segment of the URLs of the review and of the event.
    pub manager: PathSegment,
    /// The compared field of the object itself. With [`Field::Spec`] and no `resources` the decisions equal those of
    /// the public watcher, which uses only the subresource of the review.
    pub field: Field,
    /// The watched resources. If empty, all reviews of the API server are accepted, because its rules are generated
    /// from the Watchers.
    pub resources: Vec<ResourceRule>,
}

/// `spec.resourceToWatch` of a Watcher. Each field may be `*`, with the same meaning as in the rules of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    /// The API group; empty for core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// The subresource. If it is `None`, the field determines it: `spec` means the object itself, `status` its `status`.
    pub subresource: Option<String>,
}

impl ResourceRule {
    /// Creates a rule from the fields of a Watcher. `resource` is `resource` or `resource/subresource`.
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
    /// Returns an error if the object of `request` is not watched.
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
