//! Pure decisions: a review becomes a patch with reasons, a desired and an observed state become actions.
//!
//! Architecture invariant: nothing here is async, and nothing asks a clock, the environment, a file or the network;
//! time, chance and identity are arguments. The manifest proves it (no tokio, no client), `.clippy.toml` keeps it.

pub mod admission;
pub mod certificates;
pub mod change;
pub mod image;
pub mod mirror;
pub mod repairs;
pub mod sync;
pub mod watchers;

mod review;
