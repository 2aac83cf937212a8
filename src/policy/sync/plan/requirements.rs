//! Updates the hashes that the live document requires to those of the objects after a plan.
//!
//! While a document cannot be written, its pull Secret or trust bundle may change. If the live document still required
//! the old hash, the webhook would permanently keep the old object. A requirement that the document does not have is
//! not added.

use api::bootstrapper::ConfigurationStatus;
use api::kcp::{CONTENT_HASH, REQUIRES_NONE};
use serde_json::{Map, Value, json};

use super::access::ObjectKinds;
use super::content::live;
use super::{Action, Arc, Context, annotation, is_owned};
use crate::sync::SourceKind;
use crate::sync::desired::{Desired, DesiredObject};
use crate::sync::observed::Observed;
use crate::sync::sources::ReferencedObjects;
use crate::sync::target::Target;

/// Returns an apply of the live document with updated requirements. `None` if the requirements are up to date or the
/// document is not managed.
///
/// `after` has the hashes after the plan. An inaccessible trust bundle that does not exist is not required any more: the webhook
/// would permanently wait for it, and keep the old pull Secret.
pub(super) fn refresh_requirements(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
    after: &ConfigurationStatus,
    inaccessible: &ObjectKinds,
) -> Option<Action> {
    if inaccessible.contains(&SourceKind::Configuration) {
        return None;
    }
    let is_lost = |kind| {
        let is_bundle = kind == SourceKind::TrustBundle && inaccessible.contains(&kind);
        is_bundle && !observed.is_unread(kind) && self::live(kind, observed).is_none()
    };
    let live = observed.configuration.as_ref().filter(|it| is_owned(it))?;
    let references = ReferencedObjects::of_live(live);
    let names_other_object = |kind| {
        references
            .as_ref()
            .is_some_and(|it| it.names_other_object(kind, context.names))
    };
    let mut annotations = Map::new();
    let mut differs = false;
    for kind in SourceKind::ALL {
        let key = kind.requires_key();
        let Some((key, before)) = key.and_then(|key| Some((key, annotation(live, key)?))) else {
            continue;
        };
        let now = match kind.hash(after) {
            _ if names_other_object(kind) => before,
            _ if is_gone(kind, desired, observed) => REQUIRES_NONE,
            Some(hash) => hash,
            None if is_lost(kind) => {
                differs = true;
                continue;
            }
            None => before,
        };
        differs |= now != before;
        annotations.insert(key.to_owned(), now.into());
    }
    if !differs {
        return None;
    }
    if let Some(hash) = annotation(live, CONTENT_HASH) {
        annotations.insert(CONTENT_HASH.to_owned(), hash.into());
    }
    let target = Target::config_map(&context.names.namespace, &context.names.configuration);
    let object = document(&target, &annotations, live);
    Some(Action::Apply { target, object })
}

/// Returns whether the runtime will not get the object.
fn is_gone(kind: SourceKind, desired: &Desired, observed: &Observed) -> bool {
    let unserved = kind == SourceKind::TrustBundle && observed.serves_no_trust_bundles();
    unserved || *desired.get(kind) == DesiredObject::Removed
}

fn document(target: &Target, annotations: &Map<String, Value>, live: &Value) -> Arc<Value> {
    Arc::new(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": target.name(),
            "namespace": target.namespace(),
            "annotations": annotations,
        },
        "data": live.get("data").cloned().unwrap_or_else(|| json!({})),
    }))
}
