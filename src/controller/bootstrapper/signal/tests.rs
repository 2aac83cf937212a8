//! The whole signal against an API server.

mod changes;
mod deletions;
mod failures;
pub(in crate::bootstrapper) mod kcp;
mod leader;
mod manager;
mod withheld;
mod world;
