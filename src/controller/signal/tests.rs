//! The whole signal against an API server.

mod changes;
mod deletions;
mod env;
mod failures;
mod leader;
mod limits;
mod manager;
mod runtime;
mod selection;
mod withheld;
