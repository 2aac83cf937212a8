//! Updates of the state ConfigMap after a change of the sources.
//!
//! Invariant: an update is saved before its rollout starts, because the deletion of a source could otherwise be
//! missed after a restart. It runs concurrently with the main loop: while KCP does not respond, watches and
//! reconciles continue.

use std::sync::Arc;

use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use policy::sync::history::{Grace, SourceHistory};
use policy::sync::sources::Sources;

use super::DIRECT_STATE;
use super::revisions::RevisionStore;
use crate::state::{Data, SIGNAL_STATE, StateError, StateStore, load};

/// The state of the controller on KCP: the history of rolled-out sources, and the stored revisions of the webhook.
pub(super) struct StateUpdater {
    own: StateStore,
    signal: StateStore,
    pub(super) revisions: RevisionStore,
    has_revisions: bool,
    /// The history that was loaded or saved last. `None` before the first load and after a conflict.
    history: Option<SourceHistory>,
}

/// The result of an update.
pub(super) struct StateUpdate {
    pub(super) updater: StateUpdater,
    pub(super) sources: Arc<Sources>,
    /// The stored revisions, if this update listed them, which only the first update does.
    pub(super) revisions: Option<Vec<ControllerRevision>>,
    /// The history that was saved, or the reason why it was not saved.
    pub(super) result: Result<SourceHistory, String>,
}

impl StateUpdater {
    pub(super) fn new(client: &Client, namespace: &str) -> Self {
        let store = |name| StateStore::new(client.clone(), namespace, name);
        Self {
            own: store(DIRECT_STATE),
            signal: store(SIGNAL_STATE),
            revisions: RevisionStore::new(client.clone(), namespace),
            has_revisions: false,
            history: None,
        }
    }

    /// Reference to the state ConfigMap, for Events.
    pub(super) fn reference(&self) -> ObjectReference {
        self.own.reference()
    }

    /// Returns whether the state is known.
    pub(super) fn is_loaded(&self) -> bool {
        self.history.is_some()
    }

    /// Starts an update with the current sources.
    pub(super) fn start(
        mut self,
        sources: Arc<Sources>,
        grace: Grace,
    ) -> BoxFuture<'static, StateUpdate> {
        Box::pin(async move {
            let revisions = self.list_revisions().await;
            let (revisions, result) = match revisions {
                Ok(revisions) => (revisions, self.save(&sources, grace).await),
                Err(reason) => (None, Err(reason)),
            };
            StateUpdate {
                updater: self,
                sources,
                revisions,
                result,
            }
        })
    }

    async fn list_revisions(&mut self) -> Result<Option<Vec<ControllerRevision>>, String> {
        if self.has_revisions {
            return Ok(None);
        }
        let listed = self.revisions.list().await;
        let listed = listed.map_err(|it| error_chain(&it))?;
        self.has_revisions = true;
        Ok(Some(listed))
    }

    async fn save(&mut self, sources: &Sources, grace: Grace) -> Result<SourceHistory, String> {
        let (before, is_inherited) = if let Some(history) = self.history.clone() {
            (history, false)
        } else {
            let loaded = load(&mut self.own, &mut self.signal).await;
            let loaded = loaded.map_err(|it| error_chain(&it))?;
            (loaded.history, loaded.inherited)
        };
        let mut history = before.clone();
        history.advance(sources, grace);
        if history != before || is_inherited {
            let mut data = Data::new();
            history.write(&mut data);
            let mut saved = self.own.save(data.clone()).await;
            if let Err(StateError::Deleted) = saved {
                // The ConfigMap is created again, because no other object stores the history of rolled-out sources.
                saved = self.own.save(data).await;
            }
            if let Err(error) = saved {
                // After a conflict the state is loaded again. After other errors the loaded state is still valid, and reconciles
                // continue with it.
                if let StateError::Changed = error {
                    self.history = None;
                }
                return Err(error_chain(&error));
            }
        }
        self.history = Some(history.clone());
        Ok(history)
    }
}
