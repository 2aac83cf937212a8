//! Programs that replace other systems in tests: KEB and KIM in the process of a suite, KLM in a Pod on KCP.
//!
//! Names, states, labels, order and waiting rules are those of the public programs. The README of each double lists what it
//! implements and what it omits.
#![expect(
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "a double is part of a test, and an error ends a reconcile with its own text"
)]

pub mod crds;
pub mod keb;
pub mod kim;
pub mod klm;
mod objects;

pub use objects::Objects;

/// Group of Kymas.
pub const KYMA_GROUP: &str = "operator.kyma-project.io";
/// Version of Kymas.
pub const KYMA_VERSION: &str = "v1beta2";
/// Label with the name of the Kyma of a runtime.
pub const KYMA_NAME: &str = "operator.kyma-project.io/kyma-name";
/// Annotation of Kymas and GardenerClusters: the domain of the runtime.
pub const SKR_DOMAIN: &str = "skr-domain";

/// An error of a reconcile, after which the controller retries.
#[derive(Debug)]
pub(crate) struct ReconcileError(pub(crate) anyhow::Error);

impl std::fmt::Display for ReconcileError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:#}", self.0)
    }
}

impl std::error::Error for ReconcileError {}
