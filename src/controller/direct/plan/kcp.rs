//! Reads the input of a plan from KCP once.
//!
//! Objects are listed by name or label where the Roles of the controller allow only lists.

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::RUNTIME_ID;
use api::rollout::{RuntimeBootstrapperRollout, STOPPED};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use policy::sync::history::{Grace, SourceHistory};
use policy::sync::sources::Sources;
use policy::sync::status::Goal;
use policy::sync::{Hash, Lane};

use super::super::lifecycle::{adopted, has_finalizer};
use super::super::reconcile::{deletion_goal, goal as goal_of};
use super::super::revisions::RevisionStore;
use super::super::store::{AdoptionAction, RuntimeInfo, RuntimeStore};
use super::super::{DIRECT_STATE, DirectSettings};
use super::PlanError;
use crate::claims::Claims;
use crate::clients::RuntimeId;
use crate::inventory::RuntimeView;
use crate::requests::Answer as _;
use crate::state::{SIGNAL_STATE, StateStore, load};

/// Number of objects in one page of a list.
const PAGE: u32 = 500;

/// Reads objects of KCP.
pub(super) struct Kcp<'a> {
    pub(super) client: &'a Client,
    pub(super) settings: &'a DirectSettings,
}

/// The Runtime and the `RuntimeBootstrapper` of a name, and the other Runtimes with its runtime ID.
pub(super) struct Found {
    pub(super) store: RuntimeStore,
    resource: Option<RuntimeBootstrapper>,
}

/// Writes of the controller on the `RuntimeBootstrapper` itself.
pub(super) enum Adoption {
    /// Nothing is written on the runtime, for this reason.
    Unmanaged(&'static str),
    /// The runtime is reconciled with this goal, after these writes on KCP.
    Managed(Box<RuntimeBootstrapper>, Goal, Vec<String>),
}

impl Found {
    pub(super) fn adoption(&self, name: &str) -> Adoption {
        let action = self.store.adoption_action(name);
        let Some(resource) = self.resource.clone().map(Box::new) else {
            if action != AdoptionAction::Adopt {
                return Adoption::Unmanaged(
                    "no RuntimeBootstrapper exists, and the Runtime does not match --direct-selector",
                );
            }
            let write = format!("create RuntimeBootstrapper {name}");
            let resource = Box::new(adopted(name, None));
            return Adoption::Managed(resource, Goal::Sync, vec![write]);
        };
        if action == AdoptionAction::Delete {
            let write = format!("delete RuntimeBootstrapper {name}");
            let goal = deletion_goal(&resource);
            return Adoption::Managed(resource, goal, vec![write]);
        }
        let goal = goal_of(&resource);
        let writes = match goal {
            _ if has_finalizer(&resource) => Vec::new(),
            Goal::Sync => vec![format!("add the finalizer to RuntimeBootstrapper {name}")],
            Goal::Delete | Goal::Orphan => {
                return Adoption::Unmanaged(
                    "the RuntimeBootstrapper is being deleted, and the controller has released it",
                );
            }
        };
        Adoption::Managed(resource, goal, writes)
    }
}

impl Kcp<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Finds the Runtime and the `RuntimeBootstrapper` with a name, and the Runtimes with the same runtime ID.
    ///
    /// # Errors
    /// A request failed, or neither object exists.
    pub(super) async fn find(&self, name: &str) -> Result<Found, PlanError> {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let mut runtimes = self.runtimes(&named, "the Runtime").await?;
        let resource = self.api::<RuntimeBootstrapper>().get_opt(name).await;
        let resource =
            resource.map_err(|error| PlanError::Kcp("the RuntimeBootstrapper", error))?;
        if runtimes.is_empty() && resource.is_none() {
            let namespace = &self.settings.namespace;
            return Err(PlanError::NotFound(format!("{namespace}/{name}")));
        }
        let id = runtimes.first().and_then(|it| it.labels().get(RUNTIME_ID));
        if let Some(id) = id.filter(|it| !it.is_empty()) {
            let labeled = ListParams::default().labels(&format!("{RUNTIME_ID}={id}"));
            runtimes.extend(self.runtimes(&labeled, "Runtimes").await?);
        }
        let mut store = RuntimeStore::default();
        for runtime in &runtimes {
            let selectors = (&self.settings.adopt, &self.settings.signal_selector);
            let (name, info) = RuntimeInfo::read(runtime, selectors.0, selectors.1);
            store.put_runtime(&name, info);
        }
        if let Some(resource) = resource.clone() {
            store.put_resource(resource);
        }
        Ok(Found { store, resource })
    }

    async fn runtimes(
        &self,
        parameters: &ListParams,
        what: &'static str,
    ) -> Result<Vec<RuntimeView>, PlanError> {
        let list = self.api::<RuntimeView>().list(parameters).await;
        let list = list.map_err(|error| PlanError::Kcp(what, error))?;
        Ok(list.items)
    }

    /// Returns the clusters of all other `RuntimeBootstrapper`s that have observed their clusters.
    ///
    /// # Errors
    /// A request failed.
    pub(super) async fn claims(&self, name: &str) -> Result<Claims, PlanError> {
        let api = self.api::<RuntimeBootstrapper>();
        let mut parameters = ListParams::default().limit(PAGE);
        let claims = Claims::default();
        loop {
            let page = api.list(&parameters).await;
            let page = page.map_err(|error| PlanError::Kcp("RuntimeBootstrappers", error))?;
            let others = page.items.into_iter().filter(|it| it.name_any() != name);
            for status in others.filter_map(|it| it.status) {
                if let Some((cluster, id)) = status.cluster_uid.zip(status.runtime_id) {
                    claims.claim(&cluster, &RuntimeId::new(&id));
                }
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(claims),
            }
        }
    }

    /// Returns the history of rolled-out sources, advanced by the current sources.
    ///
    /// # Errors
    /// The state ConfigMap cannot be loaded.
    pub(super) async fn history(&self, sources: &Sources) -> Result<SourceHistory, PlanError> {
        let store = |name| StateStore::new(self.client.clone(), &self.settings.namespace, name);
        let (mut own, mut signal) = (store(DIRECT_STATE), store(SIGNAL_STATE));
        let loaded = load(&mut own, &mut signal).await;
        let mut history = loaded.map_err(PlanError::State)?.history;
        let grace = Grace {
            now: Timestamp::now(),
            period: self.settings.deletion_grace,
        };
        history.advance(sources, grace);
        Ok(history)
    }

    /// All rollouts. Empty if KCP does not serve the kind.
    ///
    /// # Errors
    /// A request failed.
    pub(super) async fn rollouts(&self) -> Result<Rollouts, PlanError> {
        let api = self.api::<RuntimeBootstrapperRollout>();
        let list = api.list(&ListParams::default()).await.unless_gone();
        let list = list.map_err(|error| PlanError::Kcp("RuntimeBootstrapperRollouts", error))?;
        Ok(Rollouts(list.into_iter().flat_map(|it| it.items).collect()))
    }

    /// The stored revisions of the webhook.
    ///
    /// # Errors
    /// A request failed.
    pub(super) async fn revisions(&self) -> Result<Vec<ControllerRevision>, PlanError> {
        let store = RevisionStore::new(self.client.clone(), &self.settings.namespace);
        let list = store.list().await;
        list.map_err(|error| PlanError::Kcp("ControllerRevisions", error))
    }
}

/// The rollouts on KCP.
pub(super) struct Rollouts(Vec<RuntimeBootstrapperRollout>);

impl Rollouts {
    /// Those in which no other runtime starts, with the reason.
    pub(super) fn stopped(&self) -> Vec<String> {
        self.0.iter().filter_map(stopped).collect()
    }

    /// The revision that the leader rolls out in a lane.
    pub(super) fn revision(&self, lane: Lane) -> Option<Hash> {
        let rollout = self.0.iter().find(|it| it.name_any() == lane.name())?;
        rollout.status.as_ref()?.revision.as_ref()?.parse().ok()
    }
}

fn stopped(rollout: &RuntimeBootstrapperRollout) -> Option<String> {
    let name = rollout.name_any();
    if rollout.spec.paused {
        return Some(format!("{name}: spec.paused is true"));
    }
    let conditions = rollout.status.iter().flat_map(|it| &it.conditions);
    let mut stopped = conditions.filter(|it| it.kind == STOPPED);
    let stopped = stopped.find(|it| it.status == api::bootstrapper::ConditionStatus::True)?;
    Some(format!("{name}: {}: {}", stopped.reason, stopped.message))
}
