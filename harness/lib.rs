//! The workshop: everything that proves the product, and nothing that it ships.
//!
//! It sets a machine up ([`setup`]), builds what runs in clusters ([`images`]), starts clusters and a private registry
//! ([`cluster`], [`registry`]) inside a [`run`], puts the product into them ([`install`]), waits ([`until`]) and keeps
//! [`evidence`]. Invariant: it judges the built image and the public contract; it imports no inner crate of the product.

pub mod bench;
pub mod cli;
pub mod cluster;
pub mod demo;
pub mod docker;
pub mod doubles;
pub mod evidence;
pub mod fleet;
pub mod gateway;
pub mod images;
pub mod install;
pub mod kcp;
pub mod landscape;
pub mod progress;
pub mod registry;
pub mod rollout;
pub mod run;
pub mod setup;
pub mod steps;
pub mod turns;
pub mod until;
pub mod verify;
pub mod watching;
pub mod workspace;
pub mod world;
