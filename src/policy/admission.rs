//! Decisions about Pods: from an AdmissionReview to a patch and reasons.
//!
//! [`review`] borrows the required fields from the bytes of the request. [`Configuration`] is a parsed and validated
//! configuration document. [`decide`] combines both. Every decision contains a typed [`Reason`], with or without a
//! change. Deliberately absent: HTTP, metrics, snapshots (all in `webhook`), and a typed `Pod`, which would lose the
//! fields of newer Kubernetes versions.

mod annotations;
mod configuration;
mod decision;
mod entry;
mod fallback;
mod marker;
mod mounts;
mod opt_in;
mod overrides;
mod patch;
pub mod pod;
mod pull_secret;
mod reason;
mod registry;
pub mod review;
mod scope;
mod variables;

#[cfg(test)]
mod tests;

pub use annotations::Annotations;
pub use configuration::{
    Configuration, ConfigurationError, Notice, PullSecretRule, Settings, TrustBundle,
};
pub use decision::{
    Context, Decision, Namespace, PullSecret, TrustBundlePresence, decide, decide_unsent,
};
pub use fallback::{FallbackSpec, PolicyTooLarge, fallback_spec};
pub use mounts::{has_other_trust_bundle, has_trust_bundle};
pub use patch::Patch;
pub use reason::{Code, Finding, Reason};
pub use registry::User;
pub use scope::exclusion;
