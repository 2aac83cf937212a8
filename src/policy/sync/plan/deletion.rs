//! The plans of a deletion: all objects are deleted, or they are orphaned for KIM.

use api::kcp::{
    CONTENT_HASH, CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, MANIFEST_HASH, OWNER_CONFIG_MAP,
    OWNER_INVENTORY, OWNER_WATCHER_INVENTORY, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE,
};
use serde_json::Value;

use super::inventory::release_keys;
use super::{
    Action, Blocked, Context, InstallationStatus, LanePlan, Lanes, Plan, Step, check_permissions,
    check_reads, content, delete, delete_by_uid, install, inventory, is_owned,
};
use crate::sync::identity::verify_identity;
use crate::sync::inventory::{is_managed, is_managed_or_public};
use crate::sync::manifests::{Phase, live};
use crate::sync::observed::{
    NamespaceState, ObjectIdentity, Observed, ReadFailure, data, is_terminating,
};
use crate::sync::target::Target;
use crate::sync::{SourceKind, managed_fields};

/// Returns the plan that deletes the webhook. The webhook configurations are deleted first, then the Deployment with
/// its Pods. The copies of the pull Secret in all namespaces, the certificate and the Lease of the webhook, the three
/// objects, and the prerequisites of Pods follow: none of them waits for another one, so that an object that cannot be
/// deleted leaves no other credentials behind. The ownership ConfigMap is deleted by a later plan that finds no other
/// object: a finalizer of another client may keep an object, and a reconcile lists a limited number of copies. Objects that only
/// the inventory lists are deleted with the objects of the manifests. Objects of other owners are kept.
/// [`Plan::is_removed`] is true when all are deleted. Nothing waits for objects in additional namespaces, which grant nothing
/// without the ServiceAccount: policies of customers may reject their deletion for ever.
///
/// The copies are deleted after the Pods, since a running webhook would create them again. The reconcile must have read
/// the manifests ([`Observed::installed`]) and the objects of the webhook ([`Observed::webhook_objects`]).
#[must_use]
pub fn plan_deletion(context: Context<'_>, observed: &Observed) -> Plan {
    let manifests = context.installation.manifests().iter().rev();
    let manifests = manifests.filter_map(|it| Some((&it.target, live(it, observed)?)));
    let manifests = manifests.filter(|(_, live)| is_owned(live));
    // The objects that a Deployment of another owner needs are kept.
    let deployment = observed.deployment.as_ref();
    let is_foreign = deployment.is_some_and(|it| !is_owned(it));
    let is_deleted = |(target, live): &(&Target, &Value)| {
        is_managed(live) || (!is_foreign && is_managed_or_public(target, live))
    };
    let listed = inventory::present(context, observed).filter(is_deleted);
    let all: Vec<(&Target, &Value)> = manifests.chain(listed).collect();
    let of = |phase: Phase| all.iter().filter(move |it| Phase::of(it.0) == phase);
    let deletions = |phase: Phase| -> Vec<Action> {
        let actions = of(phase).map(|(target, live)| delete(Target::clone(target), live));
        actions.collect()
    };
    let webhooks = deletions(Phase::Webhook);
    let deployments: Vec<_> = of(Phase::Deployment).collect();
    let Some(created) = observed
        .webhook_objects
        .as_ref()
        .filter(|_| webhooks.is_empty() && deployments.is_empty())
    else {
        let steps = vec![webhooks, delete_with_dependents(deployments.into_iter())];
        return Plan {
            unfinished: true,
            ..deletion_plan(context, observed, Default::default(), steps)
        };
    };
    let identities = created.others.iter().chain(&created.copies);
    let mut credentials = delete_sources(context, observed);
    credentials.extend(identities.map(|it| delete_by_uid(it.clone(), false)));
    let prerequisites = deletions(Phase::Prerequisites);
    let mut awaited = prerequisites.iter().map(Action::target);
    let is_last = credentials.is_empty() && awaited.all(|it| context.names.is_additional(it));
    let last = is_last.then(|| delete_marker(context, observed));
    let last = last.unwrap_or_default();
    deletion_plan(context, observed, [credentials, last], vec![prerequisites])
}

/// Returns foreground deletions of objects that are not being deleted yet.
fn delete_with_dependents<'o>(
    objects: impl Iterator<Item = &'o (&'o Target, &'o Value)>,
) -> Vec<Action> {
    let remaining = objects.filter(|(_, live)| !is_terminating(live));
    remaining
        .map(|(target, live)| ObjectIdentity::of(Target::clone(target), live))
        .map(|it| delete_by_uid(it, true))
        .collect()
}

/// Returns deletions of the three objects, unless another owner created them.
fn delete_sources(context: Context<'_>, observed: &Observed) -> Vec<Action> {
    let deletion = |kind| {
        let target = content::target(kind, context, observed)?;
        removal(&target, content::live(kind, observed))
    };
    SourceKind::ALL
        .into_iter()
        .rev()
        .filter_map(deletion)
        .collect()
}

fn delete_marker(context: Context<'_>, observed: &Observed) -> Vec<Action> {
    let Some(live) = &observed.marker else {
        return Vec::new();
    };
    let marker = self::marker(context);
    if data(live, OWNER_WATCHER_INVENTORY).is_none() {
        return vec![delete(marker, live)];
    }
    // The watcher is installed.
    release_keys(marker, live, &[OWNER_INVENTORY], true)
        .into_iter()
        .collect()
}

/// Returns the plan that orphans the objects for KIM. Annotations and field ownership of the controller are removed,
/// the webhook and the three objects are kept, and finally the ownership ConfigMap is deleted. The plan is empty when
/// this is complete.
///
/// The reconcile must have read the manifests ([`Observed::installed`]).
#[must_use]
pub fn plan_orphan(context: Context<'_>, observed: &Observed) -> Plan {
    // The document is orphaned first: while it requires hashes, the other objects must have these hashes.
    let document = orphan_source(SourceKind::Configuration, context, observed);
    let mut rest: Vec<Action> = [SourceKind::PullSecret, SourceKind::TrustBundle]
        .into_iter()
        .filter_map(|kind| orphan_source(kind, context, observed))
        .collect();
    let manifests = context.installation.manifests().iter();
    rest.extend(manifests.filter_map(|it| orphan(&it.target, live(it, observed))));
    let listed = inventory::present(context, observed);
    let listed = listed.filter(|(target, live)| is_managed_or_public(target, live));
    rest.extend(listed.filter_map(|(target, live)| orphan(target, Some(live))));
    let steps = vec![document.into_iter().collect(), rest];
    let last = delete_marker(context, observed);
    deletion_plan(context, observed, [Step::new(), last], steps)
}

/// Returns an error with the objects that cannot be read: they may exist and would be left behind.
fn check_readable(context: Context<'_>, observed: &Observed) -> Result<(), Blocked> {
    let objects = || observed.inaccessible.values();
    let mut unread = [&*observed.unread.configuration, &observed.unread.webhook].concat();
    unread.extend(objects().filter_map(|it| it.unread.clone()));
    let failed = observed.failed_reads.iter().flatten();
    let failed = failed.chain(objects().filter_map(|it| it.failed_read.as_ref()));
    let mut failed: Vec<String> = failed.cloned().collect();
    let listed = observed.unread_inventory.iter();
    for (_, cause) in listed.filter(|(it, _)| !context.names.is_additional(it)) {
        match cause {
            ReadFailure::Forbidden(permission) => unread.push(permission.clone()),
            ReadFailure::Failed(text) => failed.push(text.clone()),
        }
    }
    check_permissions(&unread)?;
    check_reads(&failed)
}

fn deletion_plan(
    context: Context<'_>,
    observed: &Observed,
    [mut revocations, mut last]: [Step; 2],
    mut steps: Vec<Step>,
) -> Plan {
    let identity = verify_identity(
        context.owner,
        context.record,
        observed.cluster.as_deref(),
        observed.marker.as_ref(),
    );
    let readable = identity.map_err(Blocked::Identity);
    if let Err(blocked) = readable.and_then(|_| check_readable(context, observed)) {
        return Plan {
            blocked: Some(blocked),
            ..Plan::default()
        };
    }
    if observed.namespace == NamespaceState::Missing {
        // The objects in the namespace were deleted with it.
        let namespace = Some(context.names.namespace.as_str());
        for step in steps.iter_mut().chain([&mut revocations, &mut last]) {
            step.retain(|it| it.target().namespace() != namespace);
        }
    }
    let is_additional = |it: &mut Action| context.names.is_additional(it.target());
    let additional: Step = steps
        .iter_mut()
        .flat_map(|step| step.extract_if(.., is_additional))
        .collect();
    steps.retain(|step| !step.is_empty());
    let installation = InstallationStatus {
        not_written: install::unread_additional(context, observed),
        ..InstallationStatus::default()
    };
    Plan {
        revocations,
        last,
        additional: Some(additional)
            .into_iter()
            .filter(|step| !step.is_empty())
            .collect(),
        installation,
        lanes: Lanes {
            webhook: LanePlan {
                steps,
                blocked: None,
            },
            ..Lanes::default()
        },
        ..Plan::default()
    }
}

fn removal(target: &Target, live: Option<&Value>) -> Option<Action> {
    live.filter(|live| is_owned(live))
        .map(|live| delete(target.clone(), live))
}

fn orphan_source(kind: SourceKind, context: Context<'_>, observed: &Observed) -> Option<Action> {
    let target = content::target(kind, context, observed)?;
    orphan(&target, content::live(kind, observed))
}

fn orphan(target: &Target, live: Option<&Value>) -> Option<Action> {
    let patch = managed_fields::migrate(
        live?,
        |it| it.subresource.is_empty() && it.name == CONTROLLER_FIELD_MANAGER,
        KIM_FIELD_MANAGER,
        &[
            CONTENT_HASH,
            MANIFEST_HASH,
            REQUIRES_PULL_SECRET,
            REQUIRES_TRUST_BUNDLE,
        ],
    )?;
    Some(Action::Transfer {
        target: target.clone(),
        patch,
    })
}

fn marker(context: Context<'_>) -> Target {
    Target::config_map(&context.names.namespace, OWNER_CONFIG_MAP)
}
