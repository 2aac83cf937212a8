//! The two ways to leave a runtime: with everything, or handing it back to today's installer as it is.

use api::runtimes::{
    CONTENT_HASH, CONTROLLER_MANAGER, INSTALLER_MANAGER, MANIFEST_HASH, OWNER_MARKER,
    REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE,
};
use serde_json::Value;

use super::{Action, Blocked, Context, Plan, content, delete, is_ours, lacking};
use crate::convergence::identity::guard;
use crate::convergence::manifests::{Phase, live};
use crate::convergence::observed::{NamespaceState, Observed};
use crate::convergence::target::Target;
use crate::convergence::{Kind, fields};

/// Takes the webhook off a runtime: first what sends Pods to it, then its Pods and what they needed, then the three
/// objects, and the marker last. Only what is ours goes. The plan is empty once nothing is left.
///
/// The pass must have looked at the installation ([`Observed::installed`]).
#[must_use]
pub fn uninstall(context: Context<'_>, observed: &Observed) -> Plan {
    let removed = |phase: Phase| -> Vec<Action> {
        context
            .installation
            .manifests()
            .iter()
            .rev()
            .filter(|it| it.phase == phase)
            .filter_map(|it| removal(&it.target, live(it, observed)))
            .collect()
    };
    let objects = Kind::ALL
        .into_iter()
        .rev()
        .filter_map(|kind| {
            let target = content::target(kind, context.names, observed)?;
            removal(&target, content::live(kind, observed))
        })
        .collect();
    let marker = observed
        .marker
        .iter()
        .map(|live| delete(marker(context), live))
        .collect();
    leave(
        context,
        observed,
        vec![
            removed(Phase::Webhook),
            removed(Phase::Deployment),
            removed(Phase::Foundation),
            objects,
            marker,
        ],
    )
}

/// Hands a runtime back to today's installer: our annotations and our ownership of fields go, the webhook and the three
/// objects stay as they are, and the marker goes last. The plan is empty once nothing of ours is left.
///
/// The pass must have looked at the installation ([`Observed::installed`]).
#[must_use]
pub fn hand_back(context: Context<'_>, observed: &Observed) -> Plan {
    // The document goes first: as long as it requires hashes, the parts have to carry them.
    let document = given_back(Kind::Configuration, context, observed);
    let mut rest: Vec<Action> = [Kind::PullSecret, Kind::TrustBundle]
        .into_iter()
        .filter_map(|kind| given_back(kind, context, observed))
        .collect();
    rest.extend(
        context
            .installation
            .manifests()
            .iter()
            .filter_map(|it| give_back(&it.target, live(it, observed))),
    );
    let marker = observed
        .marker
        .iter()
        .map(|live| delete(marker(context), live))
        .collect();
    leave(
        context,
        observed,
        vec![document.into_iter().collect(), rest, marker],
    )
}

fn leave(context: Context<'_>, observed: &Observed, mut steps: Vec<Vec<Action>>) -> Plan {
    let identity = guard(
        context.owner,
        context.claim,
        observed.cluster.as_deref(),
        observed.marker.as_ref(),
    );
    // What may not be read may be there: it would be left behind, and something else be taken first.
    let readable = identity
        .map_err(Blocked::Identity)
        .and_then(|_| lacking([&observed.unread]));
    if let Err(blocked) = readable {
        return Plan {
            blocked: Some(blocked),
            ..Plan::default()
        };
    }
    if observed.namespace == NamespaceState::Missing {
        // What was in it is gone with it.
        for step in &mut steps {
            step.retain(|it| it.target().namespace().is_none());
        }
    }
    steps.retain(|step| !step.is_empty());
    Plan {
        steps,
        ..Plan::default()
    }
}

fn removal(target: &Target, live: Option<&Value>) -> Option<Action> {
    live.filter(|live| is_ours(live))
        .map(|live| delete(target.clone(), live))
}

fn given_back(kind: Kind, context: Context<'_>, observed: &Observed) -> Option<Action> {
    let target = content::target(kind, context.names, observed)?;
    give_back(&target, content::live(kind, observed))
}

fn give_back(target: &Target, live: Option<&Value>) -> Option<Action> {
    let patch = fields::transfer(
        live?,
        &[CONTROLLER_MANAGER],
        INSTALLER_MANAGER,
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
    Target::config_map(&context.names.namespace, OWNER_MARKER)
}
