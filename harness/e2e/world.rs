//! What the suites for synchronization and watching share until they use [`crate::scenario::Scenario`].

pub(crate) mod bundle;
mod draft;
pub(crate) mod effects;
pub(crate) mod supplies;

pub(crate) use crate::admission::webhook::usual_configuration as shared_configuration;
pub(crate) use crate::client::Client as Dialogue;
pub(crate) use draft::Draft;

/// A text that no other run uses.
pub(crate) fn random() -> String {
    format!("{:016x}", fastrand::u64(..))
}
