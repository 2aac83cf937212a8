//! Golden tables for every decision, then properties against interpreters: of a runtime's API server, and of a manager
//! that takes signals when it likes.

mod adoption;
mod api_server;
mod apply;
mod blocked;
mod compatibility;
mod content;
mod desired;
mod differs;
mod held;
mod identity;
mod install;
mod inventory;
mod known;
mod leave;
mod plan;
mod properties;
mod rollout;
mod samples;
mod scheduler;
mod signal;
mod status;
mod watcher;
