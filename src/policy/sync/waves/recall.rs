//! What a rollout leaves to the next leader or the next rollout, and how that goes on with it.
//!
//! Invariant: a member that was written to and is lost counts as failed, whoever wrote to it.

use super::{Rollout, State};

impl Rollout {
    /// Members that an earlier leader or an earlier rollout saw fail: those that wait here, or cannot be reached, have
    /// begun there, and count against the budget until they arrive. Of the others something newer is known.
    pub fn recall<'a>(&mut self, failed: impl IntoIterator<Item = &'a str>) {
        for name in failed {
            if matches!(self.state(name), Some(State::Waiting | State::Unreachable)) {
                self.put(name, State::Failed);
                self.written.insert(name.to_owned());
            }
        }
    }

    /// Members to which an earlier leader or an earlier rollout wrote, and which had neither arrived nor failed there. Who
    /// waits here fails if it cannot be reached; who cannot be reached has failed. Of the others something newer is known.
    pub fn recall_written<'a>(&mut self, written: impl IntoIterator<Item = &'a str>) {
        for name in written {
            match self.state(name) {
                Some(State::Waiting) => {
                    self.written.insert(name.to_owned());
                }
                Some(State::Unreachable) => self.recall([name]),
                _ => {}
            }
        }
    }

    /// Members that failed, by name.
    pub fn failed(&self) -> impl Iterator<Item = &str> {
        self.failed.iter().map(String::as_str)
    }

    /// Members to which something was written, and which have neither arrived nor failed, by name.
    pub fn written(&self) -> impl Iterator<Item = &str> {
        self.written.difference(&self.failed).map(String::as_str)
    }
}
