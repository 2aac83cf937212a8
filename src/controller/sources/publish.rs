//! Publishes the sources when a watch reports a change.
//!
//! Invariants: nothing is published before all three sources were observed; the same content is published once. Not in here: the
//! watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use component_base::metrics::{Labels, family};
use component_base::readiness::ReadinessCheck;
use policy::sync::ObjectNames;
use policy::sync::sources::{Document, PullSecret, SourceState, Sources, TrustBundle};
use policy::sync::{Salt, SourceKind};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::Published;

/// Metrics of the sources. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SourceMetrics {
    invalid: Family<Labels<1>, Gauge>,
    deletion_pending: Family<Labels<2>, Gauge>,
    not_found: Family<Labels<2>, Gauge>,
}

impl SourceMetrics {
    /// Registers `source_invalid{source}`, `source_deletion_pending{source,controller}` and
    /// `source_not_found{source,controller}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let invalid = "Whether a source on KCP is invalid (1), so that it is not synchronized; 0 on replicas that do not lead";
        let pending = "Whether a source was deleted on KCP and its copies are kept until the grace period ends (1); 0 on replicas that do not lead";
        let not_found = "Whether a source that a flag names has never existed (1); 0 on replicas that do not lead";
        Self {
            invalid: family(registry, "source_invalid", invalid, ["source"]),
            deletion_pending: family(
                registry,
                "source_deletion_pending",
                pending,
                ["source", "controller"],
            ),
            not_found: family(
                registry,
                "source_not_found",
                not_found,
                ["source", "controller"],
            ),
        }
    }

    fn set(&self, kind: SourceKind, invalid: bool) {
        let labels = [("source", kind.name())];
        self.invalid.get_or_create(&labels).set(invalid.into());
    }

    /// Sets whether the deletion of a source is pending in one controller.
    pub(crate) fn deletion_pending(
        &self,
        kind: SourceKind,
        controller: &'static str,
        pending: bool,
    ) {
        let labels = [("source", kind.name()), ("controller", controller)];
        let gauge = self.deletion_pending.get_or_create(&labels);
        gauge.set(pending.into());
    }

    /// Sets whether a configured source has never existed, from the state of one controller.
    pub(crate) fn not_found(&self, kind: SourceKind, controller: &'static str, not_found: bool) {
        let labels = [("source", kind.name()), ("controller", controller)];
        self.not_found.get_or_create(&labels).set(not_found.into());
    }
}

/// The last state of each source; `None` if it was not observed yet.
#[derive(Default)]
pub(super) struct ObservedSources {
    pub(super) pull_secret: Option<SourceState<Arc<PullSecret>>>,
    pub(super) trust_bundle: Option<SourceState<Arc<TrustBundle>>>,
    pub(super) configuration: Option<SourceState<Arc<Document>>>,
}

impl ObservedSources {
    fn complete(&self, names: &ObjectNames) -> Option<Sources> {
        Some(Sources {
            names: names.clone(),
            pull_secret: self.pull_secret.clone()?,
            trust_bundle: self.trust_bundle.clone()?,
            configuration: self.configuration.clone()?,
        })
    }
}

pub(super) struct Publisher {
    salt: Salt,
    names: ObjectNames,
    seen: Mutex<ObservedSources>,
    sender: watch::Sender<Option<Arc<Sources>>>,
    condition: ReadinessCheck,
    metrics: SourceMetrics,
}

impl Publisher {
    /// Returns a publisher that has not published anything, and the receiver.
    pub(super) fn new(
        salt: Salt,
        names: ObjectNames,
        condition: ReadinessCheck,
        metrics: SourceMetrics,
    ) -> (Self, Published) {
        condition.not_ready("not all sources observed yet");
        let (sender, receiver) = watch::channel(None);
        let publisher = Self {
            salt,
            names,
            seen: Mutex::default(),
            sender,
            condition,
            metrics,
        };
        (publisher, receiver)
    }

    /// Stores the report of a watch, and publishes the sources if a source changed. The salt is for the hash of the content.
    pub(super) fn update(&self, change: impl FnOnce(&mut ObservedSources, &Salt)) {
        let mut seen = self.lock();
        change(&mut seen, &self.salt);
        let Some(sources) = seen.complete(&self.names) else {
            return;
        };
        // Sent under the lock, so that the latest state is published last.
        self.sender.send_if_modified(|published| {
            let changed = changed_sources(published.as_deref(), &sources);
            if !changed.is_empty() {
                self.report(&changed, &sources);
                *published = Some(Arc::new(sources));
            }
            !changed.is_empty()
        });
    }

    fn report(&self, changed: &[SourceKind], sources: &Sources) {
        for kind in changed.iter().filter(|kind| self.is_configured(**kind)) {
            let source = kind.name();
            match sources.get(*kind) {
                SourceState::Invalid(error) => {
                    tracing::error!(source, error, "invalid source, rollout suspended");
                }
                SourceState::Valid(hash) => tracing::info!(source, %hash, "source observed"),
                SourceState::Unmanaged => {
                    tracing::warn!(source, "API of source not served, copies are kept");
                }
                SourceState::Absent => tracing::info!(source, "source absent"),
            }
        }
        let kinds = SourceKind::ALL.into_iter();
        for kind in kinds.filter(|kind| self.is_configured(*kind)) {
            let is_invalid = matches!(sources.get(kind), SourceState::Invalid(_));
            self.metrics.set(kind, is_invalid);
        }
        // A source that is not configured is never invalid.
        match sources.invalid_text() {
            None => self.condition.ready(),
            Some(errors) => self.condition.detail(errors),
        }
    }

    /// Returns whether an operator configured the source. Only configured sources are reported.
    fn is_configured(&self, kind: SourceKind) -> bool {
        self.names.get(kind).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ObservedSources> {
        // No code path panics while it holds the lock, and the value is always valid.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another replica may be the leader afterwards, and then only its values are current.
impl Drop for Publisher {
    fn drop(&mut self) {
        self.condition.remove();
        let kinds = SourceKind::ALL.into_iter();
        for kind in kinds.filter(|kind| self.is_configured(*kind)) {
            self.metrics.set(kind, false);
        }
    }
}

/// Returns the sources whose content or error changed.
fn changed_sources(before: Option<&Sources>, now: &Sources) -> Vec<SourceKind> {
    let differs =
        |kind: &SourceKind| before.is_none_or(|before| before.get(*kind) != now.get(*kind));
    SourceKind::ALL.into_iter().filter(differs).collect()
}
