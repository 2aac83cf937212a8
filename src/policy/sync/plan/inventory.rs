//! The actions on the ownership ConfigMap with the inventory, and on objects that are not in the manifests any more.

use std::collections::BTreeSet;

use api::kcp::{OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_INVENTORY, OWNER_RUNTIME_ID};
use serde_json::{Value, json};

use super::{Action, Arc, Context, Plan, Step, content, delete};
use crate::sync::SourceKind;
use crate::sync::desired::{Desired, DesiredObject};
use crate::sync::diff::is_applied;
use crate::sync::inventory::{self, candidates, is_managed, is_managed_or_public, is_obsolete};
use crate::sync::manifests::Phase;
use crate::sync::observed::{Observed, data};
use crate::sync::target::Target;

/// Records owner and inventory, before anything else is written.
pub(super) fn record_owner(context: Context<'_>, observed: &Observed, plan: &mut Plan) {
    let wanted = marker(context, observed, &remaining(context, observed));
    let live = observed.marker.as_ref();
    let action = match live {
        Some(live) if is_applied(&wanted, live) => return,
        Some(_) => write(context, wanted),
        None => Action::Create {
            target: Target::config_map(&context.names.namespace, OWNER_CONFIG_MAP),
            object: Arc::new(wanted),
        },
    };
    plan.common.push(vec![action]);
}

/// Returns whether the live ownership ConfigMap names the owner and lists each of the three objects that the steps apply.
pub(super) fn is_recorded(context: Context<'_>, observed: &Observed, steps: &[Step]) -> bool {
    let owner = [
        (OWNER_RUNTIME_ID, &context.owner.runtime_id),
        (OWNER_CONTROL_PLANE, &context.owner.control_plane),
    ];
    let marker = observed.marker.as_ref();
    let names_owner = |(key, value): (&str, &String)| {
        let live = marker.and_then(|it| data(it, key));
        live == Some(value)
    };
    let is_listed = |action: &Action| {
        let kind = content::kind_of(action.target());
        let recorded = |kind| inventory::recorded(kind, context.names, observed);
        !matches!(action, Action::Apply { .. }) || kind.and_then(recorded).is_some()
    };
    owner.into_iter().all(names_owner) && steps.iter().flatten().all(is_listed)
}

/// Returns the sources that were synchronized under another name and are revoked by the deletion of the source. Until then
/// they are kept, since Pods may mount them.
#[must_use]
pub fn revoked_targets(
    context: Context<'_>,
    desired: &Desired,
    observed: &Observed,
) -> BTreeSet<Target> {
    let is_removed = |kind| *desired.get(kind) == DesiredObject::Removed;
    if !SourceKind::ALL.into_iter().any(is_removed) {
        return BTreeSet::new();
    }
    let mut targets = candidates(context.installation, context.names, observed);
    targets.retain(|target| {
        let kind = content::kind_of(target);
        kind.is_some_and(is_removed)
    });
    targets
}

/// Returns the deletions of [`revoked_targets`] that the reconcile found.
pub(super) fn revoke(context: Context<'_>, desired: &Desired, observed: &Observed) -> Step {
    if observed.earlier_sources.is_empty() {
        return Step::new();
    }
    let targets = revoked_targets(context, desired, observed);
    let found = observed.earlier_sources.iter();
    let revoked = found.filter(|(target, live)| targets.contains(target) && is_managed(live));
    revoked
        .map(|(target, live)| delete(target.clone(), live))
        .collect()
}

/// Deletes obsolete objects and removes them from the inventory, webhook configurations first. Nothing is deleted
/// unless the reconcile read the objects and the Pods of the desired version are available. See also [`prune_additional`].
pub(super) fn prune(context: Context<'_>, observed: &Observed, is_rolled_out: bool) -> Vec<Step> {
    let mut remaining = remaining(context, observed);
    let mut steps = vec![Step::new(), Step::new()];
    let own = present(context, observed).filter(|(it, _)| !context.names.is_additional(it));
    for (target, live) in own {
        if is_rolled_out && is_obsolete(target, live) {
            let webhook = Phase::of(target) == Phase::Webhook;
            steps[usize::from(!webhook)].push(delete(target.clone(), live));
            remaining.remove(target);
        }
    }
    if steps.iter().any(|step| !step.is_empty()) {
        steps.push(vec![write(context, marker(context, observed, &remaining))]);
    }
    steps
}

/// Deletes obsolete objects in additional namespaces. They stay in the inventory until a reconcile does not find them.
pub(super) fn prune_additional(
    context: Context<'_>,
    observed: &Observed,
    is_rolled_out: bool,
) -> Step {
    let additional = present(context, observed).filter(|(it, _)| context.names.is_additional(it));
    let obsolete = additional.filter(|(target, live)| is_rolled_out && is_obsolete(target, live));
    obsolete
        .map(|(target, live)| delete(target.clone(), live))
        .collect()
}

/// Returns the candidates that exist.
pub(super) fn present<'o>(
    context: Context<'_>,
    observed: &'o Observed,
) -> impl Iterator<Item = (&'o Target, &'o Value)> {
    let candidates = candidates(context.installation, context.names, observed);
    let installed = observed.installed.iter().flatten();
    installed.filter(move |(target, _)| candidates.contains(target))
}

/// Returns the candidates that remain in the inventory: candidates that were not read, cannot be read, or belong to
/// the controller.
fn remaining(context: Context<'_>, observed: &Observed) -> BTreeSet<Target> {
    let mut remaining = candidates(context.installation, context.names, observed);
    if let Some(installed) = &observed.installed {
        remaining.retain(|it| {
            let found = installed.get(it);
            observed.unread_inventory.contains_key(it)
                || found.is_some_and(|live| is_managed_or_public(it, live))
        });
    }
    remaining
}

fn marker(context: Context<'_>, observed: &Observed, others: &BTreeSet<Target>) -> Value {
    // The version of a trust bundle is not known if it was not read.
    let recorded = |kind| {
        let is_unread = observed.is_unread(kind);
        is_unread.then(|| inventory::recorded(kind, context.names, observed))?
    };
    let source = |kind| content::target(kind, context, observed).or_else(|| recorded(kind));
    let sources: Vec<Target> = SourceKind::ALL.into_iter().filter_map(source).collect();
    let manifests = context.installation.manifests().iter().map(|it| &it.target);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": OWNER_CONFIG_MAP, "namespace": context.names.namespace },
        "data": {
            OWNER_RUNTIME_ID: context.owner.runtime_id,
            OWNER_CONTROL_PLANE: context.owner.control_plane,
            OWNER_INVENTORY: inventory::format(manifests.chain(&sources).chain(others)),
        },
    })
}

/// Removes keys of the ownership ConfigMap, if it has the first one; deletes the ConfigMap unless another inventory is in it.
pub(super) fn release_keys(
    target: Target,
    live: &Value,
    keys: &[&str],
    has_other: bool,
) -> Option<Action> {
    data(live, keys.first()?)?;
    if !has_other {
        return Some(delete(target, live));
    }
    let version = live.pointer("/metadata/resourceVersion");
    // Not by an apply: that removes only what was applied, and the ConfigMap may have been created.
    let mut patch =
        vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    let present = keys.iter().filter(|key| data(live, key).is_some());
    patch.extend(present.map(|key| json!({ "op": "remove", "path": format!("/data/{key}") })));
    let patch = Value::Array(patch);
    Some(Action::RemoveFields { target, patch })
}

fn write(context: Context<'_>, marker: Value) -> Action {
    Action::Apply {
        target: Target::config_map(&context.names.namespace, OWNER_CONFIG_MAP),
        object: Arc::new(marker),
    }
}
