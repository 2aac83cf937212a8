//! Golden tables for every decision, then properties against interpreters: of a runtime's API server, and of a manager
//! that takes signals when it likes.

mod api_server;
mod compatibility;
mod content;
mod differs;
mod identity;
mod install;
mod leave;
mod plan;
mod properties;

mod signal;
mod status;
mod waves;
