//! What the live document requires, brought in step with the parts that a plan leaves on the runtime.
//!
//! A document may be held back, or its source be broken, while a part of it rotates. The part goes over; if the document
//! still required the one before, the webhook would keep that one for ever.
//! Deliberately absent: requirements that the document did not have. What it does not require is taken as it comes.

use api::kcp::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use serde_json::{Map, Value, json};

use super::{Action, Arc, Content, Context, annotation, is_ours};
use crate::sync::SourceKind;
use crate::sync::desired::{Desired, DesiredObject};
use crate::sync::observed::Observed;
use crate::sync::sources::ReferencedObjects;
use crate::sync::target::Target;

/// The live document with its data as they are; `None` if it requires what will be there, or is not ours.
///
/// `after` says what the runtime holds of the parts once the plan is carried out.
pub(super) fn renewed(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
    after: &Content,
) -> Option<Action> {
    let live = observed.configuration.as_ref().filter(|it| is_ours(it))?;
    let mentions = ReferencedObjects::of_live(live);
    let another = |kind| {
        mentions
            .as_ref()
            .is_some_and(|it| it.another(kind, context.names))
    };
    let parts = [
        (
            SourceKind::PullSecret,
            REQUIRES_PULL_SECRET,
            &after.pull_secret,
        ),
        (
            SourceKind::TrustBundle,
            REQUIRES_TRUST_BUNDLE,
            &after.trust_bundle,
        ),
    ];
    let mut annotations = Map::new();
    let mut differs = false;
    for (kind, key, held) in parts {
        let Some(before) = annotation(live, key) else {
            continue;
        };
        let now = match held {
            _ if another(kind) => before,
            Some(hash) => hash,
            None if is_gone(kind, desired, observed) => REQUIRES_NONE,
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

/// Whether the runtime is without the part for good.
fn is_gone(kind: SourceKind, desired: &Desired, observed: &Observed) -> bool {
    let unserved = kind == SourceKind::TrustBundle && observed.trust_bundles.is_none();
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
