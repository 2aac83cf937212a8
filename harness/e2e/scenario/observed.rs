//! What a scenario has sent and seen: the only memory that its steps share.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::ObjectRef;
use crate::client::{Answer, Write};

/// What a scenario has sent and seen. Objects have their names on the cluster.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Objects that steps describe and no step has sent yet, or the last text that was sent.
    pub(crate) described: BTreeMap<ObjectRef, Value>,
    /// Last request that wrote an object.
    pub(crate) written: BTreeMap<ObjectRef, (Answer, Write)>,
    /// Objects as they were before the step that changed or compared them.
    pub(crate) before: BTreeMap<ObjectRef, Value>,
    /// Last answer to any request of a step.
    pub(crate) last: Option<Answer>,
    /// Numbers and texts of one step for a later one, by a name.
    noted: BTreeMap<&'static str, Value>,
}

impl Observed {
    pub(crate) fn wrote(&mut self, object: &ObjectRef, answer: Answer, how: Write) {
        self.last = Some(answer.clone());
        self.written.insert(object.clone(), (answer, how));
    }

    pub(crate) fn last(&self) -> Result<&Answer> {
        self.last.as_ref().context("no request was sent")
    }

    pub(crate) fn note(&mut self, name: &'static str, value: Value) {
        self.noted.insert(name, value);
    }

    pub(crate) fn noted(&self, name: &'static str) -> Result<&Value> {
        let noted = self.noted.get(name);
        noted.with_context(|| format!("no earlier step noted the {name}"))
    }
}
