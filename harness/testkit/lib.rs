//! What tests of all crates share: waiting for a condition, and stand-ins for what the product talks to.
//!
//! It imports no crate of `src`, so that these may use it in their tests.

pub mod until;

use serde::{Deserialize, Serialize};

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The plural of its kind.
    pub resource: String,
    /// Empty for cluster scope.
    #[serde(default)]
    pub namespace: String,
    /// Its name.
    pub name: String,
}
