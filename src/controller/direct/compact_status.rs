//! Stores the resources and the last statuses of thousands of runtimes in little memory.
//!
//! Resources and statuses of healthy runtimes differ only in IDs, versions and times. Each value is stored as a
//! shared value (`shape`) and one string with the texts that are unique to the runtime, which also avoids
//! fragmentation of the memory. Invariant: `expand` returns the value that was passed to `intern`. Failing runtimes
//! have individual messages and share little.

use std::collections::VecDeque;
use std::sync::Arc;

use api::bootstrapper::{RuntimeBootstrapper, RuntimeBootstrapperStatus};

/// Number of recently used shapes that are kept. It exceeds the number of shapes that occur while all runtimes are healthy.
const MAX_SHAPES: usize = 8;

/// Separator of unique texts. It does not occur in valid IDs, versions and times. A value that contains it is stored
/// without sharing.
const SEPARATOR: char = '\n';

/// A value that consists of texts that are unique to a runtime, and of content that is common to many runtimes.
pub(super) trait Internable: Clone + PartialEq {
    /// Returns the texts that are unique to a runtime.
    fn unique(&mut self) -> impl Iterator<Item = &mut String>;
}

/// A value that shares its common content with other values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interned<T> {
    shape: Arc<T>,
    /// The unique texts, in the order of [`Internable::unique`]; empty if they are in `shape`.
    unique: Arc<str>,
}

/// A compact status.
pub(super) type CompactStatus = Interned<RuntimeBootstrapperStatus>;

impl<T: Internable> Interned<T> {
    /// Returns the complete value.
    pub(super) fn expand(&self) -> T {
        let mut value = T::clone(&self.shape);
        if !self.unique.is_empty() {
            for (target, text) in value.unique().zip(self.unique.split(SEPARATOR)) {
                text.clone_into(target);
            }
        }
        value
    }

    /// Returns the common content. Its unique texts may be empty.
    pub(super) fn shape(&self) -> &T {
        &self.shape
    }
}

impl Interned<RuntimeBootstrapper> {
    /// Returns the UID without expanding the value, because every result of a reconcile needs the UID.
    pub(super) fn uid(&self) -> Option<&str> {
        let metadata = &self.shape.metadata;
        let shared = metadata.uid.as_deref()?;
        if self.unique.is_empty() {
            return Some(shared);
        }
        let before = usize::from(metadata.name.is_some());
        self.unique.split(SEPARATOR).nth(before)
    }
}

/// Pool of the most recently used shapes.
pub(super) struct InternPool<T>(VecDeque<Arc<T>>);

impl<T> Default for InternPool<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Internable> InternPool<T> {
    /// Stores a value. Shares the shape with an earlier value of the same shape.
    pub(super) fn intern(&mut self, mut value: T) -> Interned<T> {
        if value.unique().any(|it| it.contains(SEPARATOR)) {
            return Interned {
                shape: Arc::new(value),
                unique: Arc::default(),
            };
        }
        let parts: Vec<String> = value.unique().map(std::mem::take).collect();
        Interned {
            shape: self.shape(value),
            unique: parts.join("\n").into(),
        }
    }

    fn shape(&mut self, value: T) -> Arc<T> {
        let known = self.0.iter().position(|it| **it == value);
        let shape = known
            .and_then(|at| self.0.remove(at))
            .unwrap_or_else(|| Arc::new(value));
        self.0.push_front(Arc::clone(&shape));
        self.0.truncate(MAX_SHAPES);
        shape
    }
}

impl Internable for RuntimeBootstrapperStatus {
    fn unique(&mut self) -> impl Iterator<Item = &mut String> {
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

impl Internable for RuntimeBootstrapper {
    fn unique(&mut self) -> impl Iterator<Item = &mut String> {
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

    fn without_ids() -> RuntimeBootstrapperStatus {
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
    #[case::no_ids(without_ids())]
    #[case::nothing(RuntimeBootstrapperStatus::default())]
    #[case::separator_in_id(status("a\nb\n", "t"))]
    fn expanding_an_interned_status_returns_it(#[case] status: RuntimeBootstrapperStatus) {
        let interned = InternPool::default().intern(status.clone());
        assert_eq!(interned.expand(), status);
    }

    #[rstest]
    #[case::usual("a", Some("u"), "7")]
    #[case::not_stored_yet("a", None, "")]
    #[case::separator_in_version("a", Some("u"), "1\n2")]
    fn expanding_an_interned_resource_returns_it(
        #[case] name: &str,
        #[case] uid: Option<&str>,
        #[case] version: &str,
    ) {
        let resource = resource(name, uid, version);
        let interned = InternPool::default().intern(resource.clone());
        assert_eq!(interned.expand(), resource);
        assert_eq!(interned.uid(), uid);
    }

    #[test]
    fn resources_that_differ_in_ids_and_versions_share_a_shape() {
        let mut pool = InternPool::default();
        let one = pool.intern(resource("a", Some("u"), "1"));
        let other = pool.intern(resource("b", Some("v"), "2"));
        assert!(Arc::ptr_eq(&one.shape, &other.shape));
        let mut paused = resource("c", Some("w"), "3");
        paused.spec.paused = true;
        assert!(!Arc::ptr_eq(&one.shape, &pool.intern(paused).shape));
    }

    #[test]
    fn statuses_that_differ_in_ids_and_times_share_a_shape() {
        let mut pool = InternPool::default();
        let one = pool.intern(status("a", "t1"));
        let other = pool.intern(status("b", "t2"));
        assert!(Arc::ptr_eq(&one.shape, &other.shape));
        assert_ne!(one, other);
        let mut failing = status("c", "t3");
        failing.conditions[0].status = ConditionStatus::False;
        let failing = pool.intern(failing);
        assert!(!Arc::ptr_eq(&one.shape, &failing.shape));
    }

    #[test]
    fn pool_keeps_a_limited_number_of_shapes() {
        let mut pool = InternPool::default();
        for number in 0..100 {
            let mut status = status("a", "t");
            status.observed_generation = Some(number);
            pool.intern(status);
        }
        assert_eq!(pool.0.len(), MAX_SHAPES);
    }
}
