//! The state ConfigMap, as last read or written by this process.
//!
//! Invariants: a change is saved before a Runtime is signaled for it; while the state cannot be read or saved, no Runtime is
//! signaled.

use std::time::Duration;

use component_base::backoff::Backoff;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use policy::sync::signal::{InvalidState, PersistedState};
use tokio::time::Instant;

use crate::state::{StateError, StateStore};

/// Backoff after failures. A state that an operator corrected is read within the cap.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Reason why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    #[error("failed to load state")]
    Store(#[source] StateError),
    #[error("invalid state")]
    Garbage(#[source] InvalidState),
}

impl SaveError {
    /// Returns the reason for metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Store(StateError::NotOwned { .. }) => "foreign",
            Self::Store(StateError::Oversized { .. }) => "oversized",
            Self::Store(StateError::Changed) => "changed",
            Self::Store(StateError::Deleted) => "deleted",
            Self::Store(StateError::Unavailable(_)) => "unavailable",
            Self::Garbage(_) => "garbage",
        }
    }

    /// Returns whether an operator has to correct the state. The other errors are temporary.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Garbage(_)
                | Self::Store(StateError::NotOwned { .. } | StateError::Oversized { .. })
        )
    }
}

/// The state ConfigMap; see the module.
pub(super) struct StateFile {
    store: StateStore,
    /// `None` until the state was read, and after another client wrote it.
    state: Option<PersistedState>,
    is_saved: bool,
    not_before: Option<Instant>,
    failures: u32,
}

impl StateFile {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            store: StateStore::new(client, namespace, name),
            state: None,
            is_saved: true,
            not_before: None,
            failures: 0,
        }
    }

    /// Returns the state, if it is saved.
    pub(super) fn saved(&self) -> Option<&PersistedState> {
        self.state.as_ref().filter(|_| self.is_saved)
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the state, saved or not.
    pub(super) fn loaded(&mut self) -> Option<&mut PersistedState> {
        self.state.as_mut()
    }

    /// Marks the state as changed, so that it is saved.
    pub(super) fn changed(&mut self) {
        self.is_saved = false;
    }

    /// Returns the time of the next [`StateFile::synchronize`]; `None` if the state is saved.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let is_due = self.saved().is_none();
        is_due.then(|| self.not_before.map_or(now, |it| it.max(now)))
    }

    /// Reads or saves the state; `None` if neither is due.
    pub(super) async fn synchronize(&mut self, now: Instant) -> Option<Result<(), SaveError>> {
        self.due(now).filter(|due| *due <= now)?;
        let result = match &self.state {
            None => self.load().await,
            Some(state) => {
                let saved = self.store.save(state.write()).await;
                saved.map_err(SaveError::Store)
            }
        };
        self.is_saved = result.is_ok();
        self.not_before = None;
        match &result {
            Ok(()) => self.failures = 0,
            Err(error) => {
                if let SaveError::Store(StateError::Changed) = error {
                    self.state = None;
                }
                let delay = RETRY.delay(self.failures, fastrand::u64(..));
                self.failures = self.failures.saturating_add(1);
                self.not_before = Some(Instant::now() + delay);
            }
        }
        Some(result)
    }

    async fn load(&mut self) -> Result<(), SaveError> {
        let data = self.store.load().await.map_err(SaveError::Store)?;
        let state = PersistedState::read(&data.unwrap_or_default());
        self.state = Some(state.map_err(SaveError::Garbage)?);
        Ok(())
    }

    /// Returns the reference to the ConfigMap, for Events.
    pub(super) fn reference(&self) -> ObjectReference {
        self.store.reference()
    }
}
