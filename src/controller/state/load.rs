//! What was ever rolled out, as a mode finds it that begins.
//!
//! The first start of a mode is not the beginning of the world: what the mode before rolled out, and what was deleted
//! since, is in that one's record alone. It is looked at only as long as there is no record of the mode's own.

use policy::sync::known::{KnownError, SourceHistory};

use super::{StateError, StateStore};

/// What a mode begins with.
#[derive(Debug, PartialEq, Eq)]
pub struct Recalled {
    /// What was ever rolled out.
    pub known: SourceHistory,
    /// Whether it has to be stored in the mode's own record, even if nothing changed since.
    pub inherited: bool,
}

/// Why nothing can be recalled. It does not mean that there is nothing.
#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// A record cannot be used.
    #[error("failed to load state")]
    StateStore(#[source] StateError),
    /// A record cannot be understood.
    #[error("invalid state")]
    Garbage(#[source] KnownError),
}

/// What the mode's own record says; without one, what the record of the mode before says, if there is that.
///
/// # Errors
/// [`RecallError`] if the record that decides cannot be read, is not ours, or is damaged.
pub async fn load(own: &mut StateStore, before: &mut StateStore) -> Result<Recalled, RecallError> {
    let stored = own.load().await.map_err(RecallError::StateStore)?;
    let is_first = stored.is_none();
    let left = if is_first {
        before.load().await.map_err(RecallError::StateStore)?
    } else {
        stored
    };
    let known = SourceHistory::read(&left.unwrap_or_default()).map_err(RecallError::Garbage)?;
    Ok(Recalled {
        inherited: is_first && known != SourceHistory::default(),
        known,
    })
}
