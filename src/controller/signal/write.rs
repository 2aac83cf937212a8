//! Writes of Runtimes: merge patches of the metadata, and backoff after failures.
//!
//! A patch contains the keys and the annotation of the controller only, so it needs no precondition and can be repeated.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::telemetry::error_chain;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::Patch;
use policy::sync::signal::Step;
use serde_json::Value;
use tokio::time::Instant;

use super::SignalMetrics;
use super::pace::RETRY;
use crate::inventory::RuntimeView;
use crate::requests::patching;

/// Maximum number of concurrent writes.
pub(super) const MAX_IN_FLIGHT: usize = 16;

/// The longest delay that an API server can require.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

/// Consecutive failed writes of a Runtime.
struct Failures {
    count: u32,
    reason: &'static str,
    retry_at: Instant,
}

/// A write, with the step that it carries out.
pub(super) struct Write {
    pub(super) name: Arc<str>,
    pub(super) step: Step,
    pub(super) patch: Value,
}

/// A write and its result: the metadata of the Runtime.
pub(super) type Finished = (Write, Result<ObjectMeta, kube::Error>);

/// The writer; see the module.
pub(super) struct Writer {
    api: Api<RuntimeView>,
    metrics: SignalMetrics,
    writes: FuturesUnordered<BoxFuture<'static, Finished>>,
    in_flight: HashSet<Arc<str>>,
    failures: HashMap<Arc<str>, Failures>,
}

impl Writer {
    pub(super) fn new(api: Api<RuntimeView>, metrics: SignalMetrics) -> Self {
        Self {
            api,
            metrics,
            writes: FuturesUnordered::new(),
            in_flight: HashSet::new(),
            failures: HashMap::new(),
        }
    }

    /// Returns whether another write may start.
    pub(super) fn has_capacity(&self) -> bool {
        self.writes.len() < MAX_IN_FLIGHT
    }

    pub(super) fn is_writing(&self, name: &str) -> bool {
        self.in_flight.contains(name)
    }

    /// Returns the time at which a Runtime may be written again after a failure.
    pub(super) fn retry_at(&self, name: &str) -> Option<Instant> {
        self.failures.get(name).map(|it| it.retry_at)
    }

    /// Drops failures of Runtimes that need no write.
    pub(super) fn retain(&mut self, needs_write: impl Fn(&str) -> bool) {
        self.failures.retain(|name, _| needs_write(name));
    }

    pub(super) fn start(&mut self, write: Write) {
        self.in_flight.insert(write.name.clone());
        let api = self.api.clone();
        self.writes.push(Box::pin(async move {
            let patch = Patch::Merge(&write.patch);
            let written = api.patch_metadata(&write.name, &patching(), &patch).await;
            (write, written.map(|it| it.metadata))
        }));
    }

    /// Waits for the next write that ends; `None` if no write is in flight.
    pub(super) async fn next(&mut self) -> Option<Finished> {
        let finished = self.writes.next().await?;
        self.in_flight.remove(&finished.0.name);
        Some(finished)
    }

    /// Counts a successful write.
    pub(super) fn succeeded(&mut self, write: &Write) {
        self.metrics.wrote(match write.step {
            Step::Signal => "set",
            Step::MarkStale => "mark_stale",
            Step::RemoveLeftover | Step::Withdraw | Step::Nothing | Step::Wait => "remove",
        });
        // A signal without effect is marked as stale, and is retried after the pause.
        if write.step != Step::MarkStale && self.failures.remove(&write.name).is_some() {
            tracing::info!(runtime = &*write.name, "signal write recovered");
        }
    }

    /// Counts a write that failed. Without an error, an admission plugin removed the keys. The write is retried after
    /// a backoff, as long as the Runtime needs it.
    pub(super) fn failed(&mut self, name: &Arc<str>, error: Option<&kube::Error>) {
        let reason = error.map_or("ineffective", reason);
        self.metrics.failed(reason);
        // Failures with the same reason on many Runtimes are logged once.
        let is_known = self.failures.values().any(|it| it.reason == reason);
        if !is_known && !matches!(reason, "gone" | "conflict" | "throttled") {
            let error = error.map(|it| error_chain(it));
            tracing::warn!(runtime = &**name, reason, error, "failed to signal runtime");
        }
        let count = self.failures.get(name).map_or(0, |it| it.count);
        let requested = match error {
            Some(kube::Error::Api(status)) => status.details.as_ref(),
            _ => None,
        };
        let requested = requested.map_or(0, |it| it.retry_after_seconds);
        let requested = Duration::from_secs(requested.into()).min(MAX_RETRY_AFTER);
        let backoff = RETRY.delay(count, fastrand::u64(..));
        let failures = Failures {
            count: count.saturating_add(1),
            reason,
            retry_at: Instant::now() + backoff.max(requested),
        };
        self.failures.insert(name.clone(), failures);
    }
}

/// Returns the reason for metrics.
fn reason(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match status.code {
            403 => "forbidden",
            404 => "gone",
            409 => "conflict",
            429 => "throttled",
            500.. => "server",
            _ => "refused",
        },
        kube::Error::SerdeError(_) => "unreadable",
        _ => "transport",
    }
}
