//! The webhook and its configuration on every runtime.

use std::time::Duration;

mod absent;
mod clock;
pub mod direct;
pub mod record;
pub mod signal;
pub mod sources;
#[cfg(test)]
mod tests;

/// How long a source that was rolled out may be missing before that counts as its deletion, unless it is set otherwise:
/// long enough for an object that is deleted and created again by a tool, or by an operator who notices the mistake.
pub const DELETION_GRACE: Duration = Duration::from_mins(5);
