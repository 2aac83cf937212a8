//! What a scenario has sent and seen: the only memory that its steps share.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde_json::Value;

use super::ObjectRef;
use crate::client::{Answer, Write};

/// What a scenario has sent and seen. Objects have their names on the cluster.
#[derive(Debug, Default)]
pub struct Observed {
    /// Objects that steps describe and no step has sent yet, or the last text that was sent.
    pub described: BTreeMap<ObjectRef, Value>,
    /// Last request that wrote an object.
    pub written: BTreeMap<ObjectRef, Written>,
    /// Objects as they were before the step that changed or compared them.
    pub before: BTreeMap<ObjectRef, Value>,
    /// Last answer to any request of a step.
    pub last: Option<Answer>,
    /// Numbers and texts of one step for a later one, by a name.
    pub noted: BTreeMap<&'static str, Value>,
}

/// A request that wrote an object.
#[derive(Debug)]
pub struct Written {
    /// The answer.
    pub answer: Answer,
    /// The kind of request.
    pub how: Write,
}

impl Observed {
    /// Keeps the answer to a write.
    pub fn wrote(&mut self, object: &ObjectRef, answer: Answer, how: Write) {
        self.last = Some(answer.clone());
        self.written.insert(object.clone(), Written { answer, how });
    }

    /// The object as the last write left it.
    ///
    /// # Errors
    /// When the scenario did not write it.
    pub fn object(&self, object: &ObjectRef) -> anyhow::Result<&Answer> {
        let written = self.written.get(object);
        written
            .map(|written| &written.answer)
            .with_context(|| format!("{object} was not written by this scenario"))
    }

    /// The last answer.
    ///
    /// # Errors
    /// When no step has sent a request.
    pub fn last(&self) -> anyhow::Result<&Answer> {
        self.last.as_ref().context("no request was sent")
    }

    /// What an earlier step noted.
    ///
    /// # Errors
    /// When it did not.
    pub fn noted(&self, name: &'static str) -> anyhow::Result<&Value> {
        self.noted
            .get(name)
            .with_context(|| format!("no earlier step noted the {name}"))
    }
}
