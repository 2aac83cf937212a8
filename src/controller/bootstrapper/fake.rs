//! What the control planes of the tests have in common: what an API server keeps, and how it answers.
//!
//! Deliberately absent: which requests there may be. Each part's tests have a server of their own that fails them at
//! every other one.

pub(in crate::bootstrapper) mod store;
pub(in crate::bootstrapper) mod wire;
