//! One function a role: reads like a parts list, and decides nothing.

pub(crate) mod controller;
pub(crate) mod watcher;
pub(crate) mod webhook;
