//! Features as tests: scenarios, step definitions, and the environments that scenarios run in.
//!
//! It judges the built image and the public contract; only the target `in_process` imports crates of the product.

#![cfg_attr(
    not(feature = "clusters"),
    expect(
        dead_code,
        reason = "the suites on clusters need more of the same files"
    )
)]

pub mod admission;
pub mod client;
mod definitions;
pub mod matching;
pub mod runner;
pub mod scenario;

#[cfg(feature = "clusters")]
mod fixtures;
#[cfg(feature = "clusters")]
mod gateway;
#[cfg(feature = "clusters")]
pub mod install;
#[cfg(feature = "clusters")]
pub mod landscape;
#[cfg(feature = "clusters")]
mod rollout;
#[cfg(feature = "clusters")]
pub mod synchronization;
#[cfg(feature = "clusters")]
pub mod watching;
