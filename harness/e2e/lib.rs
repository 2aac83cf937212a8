//! Features as tests: scenarios, step definitions, and the environments of scenarios.
//!
//! The suites test the built image and the public contract; only the target `in_process` imports crates of the product.

#![cfg_attr(
    not(feature = "clusters"),
    expect(
        dead_code,
        reason = "the suites on clusters need more of the same files"
    )
)]
#![expect(
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    reason = "an error ends the scenario with its own text; a value that a test does not use does no harm"
)]

pub mod admission;
mod definitions;
pub mod runner;
pub mod scenario;

#[cfg(feature = "clusters")]
pub mod conformance;
#[cfg(feature = "clusters")]
pub mod flow;
#[cfg(feature = "clusters")]
mod gateway;
#[cfg(feature = "clusters")]
pub mod install;
#[cfg(feature = "clusters")]
mod inventory;
#[cfg(feature = "clusters")]
pub mod landscape;
#[cfg(feature = "clusters")]
pub mod local;
#[cfg(feature = "clusters")]
mod other_webhook;
#[cfg(feature = "clusters")]
mod rollout;
#[cfg(feature = "clusters")]
pub mod synchronization;
#[cfg(feature = "clusters")]
pub mod watching;
