//! Review → patch and reasons.
//!
//! [`review`] borrows what it needs from the request's bytes, [`Configuration`] is a document that has been understood,
//! [`decide`] joins the two. Whatever is decided carries a typed [`Reason`], for changes and non-changes alike.
//! Deliberately absent: HTTP, metrics, snapshots (all in `webhook`), and any typed `Pod`: a round trip through one
//! would lose the fields of newer Kubernetes versions.

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
pub use mounts::has_trust_bundle;
pub use patch::Patch;
pub use reason::{Code, Finding, Reason};
pub use registry::User;
pub use scope::exclusion;
