//! Golden tables for every decision, and properties against interpreters: of the API server of a runtime, and of a
//! KIM that acknowledges signals at any time.

mod access;
mod additional;
mod adoption;
mod api_server;
mod apply;
mod blocked;
mod compatibility;
mod content;
mod deleted;
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
