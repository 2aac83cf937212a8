//! The two ways to leave a runtime: with everything, or handing it back to today's installer as it is.

use api::kcp::{
    CONTENT_HASH, CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, MANIFEST_HASH, OWNER_CONFIG_MAP,
    REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE,
};
use serde_json::Value;

use super::{Action, Blocked, Context, Plan, content, delete, inventory, is_ours, lacking};
use crate::sync::identity::guard;
use crate::sync::inventory::{is_applied, is_known};
use crate::sync::manifests::{Phase, live};
use crate::sync::observed::{Identity, NamespaceState, Observed, is_terminating};
use crate::sync::target::Target;
use crate::sync::{SourceKind, fields};

/// Takes the webhook off a runtime: first what sends Pods to it, then its Deployment with all of its Pods; once these are
/// gone, what they needed, the copies of the pull Secret in all namespaces, the webhook's certificate and Lease, the three
/// objects, and the marker last. Objects that only the inventory lists go with those of the manifests. Only what is ours goes.
/// [`Plan::has_left`] once nothing is left.
///
/// The copies wait for the Pods, and for the Pods' rights to be taken away: a webhook that runs writes them anew.
/// The pass must have looked at the installation ([`Observed::installed`]) and at what the webhook made
/// ([`Observed::made`]).
#[must_use]
pub fn uninstall(context: Context<'_>, observed: &Observed) -> Plan {
    let manifests = context.installation.manifests().iter().rev();
    let manifests = manifests.filter_map(|it| Some((&it.target, live(it, observed)?)));
    let manifests = manifests.filter(|(_, live)| is_ours(live));
    // While a webhook that is not ours stands, so does what belongs to it.
    let deployment = observed.deployment.as_ref();
    let is_foreign = deployment.is_some_and(|it| !is_ours(it));
    let is_going = |(target, live): &(&Target, &Value)| {
        is_applied(live) || (!is_foreign && is_known(target, live))
    };
    let listed = inventory::there(context, observed).filter(is_going);
    let all: Vec<(&Target, &Value)> = manifests.chain(listed).collect();
    let of = |phase: Phase| all.iter().filter(move |it| Phase::of(it.0) == phase);
    let removed = |phase: Phase| -> Vec<Action> {
        let actions = of(phase).map(|(target, live)| delete(Target::clone(target), live));
        actions.collect()
    };
    let mut steps = vec![removed(Phase::Webhook)];
    let deployments: Vec<_> = of(Phase::Deployment).collect();
    let Some(made) = observed.made.as_ref().filter(|_| deployments.is_empty()) else {
        steps.push(with_dependents(deployments.into_iter()));
        return Plan {
            unfinished: true,
            ..leave(context, observed, steps)
        };
    };
    steps.push(removed(Phase::Foundation));
    let copies: Vec<Action> = made.copies.iter().map(identified).collect();
    steps.extend(copies.chunks(AT_ONCE).map(<[Action]>::to_vec));
    steps.push(made.others.iter().map(identified).collect());
    steps.push(objects(context, observed));
    steps.push(unmarked(context, observed));
    leave(context, observed, steps)
}

/// Deletions that are asked for at a time: there may be as many copies as a runtime has namespaces.
const AT_ONCE: usize = 32;

/// Deletions of objects that stay until all that they own is gone, where they are not asked for yet.
fn with_dependents<'o>(objects: impl Iterator<Item = &'o (&'o Target, &'o Value)>) -> Vec<Action> {
    let standing = objects.filter(|(_, live)| !is_terminating(live));
    let deletion = |(target, live): &(&Target, &Value)| {
        let uid = Identity::of(Target::clone(target), live).uid;
        let target = Target::clone(target);
        Action::Delete {
            target,
            uid,
            foreground: true,
        }
    };
    standing.map(deletion).collect()
}

fn identified(Identity { target, uid }: &Identity) -> Action {
    Action::Delete {
        target: target.clone(),
        uid: uid.clone(),
        foreground: false,
    }
}

/// The three objects, as far as they are ours.
fn objects(context: Context<'_>, observed: &Observed) -> Vec<Action> {
    let removed = |kind| {
        let target = content::target(kind, context.names, observed)?;
        removal(&target, content::live(kind, observed))
    };
    SourceKind::ALL
        .into_iter()
        .rev()
        .filter_map(removed)
        .collect()
}

fn unmarked(context: Context<'_>, observed: &Observed) -> Vec<Action> {
    let marker = observed.marker.iter();
    marker
        .map(|live| delete(self::marker(context), live))
        .collect()
}

/// Hands a runtime back to today's installer: our annotations and our ownership of fields go, the webhook and the three
/// objects stay as they are, and the marker with the inventory goes last. The plan is empty once nothing of ours is left.
///
/// The pass must have looked at the installation ([`Observed::installed`]).
#[must_use]
pub fn hand_back(context: Context<'_>, observed: &Observed) -> Plan {
    // The document goes first: as long as it requires hashes, the parts have to carry them.
    let document = given_back(SourceKind::Configuration, context, observed);
    let mut rest: Vec<Action> = [SourceKind::PullSecret, SourceKind::TrustBundle]
        .into_iter()
        .filter_map(|kind| given_back(kind, context, observed))
        .collect();
    let manifests = context.installation.manifests().iter();
    rest.extend(manifests.filter_map(|it| give_back(&it.target, live(it, observed))));
    let listed = inventory::there(context, observed);
    let listed = listed.filter(|(target, live)| is_known(target, live));
    rest.extend(listed.filter_map(|(target, live)| give_back(target, Some(live))));
    let steps = vec![
        document.into_iter().collect(),
        rest,
        unmarked(context, observed),
    ];
    leave(context, observed, steps)
}

fn leave(context: Context<'_>, observed: &Observed, mut steps: Vec<Vec<Action>>) -> Plan {
    let identity = guard(
        context.owner,
        context.claim,
        observed.cluster.as_deref(),
        observed.marker.as_ref(),
    );
    // What may not be read may be there: it would be left behind, and something else be taken first.
    let mut unread = [&*observed.unread.configuration, &observed.unread.webhook].concat();
    unread.extend(observed.unread_inventory.values().cloned());
    let readable = identity
        .map_err(Blocked::Identity)
        .and_then(|_| lacking(&unread));
    if let Err(blocked) = readable {
        return Plan {
            blocked: Some(blocked),
            ..Plan::default()
        };
    }
    if observed.namespace == NamespaceState::Missing {
        // What was in it is gone with it.
        let namespace = Some(context.names.namespace.as_str());
        for step in &mut steps {
            step.retain(|it| it.target().namespace() != namespace);
        }
    }
    steps.retain(|step| !step.is_empty());
    Plan {
        common: steps,
        ..Plan::default()
    }
}

fn removal(target: &Target, live: Option<&Value>) -> Option<Action> {
    live.filter(|live| is_ours(live))
        .map(|live| delete(target.clone(), live))
}

fn given_back(kind: SourceKind, context: Context<'_>, observed: &Observed) -> Option<Action> {
    let target = content::target(kind, context.names, observed)?;
    give_back(&target, content::live(kind, observed))
}

fn give_back(target: &Target, live: Option<&Value>) -> Option<Action> {
    let patch = fields::transfer(
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
