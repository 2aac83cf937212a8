//! The part of a plan that is about the webhook's installation.

use api::kcp::MANIFEST_HASH;
use serde_json::Value;

use super::{
    Action, Arc, Context, Installed, Plan, Step as PlanStep, delete, inventory, take_over,
};
use crate::sync::fields::{Manager, is_installer, is_kim_or_unknown};
use crate::sync::manifests::{Phase, Step, live, settled, step, version_label};
use crate::sync::observed::{DeploymentStatus, Observed, annotation, number, replicas};
use crate::sync::target::Target;

/// Actions on manifests, by the step in which they may happen.
#[derive(Default)]
pub(super) struct Install {
    pub(super) transfers: Vec<Action>,
    pub(super) clears: Vec<Action>,
    pub(super) foundation: Vec<Action>,
    pub(super) pods: Vec<Action>,
    pub(super) webhooks: Vec<Action>,
    pub(super) removals: Vec<PlanStep>,
}

impl Install {
    /// What Pods need is there before them, the webhook is registered once they serve, and what the manifests no longer have
    /// is deleted last.
    pub(super) fn steps(self) -> Vec<PlanStep> {
        let mut steps = vec![
            self.transfers,
            self.clears,
            self.foundation,
            self.pods,
            self.webhooks,
        ];
        steps.extend(self.removals);
        steps
    }
}

/// Decides about every manifest that the pass looked at.
pub(super) fn decide(context: Context<'_>, observed: &Observed, plan: &mut Plan) -> Install {
    let installation = context.installation;
    let settled = settled(installation, observed);
    let mut install = Install::default();
    let mut complete = true;
    let mut stuck = None;
    let looked_at = |phase| phase == Phase::Deployment || observed.installed.is_some();
    for manifest in installation
        .manifests()
        .iter()
        .filter(|it| looked_at(it.phase))
    {
        let target = &manifest.target;
        let live = live(manifest, observed);
        let step = step(manifest, live, settled);
        // An object that is replaced as a whole has no fields to take over.
        let transfer = match step {
            Step::Recreate(_) => None,
            _ => live.and_then(|live| adopt(target, live)),
        };
        let step = match step {
            // The fields that were taken over and that the manifest does not name go with the next apply.
            Step::Keep if transfer.is_some() => Step::Apply(Arc::clone(&manifest.object)),
            step => step,
        };
        install.transfers.extend(transfer);
        complete &= step == Step::Keep;
        let object = match step {
            Step::Keep | Step::Wait => continue,
            Step::Stuck => {
                stuck = Some(target.clone());
                continue;
            }
            Step::Recreate(object) => {
                install
                    .clears
                    .extend(live.map(|live| delete(target.clone(), live)));
                object
            }
            Step::Apply(object) => object,
        };
        let actions = match manifest.phase {
            Phase::Foundation => &mut install.foundation,
            Phase::Deployment => &mut install.pods,
            Phase::Webhook => &mut install.webhooks,
        };
        actions.push(Action::Apply {
            target: target.clone(),
            object,
        });
    }
    install.removals = inventory::prune(context, observed, settled && stuck.is_none());
    complete &= install.removals.iter().all(Vec::is_empty);
    plan.installation = Installed {
        complete: observed.installed.is_some().then_some(complete),
        stuck,
        ..installed(observed, install.pods.is_empty())
    };
    install
}

/// Takes over what other managers own of an object of the manifests: of one that is not adopted yet, everything, so that the
/// apply removes each field that the manifest does not name. The hash goes with it, so that the apply follows although the
/// reconcile ends here.
fn adopt(target: &Target, live: &Value) -> Option<Action> {
    let is_given: fn(Manager<'_>) -> bool = match annotation(live, MANIFEST_HASH) {
        Some(_) => is_kim_or_unknown,
        None => is_installer,
    };
    take_over(target, live, is_given, &[MANIFEST_HASH])
}

fn installed(observed: &Observed, current: bool) -> Installed {
    let deployment: Option<&Value> = observed.deployment.as_ref();
    let rollout = match DeploymentStatus::of(deployment) {
        // What is available, or failed, is not what is wanted.
        DeploymentStatus::Available | DeploymentStatus::Failed if !current => {
            DeploymentStatus::Progressing
        }
        rollout => rollout,
    };
    Installed {
        rollout,
        complete: None,
        version: deployment
            .and_then(version_label)
            .filter(|version| version.len() <= MAX_VERSION)
            .map(str::to_owned),
        ready_replicas: deployment.map_or(0, |it| number(it, "/status/readyReplicas")),
        replicas: deployment.map_or(0, replicas),
        stuck: None,
    }
}

/// Characters of a label's value, and so of a version; a status holds no longer one.
const MAX_VERSION: usize = 63;
