//! Interpretation of image fields: the registry and repository of an image, and whether a docker config has credentials for it.
//!
//! Invariant: these types accept every image field and every pull Secret that the kubelet accepts. An image that the
//! kubelet would reject is an error here and never a guess. Deliberately absent: rewriting (see `admission`), default
//! tags, and the credentials themselves.

mod keyring;
mod reference;

pub use keyring::{Keyring, KeyringError};
pub(crate) use reference::{OFFICIAL, pattern as reference_pattern};
pub use reference::{Reference, ReferenceError};

#[cfg(test)]
mod tests;
