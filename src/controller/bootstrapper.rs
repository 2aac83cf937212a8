//! The webhook and its configuration on every runtime.

pub mod direct;
pub mod record;
pub mod signal;
pub mod sources;
