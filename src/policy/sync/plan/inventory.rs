//! The part of a plan that is about the marker, which says whose runtime this is and what is applied there, and about objects
//! that the manifests no longer have.

use std::collections::BTreeSet;

use api::kcp::{OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_INVENTORY, OWNER_RUNTIME_ID};
use serde_json::{Value, json};

use super::{Action, Arc, Context, Plan, Step, content, delete};
use crate::sync::SourceKind;
use crate::sync::differs::contained;
use crate::sync::inventory::{candidates, is_known, is_obsolete, written};
use crate::sync::manifests::Phase;
use crate::sync::observed::Observed;
use crate::sync::target::Target;

/// Marks the runtime as ours and lists what will be on it, before anything else is written.
pub(super) fn mark(context: Context<'_>, observed: &Observed, plan: &mut Plan) {
    let wanted = marker(context, observed, &remaining(context, observed));
    let live = observed.marker.as_ref();
    let action = match live {
        Some(live) if contained(&wanted, live) => return,
        Some(_) => write(context, wanted),
        None => Action::Create {
            target: Target::config_map(&context.names.namespace, OWNER_CONFIG_MAP),
            object: Arc::new(wanted),
        },
    };
    plan.common.push(vec![action]);
}

/// Deletes what the inventory lists and the manifests no longer have, and takes it out of the inventory: first what sends
/// Pods to a webhook. There is nothing to do unless the reconcile looked, and the Pods of the wanted version have taken over.
pub(super) fn prune(context: Context<'_>, observed: &Observed, settled: bool) -> Vec<Step> {
    let mut remaining = remaining(context, observed);
    let mut steps = vec![Step::new(), Step::new()];
    for (target, live) in there(context, observed) {
        if settled && is_obsolete(target, live) {
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

/// Candidates that the reconcile found.
pub(super) fn there<'o>(
    context: Context<'_>,
    observed: &'o Observed,
) -> impl Iterator<Item = (&'o Target, &'o Value)> {
    let candidates = candidates(context.installation, context.names, observed);
    let installed = observed.installed.iter().flatten();
    installed.filter(move |(target, _)| candidates.contains(target))
}

/// Candidates that stay in the inventory: what was not looked at, may not be read, or is the controller's.
fn remaining(context: Context<'_>, observed: &Observed) -> BTreeSet<Target> {
    let mut remaining = candidates(context.installation, context.names, observed);
    if let Some(installed) = &observed.installed {
        remaining.retain(|it| {
            let found = installed.get(it);
            observed.unread_inventory.contains_key(it)
                || found.is_some_and(|live| is_known(it, live))
        });
    }
    remaining
}

fn marker(context: Context<'_>, observed: &Observed, others: &BTreeSet<Target>) -> Value {
    let sources = SourceKind::ALL
        .into_iter()
        .filter_map(|kind| content::target(kind, context.names, observed));
    let sources: Vec<Target> = sources.collect();
    let manifests = context.installation.manifests().iter().map(|it| &it.target);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": OWNER_CONFIG_MAP, "namespace": context.names.namespace },
        "data": {
            OWNER_RUNTIME_ID: context.owner.runtime_id,
            OWNER_CONTROL_PLANE: context.owner.control_plane,
            OWNER_INVENTORY: written(manifests.chain(&sources).chain(others)),
        },
    })
}

fn write(context: Context<'_>, marker: Value) -> Action {
    Action::Apply {
        target: Target::config_map(&context.names.namespace, OWNER_CONFIG_MAP),
        object: Arc::new(marker),
    }
}
