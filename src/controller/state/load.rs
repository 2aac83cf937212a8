//! Loads the history of rolled-out sources when a controller starts.
//!
//! When a controller starts for the first time, only the state of the other controller contains the sources that were
//! rolled out and the sources that were deleted since. That state is read only as long as the controller has no own
//! state.

use policy::sync::history::{HistoryError, SourceHistory};

use super::{StateError, StateStore};

/// The state with which a controller starts.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedState {
    /// History of all sources that were rolled out.
    pub history: SourceHistory,
    /// Whether the state belongs to the other controller, so that it must be saved although nothing changed.
    pub inherited: bool,
}

/// Reason why the state cannot be loaded. It does not mean that there is no state.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A state ConfigMap cannot be read.
    #[error("failed to load state")]
    StateStore(#[source] StateError),
    /// The data of a state ConfigMap is invalid.
    #[error("invalid state")]
    Invalid(#[source] HistoryError),
}

/// Loads the state of the controller. If it does not exist, loads the state of the other controller, if that exists.
///
/// # Errors
/// [`LoadError`] if the ConfigMap cannot be read, does not belong to the controller, or is invalid.
pub async fn load(own: &mut StateStore, other: &mut StateStore) -> Result<LoadedState, LoadError> {
    let stored = own.load().await.map_err(LoadError::StateStore)?;
    let is_first = stored.is_none();
    let data = if is_first {
        other.load().await.map_err(LoadError::StateStore)?
    } else {
        stored
    };
    let history = SourceHistory::read(&data.unwrap_or_default()).map_err(LoadError::Invalid)?;
    Ok(LoadedState {
        inherited: is_first && history != SourceHistory::default(),
        history,
    })
}
