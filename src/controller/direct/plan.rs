//! Computes the writes of the controller on one runtime, and their reasons, without writing.
//!
//! Invariant: objects are only read. On a runtime these are the requests of `gather`, including two reviews of the
//! controller's own permissions. On KCP the state ConfigMap is read, and advanced in memory only. Not in here:
//! whether the runtime may start in a rollout, which only the leader can decide.

use std::sync::Arc;

use api::bootstrapper::WebhookSettings;
use kube::Client;
use policy::sync::ObjectNames;
use policy::sync::desired::Desired;
use policy::sync::manifests::Installation;
use policy::sync::observed::Observed;
use policy::sync::plan::Plan;
use policy::sync::scheduler::Access;
use policy::sync::signal::Eligibility;
use policy::sync::status::{
    ConnectionError, Deferral, Failure, Goal, LaneOutcome, Outcome, conditions,
};
use policy::sync::{Hash, Lane, Lanes};

use super::DirectSettings;
use super::reconcile::{ReconcileRequest, runtime};
use super::revisions::{Installations, ManifestsError};
use crate::access::{ClientFactory, unreached};
use crate::claims::Claims;
use crate::clients::RuntimeClients;
use crate::state::LoadError;

mod kcp;
mod view;

use kcp::{Adoption, Kcp};
pub use view::{PlannedCondition, PlannedLane, PlannedWrite, RuntimePlan};

/// Arguments of [`plan_runtime`]. They must equal the options of the controller.
pub struct PlanOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings of the controller.
    pub settings: DirectSettings,
    /// Names of the sources on KCP.
    pub sources: ObjectNames,
    /// Clients of runtimes.
    pub fleet: RuntimeClients,
    /// Manifests of the webhook.
    pub installations: Installations,
}

/// Reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The UID of the Namespace `kube-system` of KCP cannot be read.
    #[error("failed to read the identity of KCP: {0}")]
    Identity(String),
    /// Neither the Runtime nor a `RuntimeBootstrapper` with the name exists.
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

/// The desired state of a runtime.
struct Wanted {
    control_plane: String,
    names: Arc<ObjectNames>,
    desired: Arc<Desired>,
    installation: Result<Arc<Installation>, (Arc<Installation>, String)>,
}

/// Computes the writes of the controller on the runtime of the Runtime `name`.
///
/// # Errors
/// [`PlanError`] if KCP does not return the input. An unreachable runtime is not an error, but is reported in the result.
pub async fn plan_runtime(options: PlanOptions, name: &str) -> Result<RuntimePlan, PlanError> {
    let (client, settings) = (options.client.clone(), options.settings.clone());
    let kcp = Kcp {
        client: &client,
        settings: &settings,
    };
    let found = kcp.find(name).await?;
    let mut view = RuntimePlan::new(&settings.namespace, name);
    let (resource, goal) = match found.adoption(name) {
        Adoption::Unmanaged(reason) => return Ok(view.unmanaged(reason)),
        Adoption::Managed(resource, goal, writes) => {
            view.kcp = writes;
            (resource, goal)
        }
    };
    let client_factory =
        ClientFactory::new(client.clone(), &settings.namespace, options.fleet.clone());
    let rollouts = kcp.rollouts().await?;
    let rolled_out = rollouts.revision(Lane::Webhook);
    let wanted = wanted(&kcp, options, resource.spec.webhook.as_ref(), rolled_out).await?;
    let request = ReconcileRequest {
        name: name.into(),
        previous: resource.status.clone().unwrap_or_default(),
        resource,
        runtime: found.store.identify(name),
        kubeconfig: None,
        eligibility: Eligibility::NotSelected,
        objects: wanted.names,
        desired: wanted.desired,
        installation: wanted.installation,
        // Both lanes are observed, and no object is written.
        lanes: Lanes::both(Some(Access::Observe(Deferral::Rollout))),
    };
    let claims = kcp.claims(name).await?;
    let identity = (&claims, wanted.control_plane.as_str());
    let observation = observe(&client_factory, identity, &request, goal).await?;
    let id = request.runtime.as_ref().ok();
    view.runtime_id = id.map(|it| it.as_str().to_owned());
    view.rollouts = rollouts.stopped();
    report(&mut view, &request, goal, observation);
    Ok(view)
}

/// Reads the desired state from the sources, the state ConfigMap and the settings of the resource.
async fn wanted(
    kcp: &Kcp<'_>,
    options: PlanOptions,
    overrides: Option<&WebhookSettings>,
    rolled_out: Option<Hash>,
) -> Result<Wanted, PlanError> {
    let salt = crate::sources::read_salt(kcp.client)
        .await
        .map_err(PlanError::Identity)?;
    let sources = crate::sources::read(kcp.client, &options.sources, &salt)
        .await
        .map_err(|error| PlanError::Kcp("sources", error))?;
    let history = kcp.history(&sources).await?;
    let mut installations = options.installations;
    let permitted = match (sources.configuration.valid(), rolled_out) {
        (Some(document), _) => installations.permit(document.references.pull_secret()),
        // The right to the pull Secret of the previous document stays.
        (None, Some(revision)) => {
            installations.load(kcp.revisions().await?);
            installations.permit_as(revision)
        }
        (None, None) => Ok(()),
    };
    permitted.map_err(PlanError::Manifests)?;
    let revision = installations.current();
    let names = installations.names(revision, &kcp.settings.names, overrides);
    Ok(Wanted {
        desired: Arc::new(Desired::new(&sources, &history, &names)),
        control_plane: salt.control_plane(),
        names: Arc::new(names),
        installation: installations.of(revision, overrides),
    })
}

/// Connects to the runtime, reads all objects as a complete reconcile does, and makes the plan.
async fn observe(
    client_factory: &ClientFactory,
    identity: (&Claims, &str),
    request: &ReconcileRequest,
    goal: Goal,
) -> Result<Result<(Observed, Plan), ConnectionError>, PlanError> {
    let id = match &request.runtime {
        Ok(id) => id,
        Err(unreached) => return Ok(Err(unreached.clone())),
    };
    let secret = client_factory.read_kubeconfig(id, None).await;
    let secret = secret.map_err(|error| PlanError::Kcp("the kubeconfig of the runtime", error))?;
    let remote = match client_factory.client(id, secret) {
        Ok(remote) => remote.with_managed_fields(runtime::owners(goal)),
        Err(unreached) => return Ok(Err(unreached)),
    };
    let observed = async {
        remote.connect().await?;
        runtime::observe(identity, request, goal, id, &remote).await
    };
    Ok(observed.await.map_err(|error| unreached(&error)))
}

/// Adds the result of a reconcile whose writes all succeed, with its conditions.
fn report(
    view: &mut RuntimePlan,
    request: &ReconcileRequest,
    goal: Goal,
    observation: Result<(Observed, Plan), ConnectionError>,
) {
    let (observed, mut plan, unreached) = match observation {
        Ok((observed, plan)) => (observed, Some(plan), None),
        Err(unreached) => (Observed::default(), None, Some(unreached)),
    };
    let (Ok(installation) | Err((installation, _))) = &request.installation;
    let failure = match (&request.installation, &mut plan, goal) {
        (Err((_, message)), Some(plan), Goal::Sync) => {
            plan.lanes.webhook.steps.clear();
            let target = installation.deployment().cloned();
            let message = message.clone();
            target.map(|target| Failure { target, message })
        }
        _ => None,
    };
    let is_paused = goal == Goal::Sync && request.resource.spec.paused;
    let outcome = Outcome {
        connection_error: unreached.as_ref(),
        plan: plan.as_ref(),
        goal,
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
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let generation = request.resource.metadata.generation;
    let after = conditions(&request.previous.conditions, outcome, generation, &now);
    let objects = (&*request.objects, &**installation);
    view.fill(&observed, objects, outcome, after);
}
