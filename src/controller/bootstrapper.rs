//! The webhook and its configuration on every runtime.

pub mod direct;
#[cfg(test)]
mod fake;
pub mod record;
pub mod signal;
pub mod sources;
