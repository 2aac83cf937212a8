//! What the text of an image field means: which registry and repository it names, and whether a
//! docker config has credentials for it.
//!
//! Invariant: whatever the kubelet would read from an image field or from a pull Secret, these types
//! read too; an image that the kubelet would refuse is an error here and never a guess.
//! Deliberately absent: rewriting (that is `admission`'s), default tags, and the credentials
//! themselves.

mod keyring;
mod reference;

pub use keyring::{Keyring, KeyringError};
pub(crate) use reference::pattern as reference_pattern;
pub use reference::{Reference, ReferenceError};

#[cfg(test)]
mod tests;
