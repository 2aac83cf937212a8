//! The features on real clusters: environments, steps, and doubles of the systems around the product.
//!
//! It judges the built image and the public contract, and imports no inner crate of the product.

pub mod doubles;
pub mod gateway;
pub mod install;
pub mod kcp;
pub mod landscape;
pub mod rollout;
pub mod steps;
pub mod turns;
pub mod watching;
pub mod world;
