//! What is known about thousands of runtimes, in little room: their resources, and what was said about them.
//!
//! Runtimes that are well have resources and statuses that differ in ids, versions and times alone. A status is written
//! about each, and comes back by the watch with its resource: what is then kept is one small text, so that memory does
//! not fray. Invariant: what is opened is what was closed. Deliberately absent: those in trouble in little room; each has
//! words of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use api::bootstrapper::{RuntimeBootstrapper, RuntimeBootstrapperStatus};

/// InternPool that are remembered, the last used. More than there are in a sweep over runtimes that are well.
const SHAPES: usize = 8;

/// Stands in no id, version or time; where it does, everything is kept as it is.
const BETWEEN: char = '\n';

/// What many have in common, and some texts that they have not.
pub(super) trait Common: Clone + PartialEq {
    /// What is a runtime's own.
    fn own(&mut self) -> impl Iterator<Item = &mut String>;
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interned<T> {
    shape: Arc<T>,
    /// In the order of [`Common::own`].
    own: Arc<str>,
}

/// A status.
pub(super) type CompactStatus = Interned<RuntimeBootstrapperStatus>;

impl<T: Common> Interned<T> {
    /// The whole.
    pub(super) fn open(&self) -> T {
        let mut whole = T::clone(&self.shape);
        if !self.own.is_empty() {
            for (place, text) in whole.own().zip(self.own.split(BETWEEN)) {
                text.clone_into(place);
            }
        }
        whole
    }

    /// The whole, but that what is a runtime's own may be empty texts.
    pub(super) fn shape(&self) -> &T {
        &self.shape
    }
}

impl Interned<RuntimeBootstrapper> {
    /// Its uid, without opening the whole: every end of a pass asks for it.
    pub(super) fn uid(&self) -> Option<&str> {
        let metadata = &self.shape.metadata;
        let shared = metadata.uid.as_deref()?;
        if self.own.is_empty() {
            return Some(shared);
        }
        let before = usize::from(metadata.name.is_some());
        self.own.split(BETWEEN).nth(before)
    }
}

/// Makes things little.
pub(super) struct InternPool<T>(VecDeque<Arc<T>>);

impl<T> Default for InternPool<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Common> InternPool<T> {
    /// In as little room as those before it allow.
    pub(super) fn close(&mut self, mut whole: T) -> Interned<T> {
        if whole.own().any(|it| it.contains(BETWEEN)) {
            return Interned {
                shape: Arc::new(whole),
                own: Arc::default(),
            };
        }
        let parts: Vec<String> = whole.own().map(std::mem::take).collect();
        Interned {
            shape: self.shape(whole),
            own: parts.join("\n").into(),
        }
    }

    fn shape(&mut self, whole: T) -> Arc<T> {
        let known = self.0.iter().position(|it| **it == whole);
        let shape = known
            .and_then(|at| self.0.remove(at))
            .unwrap_or_else(|| Arc::new(whole));
        self.0.push_front(Arc::clone(&shape));
        self.0.truncate(SHAPES);
        shape
    }
}

impl Common for RuntimeBootstrapperStatus {
    fn own(&mut self) -> impl Iterator<Item = &mut String> {
        let Self {
            observed_generation: _,
            conditions,
            runtime_id,
            cluster_uid,
            configuration,
            webhook: _,
        } = self;
        let ids = runtime_id.iter_mut().chain(cluster_uid);
        let time = configuration
            .iter_mut()
            .filter_map(|it| it.last_update_time.as_mut());
        let times = conditions.iter_mut().map(|it| &mut it.last_transition_time);
        ids.chain(time).chain(times)
    }
}

impl Common for RuntimeBootstrapper {
    fn own(&mut self) -> impl Iterator<Item = &mut String> {
        let metadata = &mut self.metadata;
        let ids = metadata.name.iter_mut().chain(&mut metadata.uid);
        ids.chain(&mut metadata.resource_version)
    }
}

#[cfg(test)]
mod tests {
    use api::bootstrapper::{
        Condition, ConditionStatus, ConfigurationStatus, READY, RuntimeBootstrapperSpec,
    };
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
            cluster_uid: Some(format!("cluster-{id}")),
            configuration: Some(ConfigurationStatus {
                last_update_time: Some(time.to_owned()),
                revision: Some("v".to_owned()),
                ..ConfigurationStatus::default()
            }),
            webhook: None,
        }
    }

    fn resource(name: &str, uid: Option<&str>, version: &str) -> RuntimeBootstrapper {
        let mut resource = RuntimeBootstrapper::new(name, RuntimeBootstrapperSpec::default());
        resource.metadata.uid = uid.map(str::to_owned);
        resource.metadata.resource_version = Some(version.to_owned());
        resource
    }

    fn nobody() -> RuntimeBootstrapperStatus {
        RuntimeBootstrapperStatus {
            runtime_id: None,
            cluster_uid: None,
            configuration: None,
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
        let said = InternPool::default().close(status.clone());
        assert_eq!(said.open(), status);
    }

    #[rstest]
    #[case::usual("a", Some("u"), "7")]
    #[case::not_stored_yet("a", None, "")]
    #[case::a_hostile_version("a", Some("u"), "1\n2")]
    fn a_resource_comes_out_as_it_went_in(
        #[case] name: &str,
        #[case] uid: Option<&str>,
        #[case] version: &str,
    ) {
        let resource = resource(name, uid, version);
        let little = InternPool::default().close(resource.clone());
        assert_eq!(little.open(), resource);
        assert_eq!(little.uid(), uid);
    }

    #[test]
    fn resources_that_differ_in_ids_and_versions_share_the_rest() {
        let mut shapes = InternPool::default();
        let one = shapes.close(resource("a", Some("u"), "1"));
        let other = shapes.close(resource("b", Some("v"), "2"));
        assert!(Arc::ptr_eq(&one.shape, &other.shape));
        let mut paused = resource("c", Some("w"), "3");
        paused.spec.paused = true;
        assert!(!Arc::ptr_eq(&one.shape, &shapes.close(paused).shape));
    }

    #[test]
    fn statuses_that_differ_in_ids_and_times_share_their_words() {
        let mut shapes = InternPool::default();
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
        let mut shapes = InternPool::default();
        for number in 0..100 {
            let mut status = status("a", "t");
            status.observed_generation = Some(number);
            shapes.close(status);
        }
        assert_eq!(shapes.0.len(), SHAPES);
    }
}
