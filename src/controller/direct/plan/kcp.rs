//! Reads the input of a plan from KCP once.
//!
//! Objects are listed by name or label where the Roles of the controller allow only lists.

use api::bootstrapper::{DeletionPolicy, RuntimeBootstrapper, RuntimeBootstrapperSpec};
use api::kcp::RUNTIME_ID;
use api::rollout::{RuntimeBootstrapperRollout, STOPPED};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Client, ResourceExt as _};
use policy::sync::history::{Grace, SourceHistory};
use policy::sync::sources::Sources;
use policy::sync::status::{ConnectionError, Goal};
use policy::sync::{Hash, Lane};

use super::super::lifecycle::{has_finalizer, is_managed};
use super::super::reconcile::goal as goal_of;
use super::super::revisions::RevisionStore;
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

/// A Runtime and the `RuntimeBootstrapper` with its name; `None` if the object does not exist.
pub(super) struct Found {
    runtime: Option<RuntimeView>,
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
    pub(super) fn adoption(&self, adopt: &Selector, name: &str) -> Adoption {
        let is_direct = self.runtime.as_ref().is_some_and(|it| {
            let labels = it.labels();
            !it.is_terminating() && adopt.matches(labels)
        });
        let Some(resource) = &self.resource else {
            if !is_direct {
                return Adoption::Unmanaged(
                    "no RuntimeBootstrapper exists, and the Runtime does not match --direct-selector",
                );
            }
            let spec = RuntimeBootstrapperSpec {
                deletion_policy: DeletionPolicy::Orphan,
                ..RuntimeBootstrapperSpec::default()
            };
            let resource = Box::new(RuntimeBootstrapper::new(name, spec));
            let write = format!("create RuntimeBootstrapper {name}");
            return Adoption::Managed(resource, Goal::Sync, vec![write]);
        };
        let is_deleted = resource.metadata.deletion_timestamp.is_some();
        if is_deleted && !has_finalizer(resource) {
            return Adoption::Unmanaged(
                "the RuntimeBootstrapper is being deleted, and the controller has released it",
            );
        }
        if !is_direct && !is_deleted && is_managed(resource) {
            let goal = match resource.spec.deletion_policy {
                DeletionPolicy::Delete => Goal::Delete,
                DeletionPolicy::Orphan => Goal::Orphan,
            };
            let write = format!("delete RuntimeBootstrapper {name}");
            return Adoption::Managed(Box::new(resource.clone()), goal, vec![write]);
        }
        let goal = goal_of(resource);
        let mut writes = Vec::new();
        if goal == Goal::Sync && !has_finalizer(resource) {
            writes.push(format!("add the finalizer to RuntimeBootstrapper {name}"));
        }
        Adoption::Managed(Box::new(resource.clone()), goal, writes)
    }
}

impl Kcp<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }

    /// Finds the Runtime and the `RuntimeBootstrapper` with a name.
    ///
    /// # Errors
    /// A request failed, or neither object exists.
    pub(super) async fn find(&self, name: &str) -> Result<Found, PlanError> {
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let runtimes = self.api::<RuntimeView>().list(&named).await;
        let runtime = runtimes
            .map_err(|error| PlanError::Kcp("the Runtime", error))?
            .items
            .pop();
        let resource = self.api::<RuntimeBootstrapper>().get_opt(name).await;
        let resource =
            resource.map_err(|error| PlanError::Kcp("the RuntimeBootstrapper", error))?;
        if runtime.is_none() && resource.is_none() {
            let namespace = &self.settings.namespace;
            return Err(PlanError::NotFound(format!("{namespace}/{name}")));
        }
        Ok(Found { runtime, resource })
    }

    /// Returns the runtime ID, if no other Runtime has the same ID.
    ///
    /// # Errors
    /// A request failed.
    pub(super) async fn identify(
        &self,
        found: &Found,
        name: &str,
    ) -> Result<Result<RuntimeId, ConnectionError>, PlanError> {
        let Some(runtime) = found.runtime.as_ref().filter(|it| !it.is_terminating()) else {
            let key = format!("{}/{name}", self.settings.namespace);
            return Ok(Err(ConnectionError::RuntimeNotFound(key)));
        };
        let id = runtime.labels().get(RUNTIME_ID).filter(|it| !it.is_empty());
        let Some(id) = id else {
            return Ok(Err(ConnectionError::RuntimeIDMissing));
        };
        let labeled = ListParams::default().labels(&format!("{RUNTIME_ID}={id}"));
        let others = self.api::<RuntimeView>().list(&labeled).await;
        let others = others.map_err(|error| PlanError::Kcp("Runtimes", error))?;
        let other = others.items.iter().find(|it| it.name_any() != name);
        Ok(match other {
            Some(other) => Err(ConnectionError::RuntimeIDConflict(other.name_any())),
            None => Ok(RuntimeId::new(id)),
        })
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
                    claims.claim(&cluster, &id);
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
