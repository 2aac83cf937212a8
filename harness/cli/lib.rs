//! `cargo harness`: sets a machine up, runs clusters, tests, demo and benchmarks.

pub mod cli;
pub mod demo;
pub mod verify;
