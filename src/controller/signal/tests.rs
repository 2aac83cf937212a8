//! Tests of the whole controller `signal` against an in-process API server.

mod changes;
mod deletions;
mod env;
mod failures;
mod leader;
mod limits;
mod manager;
mod restored;
mod runtime;
mod selection;
mod withheld;
