//! What was said about a runtime, in little room.
//!
//! Thousands of runtimes that are well have statuses that differ in ids and times alone. Invariant: what is opened is
//! what was closed. Deliberately absent: statuses of runtimes in trouble in little room; each has words of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use api::bootstrapper::RuntimeBootstrapperStatus;

/// Kinds of statuses that are remembered, the last used. More than there are in a sweep over runtimes that are well.
const SHAPES: usize = 8;

/// Stands in no id and in no time; a status in which it does is kept as it is.
const BETWEEN: char = '\n';

/// A status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    shape: Arc<RuntimeBootstrapperStatus>,
    /// Ids and times, in the order of [`own`].
    own: Arc<str>,
}

impl Said {
    /// The whole status.
    pub(super) fn open(&self) -> RuntimeBootstrapperStatus {
        let mut status = RuntimeBootstrapperStatus::clone(&self.shape);
        if !self.own.is_empty() {
            for (place, text) in own(&mut status).zip(self.own.split(BETWEEN)) {
                text.clone_into(place);
            }
        }
        status
    }

    /// The status; ids and times may be empty texts.
    pub(super) fn shape(&self) -> &RuntimeBootstrapperStatus {
        &self.shape
    }
}

/// Closes statuses.
#[derive(Default)]
pub(super) struct Shapes(VecDeque<Arc<RuntimeBootstrapperStatus>>);

impl Shapes {
    /// A status in as little room as those before it allow.
    pub(super) fn close(&mut self, mut status: RuntimeBootstrapperStatus) -> Said {
        if own(&mut status).any(|it| it.contains(BETWEEN)) {
            return Said {
                shape: Arc::new(status),
                own: Arc::default(),
            };
        }
        let parts: Vec<String> = own(&mut status).map(std::mem::take).collect();
        Said {
            shape: self.shape(status),
            own: parts.join("\n").into(),
        }
    }

    fn shape(&mut self, status: RuntimeBootstrapperStatus) -> Arc<RuntimeBootstrapperStatus> {
        let known = self.0.iter().position(|it| **it == status);
        let shape = known
            .and_then(|at| self.0.remove(at))
            .unwrap_or_else(|| Arc::new(status));
        self.0.push_front(Arc::clone(&shape));
        self.0.truncate(SHAPES);
        shape
    }
}

/// What is a runtime's own.
fn own(status: &mut RuntimeBootstrapperStatus) -> impl Iterator<Item = &mut String> {
    let RuntimeBootstrapperStatus {
        observed_generation: _,
        conditions,
        runtime_id,
        cluster_id,
        content,
        webhook: _,
    } = status;
    let ids = runtime_id.iter_mut().chain(cluster_id);
    let time = content.iter_mut().filter_map(|it| it.time.as_mut());
    let times = conditions.iter_mut().map(|it| &mut it.last_transition_time);
    ids.chain(time).chain(times)
}

#[cfg(test)]
mod tests {
    use api::bootstrapper::{Condition, ConditionStatus, READY, SynchronizedContent};
    use rstest::rstest;

    use super::*;

    fn status(id: &str, time: &str) -> RuntimeBootstrapperStatus {
        RuntimeBootstrapperStatus {
            observed_generation: Some(1),
            conditions: vec![Condition {
                kind: READY.to_owned(),
                status: ConditionStatus::True,
                observed_generation: Some(1),
                last_transition_time: time.to_owned(),
                reason: "Ready".to_owned(),
                message: String::new(),
            }],
            runtime_id: Some(id.to_owned()),
            cluster_id: Some(format!("cluster-{id}")),
            content: Some(SynchronizedContent {
                time: Some(time.to_owned()),
                version: Some("v".to_owned()),
                ..SynchronizedContent::default()
            }),
            webhook: None,
        }
    }

    fn nobody() -> RuntimeBootstrapperStatus {
        RuntimeBootstrapperStatus {
            runtime_id: None,
            cluster_id: None,
            content: None,
            ..status("", "t")
        }
    }

    #[rstest]
    #[case::usual(status("a", "2026-01-01T00:00:00Z"))]
    #[case::empty_texts(status("", ""))]
    #[case::no_ids(nobody())]
    #[case::nothing(RuntimeBootstrapperStatus::default())]
    #[case::a_hostile_id(status("a\nb\n", "t"))]
    fn what_is_opened_is_what_was_closed(#[case] status: RuntimeBootstrapperStatus) {
        let said = Shapes::default().close(status.clone());
        assert_eq!(said.open(), status);
    }

    #[test]
    fn statuses_that_differ_in_ids_and_times_share_their_words() {
        let mut shapes = Shapes::default();
        let one = shapes.close(status("a", "t1"));
        let other = shapes.close(status("b", "t2"));
        assert!(Arc::ptr_eq(&one.shape, &other.shape));
        assert_ne!(one, other);
        let mut troubled = status("c", "t3");
        troubled.conditions[0].status = ConditionStatus::False;
        let troubled = shapes.close(troubled);
        assert!(!Arc::ptr_eq(&one.shape, &troubled.shape));
    }

    #[test]
    fn no_more_shapes_are_remembered_than_are_of_use() {
        let mut shapes = Shapes::default();
        for number in 0..100 {
            let mut status = status("a", "t");
            status.observed_generation = Some(number);
            shapes.close(status);
        }
        assert_eq!(shapes.0.len(), SHAPES);
    }
}
