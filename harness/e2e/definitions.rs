//! Step definitions of all suites. `features/README.md` lists them; the test `vocabulary` compares the two.
//!
//! `Given` is a state, `When` the one event, `Then` what can be seen from outside. `Then` waits where a state takes time;
//! "is not", "does not" and "remains" look at a state for a while.
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

/// What most step definitions need.
mod prelude {
    pub(super) use super::object::{create, document, existing, file_of_project, pair};
    pub(super) use super::object::{remove_fields, restore_later};
    pub(super) use super::observation::{content, expect};
    pub(super) use super::pod::{named, plain};
    pub(super) use super::{A_WHILE, check, consistently, equal, eventually, random};
    pub(super) use crate::client::{Client, Write};
    pub(super) use crate::scenario::{ObjectRef, Scenario};
    pub(super) use anyhow::{Context as _, bail, ensure};
    pub(super) use cucumber::gherkin::Step;
    pub(super) use cucumber::{given, then, when};
    pub(super) use http::Method;
    pub(super) use serde_json::{Value, json};
    pub(super) use std::time::Duration;
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

    /// Steps give nothing.
    pub(super) type Result<T = ()> = anyhow::Result<T>;
}

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::until::{holds, until};
use tokio::task::JoinHandle;

/// Longest wait for anything that a scenario expects: for a machine with two processors on which three suites run.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);
/// How long "nothing happens" is looked at.
pub(crate) const A_WHILE: Duration = Duration::from_secs(2);

/// Waits until a probe succeeds, and gives its value. The error has what the probe saw last.
pub(crate) async fn eventually<T>(what: &str, probe: impl AsyncFn() -> Result<T>) -> Result<T> {
    let probe = &probe;
    Ok(until(what, PATIENCE, move || probe()).await?)
}

/// Fails unless a probe succeeds during a whole span.
pub(crate) async fn consistently<T>(
    what: &str,
    span: Duration,
    probe: impl AsyncFn() -> Result<T>,
) -> Result<()> {
    let probe = &probe;
    Ok(holds(what, span, move || probe()).await?)
}

/// Work in a task until its end.
pub(crate) struct Stream<T> {
    over: Arc<AtomicBool>,
    task: JoinHandle<T>,
}

impl<T: Send + 'static> Stream<T> {
    /// The work looks at the flag whether it is over.
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

/// An error with what was seen, unless it is as expected.
pub(crate) fn check(is_expected: bool, seen: impl Display) -> Result<()> {
    ensure!(is_expected, "{seen}");
    Ok(())
}

/// An error with both, unless they are equal.
pub(crate) fn equal<T: PartialEq + Display>(expected: &T, seen: &T) -> Result<()> {
    let both = format!("expected {expected}\nseen     {seen}");
    check(expected == seen, both)
}

/// Sixteen hexadecimal digits, for names and values that no other scenario has.
pub(crate) fn random() -> String {
    format!("{:016x}", fastrand::u64(..))
}
