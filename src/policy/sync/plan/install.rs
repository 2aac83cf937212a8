//! The part of a plan that is about the webhook's installation, and the marker that says whose runtime this is.

use api::kcp::{OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_RUNTIME_ID};
use serde_json::{Value, json};

use super::{Action, Arc, Context, Installed, Plan, Step as PlanStep, delete, take_over};
use crate::sync::differs::contained;
use crate::sync::manifests::{Phase, Step, live, settled, step, version_label};
use crate::sync::observed::{DeploymentStatus, Observed, number, replicas};
use crate::sync::target::Target;

/// Actions on manifests, by the step in which they may happen.
#[derive(Default)]
pub(super) struct Install {
    pub(super) transfers: Vec<Action>,
    pub(super) clears: Vec<Action>,
    pub(super) foundation: Vec<Action>,
    pub(super) pods: Vec<Action>,
    pub(super) webhooks: Vec<Action>,
}

impl Install {
    /// What Pods need is there before them, and the webhook is registered once they serve.
    pub(super) fn steps(self) -> Vec<PlanStep> {
        vec![
            self.transfers,
            self.clears,
            self.foundation,
            self.pods,
            self.webhooks,
        ]
    }
}

/// Marks the runtime as ours, before anything else is written.
pub(super) fn mark(context: Context<'_>, observed: &Observed, plan: &mut Plan) {
    let namespace = &context.names.namespace;
    let wanted = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": OWNER_CONFIG_MAP, "namespace": namespace },
        "data": {
            OWNER_RUNTIME_ID: context.owner.runtime_id,
            OWNER_CONTROL_PLANE: context.owner.control_plane,
        },
    });
    if observed
        .marker
        .as_ref()
        .is_some_and(|live| contained(&wanted, live))
    {
        return;
    }
    plan.common.push(vec![Action::Apply {
        target: Target::config_map(namespace, OWNER_CONFIG_MAP),
        object: Arc::new(wanted),
    }]);
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
        complete &= step == Step::Keep;
        // What is replaced as a whole has no fields to take over.
        if !matches!(step, Step::Recreate(_)) {
            install
                .transfers
                .extend(live.and_then(|live| take_over(target, live)));
        }
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
    plan.installation = Installed {
        complete: observed.installed.is_some().then_some(complete),
        stuck,
        ..installed(observed, install.pods.is_empty())
    };
    install
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
