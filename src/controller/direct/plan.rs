//! What the controller would write on one runtime, and why: the plan of a reconcile, without the writes.
//!
//! Invariant: only reads. On a runtime these are the requests of `gather`, two reviews of the own permissions included. Nothing
//! on KCP changes either: the state ConfigMap is read, and advanced in memory only. Not in here: which runtime may start in a
//! rollout, which only the leader knows.

use std::sync::Arc;

use api::bootstrapper::{RuntimeBootstrapper, WebhookSettings};
use api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION;
use kube::{Client, ResourceExt as _};
use policy::sync::desired::Desired;
use policy::sync::fields::is_installer;
use policy::sync::identity::{Claim, Owner};
use policy::sync::manifests::Installation;
use policy::sync::observed::{Names, Observed};
use policy::sync::plan::{self, Context, Plan};
use policy::sync::sources::SourceNames;
use policy::sync::status::{Deferral, Failure, Goal, LaneOutcome, Outcome, Unreached, conditions};
use policy::sync::{Lanes, Salt};

use super::DirectSettings;
use super::access::{ClientFactory, unreached};
use super::gather::Gather;
use super::revisions::{Installations, ManifestsError, object_names};
use crate::clients::{CallError, Owners, Remote, RuntimeClients, RuntimeId};
use crate::state::RecallError;

mod kcp;
mod view;

use kcp::{Adoption, Kcp};
pub use view::{PlannedCondition, PlannedLane, PlannedWrite, RuntimePlan};

/// What a plan is made of. All of it is as the controller has it, or the plan is another one.
pub struct PlanOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings of the controller.
    pub settings: DirectSettings,
    /// Names of the sources on KCP.
    pub sources: SourceNames,
    /// Clients of runtimes.
    pub fleet: RuntimeClients,
    /// Manifests of the webhook.
    pub installations: Installations,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The UID of the Namespace kube-system of KCP is not known.
    #[error("failed to read the identity of KCP: {0}")]
    Identity(String),
    /// Neither the Runtime nor a `RuntimeBootstrapper` of its name exists.
    #[error("Runtime {0} not found, and no RuntimeBootstrapper of its name")]
    NotFound(String),
    /// Objects cannot be read.
    #[error("failed to read {0} from KCP")]
    Kcp(&'static str, #[source] kube::Error),
    /// What was rolled out before is not known.
    #[error("failed to load state")]
    State(#[source] RecallError),
    /// The manifests of the webhook cannot be rendered for the configuration document.
    #[error("invalid manifests of the webhook")]
    Manifests(#[source] ManifestsError),
}

/// The observation of a runtime.
#[derive(Default)]
struct Examined {
    unreached: Option<Unreached>,
    plan: Option<Plan>,
    observed: Observed,
}

impl Examined {
    fn without(unreached: Unreached) -> Self {
        Self {
            unreached: Some(unreached),
            ..Self::default()
        }
    }
}

/// What the runtime should hold.
struct Wanted {
    salt: Salt,
    names: Names,
    desired: Desired,
    installation: Arc<Installation>,
    /// Why there are no manifests for the settings of the runtime.
    failure: Option<String>,
}

/// One runtime, and everything that a reconcile goes by.
struct Assignment<'a> {
    resource: &'a RuntimeBootstrapper,
    goal: Goal,
    wanted: &'a Wanted,
    claimed_by: &'a [(String, String)],
}

/// Works out what the controller would write on a runtime, by the name of its Runtime.
///
/// # Errors
/// [`PlanError`] if KCP does not provide what decides. A runtime that is not reachable is no error: the plan says so.
pub async fn plan_runtime(options: PlanOptions, name: &str) -> Result<RuntimePlan, PlanError> {
    let (client, settings) = (options.client.clone(), options.settings.clone());
    let kcp = Kcp {
        client: &client,
        settings: &settings,
    };
    let found = kcp.find(name).await?;
    let mut view = RuntimePlan::new(&settings.namespace, name);
    let (resource, goal) = match found.adoption(&settings.adopt, name) {
        Adoption::Unmanaged(reason) => return Ok(view.unmanaged(reason)),
        Adoption::Managed(resource, goal, writes) => {
            view.kcp = writes;
            (resource, goal)
        }
    };
    let door = ClientFactory::new(client.clone(), &settings.namespace, options.fleet.clone());
    let wanted = wanted(&kcp, options, resource.spec.webhook.as_ref()).await?;
    let assignment = Assignment {
        resource: &resource,
        goal,
        wanted: &wanted,
        claimed_by: &kcp.claims(name).await?,
    };
    let id = kcp.identify(&found, name).await?;
    let examined = match &id {
        Ok(id) => examine(&door, &assignment, id).await?,
        Err(unreached) => Examined::without(unreached.clone()),
    };
    view.runtime_id = id.ok().map(|it| it.as_str().to_owned());
    view.rollouts = kcp.held_rollouts().await?;
    report(&mut view, &assignment, examined);
    Ok(view)
}

/// What the runtime should hold by the sources, the state and its own settings.
async fn wanted(
    kcp: &Kcp<'_>,
    options: PlanOptions,
    own: Option<&WebhookSettings>,
) -> Result<Wanted, PlanError> {
    let salt = crate::sources::ask_salt(kcp.client)
        .await
        .map_err(PlanError::Identity)?;
    let sources = crate::sources::read(kcp.client, &options.sources, &salt)
        .await
        .map_err(|error| PlanError::Kcp("sources", error))?;
    let history = kcp.history(&sources).await?;
    let mut installations = options.installations;
    if let Some(document) = sources.configuration.valid() {
        let secret = document.mentions.pull_secret();
        installations.permit(secret).map_err(PlanError::Manifests)?;
    }
    let revision = installations.current();
    let (installation, failure) = match installations.of(revision, own) {
        Ok(installation) => (installation, None),
        Err((installation, reason)) => (installation, Some(reason)),
    };
    let names = object_names(&kcp.settings.names, own);
    Ok(Wanted {
        desired: Desired::new(&sources, &history, &names),
        salt,
        names,
        installation,
        failure,
    })
}

/// Takes the result of a reconcile that wrote everything, with the conditions that it would have.
fn report(view: &mut RuntimePlan, assignment: &Assignment<'_>, mut examined: Examined) {
    let Assignment {
        resource,
        goal,
        wanted,
        ..
    } = assignment;
    let failure = wanted.failure.as_ref().filter(|_| *goal == Goal::Sync);
    let failure = failure.and_then(|message| {
        let target = wanted.installation.deployment()?.clone();
        examined.plan.as_mut()?.lanes.webhook.steps.clear();
        let message = message.clone();
        Some(Failure { target, message })
    });
    let is_paused = *goal == Goal::Sync && resource.spec.paused;
    let outcome = Outcome {
        unreached: examined.unreached.as_ref(),
        plan: examined.plan.as_ref(),
        purpose: *goal,
        lanes: Lanes::both(if is_paused {
            LaneOutcome::Deferred(Deferral::Paused)
        } else {
            LaneOutcome::Applied
        }),
        failures: Lanes {
            configuration: None,
            webhook: failure.as_ref(),
        },
    };
    let status = resource.status.as_ref();
    let before = status.map_or(&[][..], |it| &it.conditions);
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let after = conditions(before, outcome, resource.metadata.generation, &now);
    let objects = (&wanted.names, &*wanted.installation);
    view.fill(&examined.observed, objects, outcome, after);
}

/// Connects to the runtime, reads and decides. Everything is read, as in a complete reconcile.
async fn examine(
    door: &ClientFactory,
    assignment: &Assignment<'_>,
    id: &RuntimeId,
) -> Result<Examined, PlanError> {
    let secret = door.ask(id, None).await;
    let secret = secret.map_err(|error| PlanError::Kcp("the kubeconfig of the runtime", error))?;
    let owners = match assignment.goal {
        Goal::Sync => Owners::With(is_installer),
        Goal::Delete | Goal::Orphan => Owners::Whole,
    };
    let remote = match door.open(id, secret) {
        Ok(remote) => remote.with_owners(owners),
        Err(unreached) => return Ok(Examined::without(unreached)),
    };
    let decided = decide(&remote, assignment, id).await;
    Ok(decided.unwrap_or_else(|error| Examined::without(unreached(&error))))
}

async fn decide(
    remote: &Remote,
    assignment: &Assignment<'_>,
    id: &RuntimeId,
) -> Result<Examined, CallError> {
    remote.connect().await?;
    let gather = Gather {
        remote,
        names: &assignment.wanted.names,
        installation: &assignment.wanted.installation,
    };
    let mut observed = gather.essentials().await?;
    let quick = decided(assignment, id, &observed);
    if quick.blocked.is_none() {
        gather.installed(&mut observed).await?;
        if assignment.goal == Goal::Delete {
            gather.made(&mut observed).await?;
        }
    }
    Ok(Examined {
        unreached: None,
        plan: Some(decided(assignment, id, &observed)),
        observed,
    })
}

fn decided(assignment: &Assignment<'_>, id: &RuntimeId, observed: &Observed) -> Plan {
    let resource = assignment.resource;
    let status = resource.status.as_ref();
    let cluster = observed.cluster.as_deref();
    let mut others = assignment.claimed_by.iter();
    let claimed_by = others
        .find(|(uid, runtime)| Some(uid.as_str()) == cluster && runtime != id.as_str())
        .map(|(_, runtime)| runtime.as_str());
    let owner = Owner {
        runtime_id: id.as_str().to_owned(),
        control_plane: assignment.wanted.salt.control_plane(),
    };
    let accepted = resource.annotations().get(ACCEPT_CLUSTER_UID_ANNOTATION);
    let context = Context {
        names: &assignment.wanted.names,
        installation: &assignment.wanted.installation,
        owner: &owner,
        claim: Claim {
            remembered: status.and_then(|it| it.cluster_uid.as_deref()),
            accepted: accepted.map(String::as_str),
            claimed_by,
        },
    };
    match assignment.goal {
        Goal::Sync => plan::plan(context, &assignment.wanted.desired, observed),
        Goal::Delete => plan::uninstall(context, observed),
        Goal::Orphan => plan::hand_back(context, observed),
    }
}
