//! Step definitions of all suites. `features/README.md` lists them; the test `vocabulary` compares the two.
//!
//! `Given` is a state, `When` is an event, and `Then` is an observable result. `Then` waits if a state takes time; "is not",
//! "does not" and "remains" check a state for a period.
#![expect(
    clippy::needless_pass_by_value,
    reason = "cucumber hands captures over by value"
)]

pub(crate) mod object;
pub(crate) mod observation;
pub(crate) mod pod;
mod webhook;

#[cfg(feature = "clusters")]
mod component;
#[cfg(feature = "clusters")]
mod conformance;
#[cfg(feature = "clusters")]
mod controller;
#[cfg(feature = "clusters")]
mod disturbance;
#[cfg(feature = "clusters")]
mod event;
#[cfg(feature = "clusters")]
mod flow;
#[cfg(feature = "clusters")]
mod node;
#[cfg(feature = "clusters")]
mod runtime;
#[cfg(feature = "clusters")]
mod runtime_cluster;
#[cfg(feature = "clusters")]
pub(crate) mod source;
#[cfg(feature = "clusters")]
mod tls;
#[cfg(feature = "clusters")]
mod watcher;

/// Imports of most step definitions.
mod prelude {
    pub(super) use super::object::{create, document, existing, file_of_project, pair};
    pub(super) use super::object::{remove_fields, restore_later};
    pub(super) use super::observation::{content, expect};
    pub(super) use super::pod::{named, plain};
    pub(super) use super::{A_WHILE, check, consistently, equal, eventually, random};
    pub(super) use crate::scenario::{ObjectRef, Scenario};
    pub(super) use anyhow::{Context as _, bail, ensure};
    pub(super) use cucumber::gherkin::Step;
    pub(super) use cucumber::{given, then, when};
    pub(super) use http::Method;
    pub(super) use serde_json::{Value, json};
    pub(super) use std::time::Duration;
    pub(super) use testkit::client::{Client, Write};
    pub(super) use testkit::json::{items, text};

    #[cfg(feature = "clusters")]
    pub(super) use super::{
        object::{at, change},
        observation::has_all,
        runtime::{later, record, synchronization},
        webhook::webhook,
    };
    #[cfg(feature = "clusters")]
    pub(super) use crate::{
        admission::Admission, synchronization::Leased, synchronization::source::Source,
        watching::View,
    };

    /// Result of a step, which has no value by default.
    pub(super) type Result<T = ()> = anyhow::Result<T>;
}

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::until::{holds, until};
use tokio::task::JoinHandle;

/// Time limit for an expected state, for a machine with two processors that runs three suites.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);
/// Period during which a check that nothing happens observes a state.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);

/// Waits until a probe succeeds, and returns its value. The error contains the last result of the probe.
pub(crate) async fn eventually<T>(what: &str, probe: impl AsyncFn() -> Result<T>) -> Result<T> {
    let probe = &probe;
    Ok(until(what, PATIENCE, move || probe()).await?)
}

/// Fails unless a probe succeeds during the whole period.
pub(crate) async fn consistently<T>(
    what: &str,
    span: Duration,
    probe: impl AsyncFn() -> Result<T>,
) -> Result<()> {
    let probe = &probe;
    Ok(holds(what, span, move || probe()).await?)
}

/// A task that runs until [`Stream::end`].
pub(crate) struct Stream<T> {
    over: Arc<AtomicBool>,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Stream<T> {
    /// Starts the task. The task must end when the flag is set.
    pub(crate) fn spawn<F>(work: impl FnOnce(Arc<AtomicBool>) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let over = Arc::default();
        let task = tokio::spawn(work(Arc::clone(&over)));
        Self { over, task }
    }

    pub(crate) async fn end(self) -> Result<T> {
        self.over.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }

    pub(crate) fn abort(self) {
        self.task.abort();
    }
}

/// Returns an error with the observed value, unless it is as expected.
pub(crate) fn check(is_expected: bool, seen: impl Display) -> Result<()> {
    ensure!(is_expected, "{seen}");
    Ok(())
}

/// Returns an error with both values, unless they are equal.
pub(crate) fn equal<T: PartialEq + Display>(expected: &T, seen: &T) -> Result<()> {
    let both = format!("expected {expected}\nseen     {seen}");
    check(expected == seen, both)
}

/// Returns sixteen hexadecimal digits, for names and values that are unique among scenarios.
pub(crate) fn random() -> String {
    format!("{:016x}", fastrand::u64(..))
}
