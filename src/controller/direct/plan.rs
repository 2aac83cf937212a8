//! Computes what the controller would write on one runtime, and why, without the writes.
//!
//! Invariant: only reads. On a runtime these are the requests of `gather`, including two reviews of the controller's own
//! permissions. On KCP the state ConfigMap is read, and advanced in memory only. Not in here: whether the runtime may start in a
//! rollout, which only the leader knows.

use std::sync::Arc;

use api::bootstrapper::{RuntimeBootstrapper, WebhookSettings};
use api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION;
use kube::{Client, ResourceExt as _};
use policy::sync::desired::Desired;
use policy::sync::identity::{IdentityRecord, Owner};
use policy::sync::managed_fields::is_installer;
use policy::sync::manifests::Installation;
use policy::sync::observed::{Names, Observed};
use policy::sync::plan::{self, Context, Plan};
use policy::sync::sources::SourceNames;
use policy::sync::status::{
    ConnectionError, Deferral, Failure, Goal, LaneOutcome, Outcome, conditions,
};
use policy::sync::{Lanes, Salt};

use super::DirectSettings;
use super::access::{ClientFactory, unreached};
use super::gather::RuntimeReader;
use super::revisions::{Installations, ManifestsError, object_names};
use crate::clients::{CallError, ManagedFields, Remote, RuntimeClients, RuntimeId};
use crate::state::LoadError;

mod kcp;
mod view;

use kcp::{Adoption, Kcp};
pub use view::{PlannedCondition, PlannedLane, PlannedWrite, RuntimePlan};

/// The input of a plan. It must be the same as that of the controller.
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
    /// The UID of the Namespace `kube-system` of KCP cannot be read.
    #[error("failed to read the identity of KCP: {0}")]
    Identity(String),
    /// Neither the Runtime nor a `RuntimeBootstrapper` of the name exists.
    #[error("Runtime {0} not found, and no RuntimeBootstrapper of its name")]
    NotFound(String),
    /// Objects cannot be read.
    #[error("failed to read {0} from KCP")]
    Kcp(&'static str, #[source] kube::Error),
    /// The state of the controller cannot be loaded.
    #[error("failed to load state")]
    State(#[source] LoadError),
    /// The manifests of the webhook cannot be rendered for the configuration document.
    #[error("invalid manifests of the webhook")]
    Manifests(#[source] ManifestsError),
}

/// The observation of a runtime.
#[derive(Default)]
struct Observation {
    unreached: Option<ConnectionError>,
    plan: Option<Plan>,
    observed: Observed,
}

impl Observation {
    fn unreached(unreached: ConnectionError) -> Self {
        Self {
            unreached: Some(unreached),
            ..Self::default()
        }
    }
}

/// The desired state of a runtime.
struct Wanted {
    salt: Salt,
    names: Names,
    desired: Desired,
    installation: Arc<Installation>,
    /// Why no manifests can be rendered for the settings of the runtime.
    failure: Option<String>,
}

/// One runtime and the input of its reconcile.
struct Assignment<'a> {
    resource: &'a RuntimeBootstrapper,
    goal: Goal,
    wanted: &'a Wanted,
    claimed_by: &'a [(String, String)],
}

/// Computes what the controller would write on the runtime of the Runtime `name`.
///
/// # Errors
/// [`PlanError`] if KCP does not return the input. An unreachable runtime is not an error, but part of the result.
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
    let client_factory =
        ClientFactory::new(client.clone(), &settings.namespace, options.fleet.clone());
    let wanted = wanted(&kcp, options, resource.spec.webhook.as_ref()).await?;
    let assignment = Assignment {
        resource: &resource,
        goal,
        wanted: &wanted,
        claimed_by: &kcp.claims(name).await?,
    };
    let id = kcp.identify(&found, name).await?;
    let observation = match &id {
        Ok(id) => observe(&client_factory, &assignment, id).await?,
        Err(unreached) => Observation::unreached(unreached.clone()),
    };
    view.runtime_id = id.ok().map(|it| it.as_str().to_owned());
    view.rollouts = kcp.stopped_rollouts().await?;
    report(&mut view, &assignment, observation);
    Ok(view)
}

/// Reads the desired state from the sources, the state ConfigMap and the settings of the resource.
async fn wanted(
    kcp: &Kcp<'_>,
    options: PlanOptions,
    overrides: Option<&WebhookSettings>,
) -> Result<Wanted, PlanError> {
    let salt = crate::sources::read_salt(kcp.client)
        .await
        .map_err(PlanError::Identity)?;
    let sources = crate::sources::read(kcp.client, &options.sources, &salt)
        .await
        .map_err(|error| PlanError::Kcp("sources", error))?;
    let history = kcp.history(&sources).await?;
    let mut installations = options.installations;
    if let Some(document) = sources.configuration.valid() {
        let secret = document.references.pull_secret();
        installations.permit(secret).map_err(PlanError::Manifests)?;
    }
    let revision = installations.current();
    let (installation, failure) = match installations.of(revision, overrides) {
        Ok(installation) => (installation, None),
        Err((installation, reason)) => (installation, Some(reason)),
    };
    let names = object_names(&kcp.settings.names, overrides);
    Ok(Wanted {
        desired: Desired::new(&sources, &history, &names),
        salt,
        names,
        installation,
        failure,
    })
}

/// Adds the result of a reconcile whose writes all succeed, with its conditions.
fn report(view: &mut RuntimePlan, assignment: &Assignment<'_>, mut observation: Observation) {
    let Assignment {
        resource,
        goal,
        wanted,
        ..
    } = assignment;
    let failure = wanted.failure.as_ref().filter(|_| *goal == Goal::Sync);
    let failure = failure.and_then(|message| {
        let target = wanted.installation.deployment()?.clone();
        observation.plan.as_mut()?.lanes.webhook.steps.clear();
        let message = message.clone();
        Some(Failure { target, message })
    });
    let is_paused = *goal == Goal::Sync && resource.spec.paused;
    let outcome = Outcome {
        connection_error: observation.unreached.as_ref(),
        plan: observation.plan.as_ref(),
        goal: *goal,
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
    view.fill(&observation.observed, objects, outcome, after);
}

/// Connects to the runtime, reads all objects as a complete reconcile does, and makes the plan.
async fn observe(
    client_factory: &ClientFactory,
    assignment: &Assignment<'_>,
    id: &RuntimeId,
) -> Result<Observation, PlanError> {
    let secret = client_factory.read_kubeconfig(id, None).await;
    let secret = secret.map_err(|error| PlanError::Kcp("the kubeconfig of the runtime", error))?;
    let owners = match assignment.goal {
        Goal::Sync => ManagedFields::IfOwnedBy(is_installer),
        Goal::Delete | Goal::Orphan => ManagedFields::All,
    };
    let remote = match client_factory.client(id, secret) {
        Ok(remote) => remote.with_managed_fields(owners),
        Err(unreached) => return Ok(Observation::unreached(unreached)),
    };
    let decided = decide(&remote, assignment, id).await;
    Ok(decided.unwrap_or_else(|error| Observation::unreached(unreached(&error))))
}

async fn decide(
    remote: &Remote,
    assignment: &Assignment<'_>,
    id: &RuntimeId,
) -> Result<Observation, CallError> {
    remote.connect().await?;
    let reader = RuntimeReader {
        remote,
        names: &assignment.wanted.names,
        installation: &assignment.wanted.installation,
    };
    let mut observed = reader.essentials().await?;
    let quick = decided(assignment, id, &observed);
    if quick.blocked.is_none() {
        reader.installed(&mut observed).await?;
        if assignment.goal == Goal::Delete {
            reader.created_by_webhook(&mut observed).await?;
        }
    }
    Ok(Observation {
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
        record: IdentityRecord {
            recorded_uid: status.and_then(|it| it.cluster_uid.as_deref()),
            accepted_uid: accepted.map(String::as_str),
            claimed_by,
        },
    };
    match assignment.goal {
        Goal::Sync => plan::plan(context, &assignment.wanted.desired, observed),
        Goal::Delete => plan::plan_deletion(context, observed),
        Goal::Orphan => plan::plan_orphan(context, observed),
    }
}
