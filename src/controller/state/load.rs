//! Loads what was rolled out before, when a controller starts.
//!
//! When a controller starts for the first time, only the state of the other controller says what was rolled out and what was
//! deleted since. That state is read only as long as the controller has no state of its own.

use policy::sync::history::{HistoryError, SourceHistory};

use super::{StateError, StateStore};

/// The state with which a controller starts.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadedState {
    /// What was ever rolled out.
    pub history: SourceHistory,
    /// Whether it comes from the other controller, so that it must be saved although nothing changed.
    pub inherited: bool,
}

/// Why the state cannot be loaded. It does not mean that there is none.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A state ConfigMap cannot be read.
    #[error("failed to load state")]
    StateStore(#[source] StateError),
    /// The data of a state ConfigMap is invalid.
    #[error("invalid state")]
    Invalid(#[source] HistoryError),
}

/// Loads the state of the controller; if it does not exist, that of the other controller, if that exists.
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
