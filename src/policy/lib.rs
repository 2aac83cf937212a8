//! Pure decisions: from a review to a patch with reasons, and from a desired and an observed state to actions.
//!
//! Architecture invariant: no code here is async, or uses a clock, the environment, a file or the network. Time,
//! random numbers and identity are arguments. The manifest ensures it (no tokio, no client), and so does
//! `.clippy.toml`.

pub mod admission;
pub mod certificates;
pub mod change;
pub mod copies;
pub mod image;
pub mod repairs;
pub mod sync;
pub mod watchers;

mod review;
