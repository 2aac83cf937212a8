//! Validates what the three watches report, and publishes it when it changes.
//!
//! Invariants: nothing is published before all three sources were observed; the same content is published once. Not in here: the
//! watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use component_base::metrics::{Labels, register};
use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use policy::sync::sources::{
    ConfigMapView, SourceState, SourceSummary, Sources, read_configuration, read_pull_secret,
    read_trust_bundle,
};
use policy::sync::{Salt, SourceKind};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::objects::{BundleObject, Data, SecretObject};
use super::{Published, SourceNames};

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
        let invalid = "Whether a source on KCP is invalid (1), so that it is not synchronized";
        let pending = "Whether a source was deleted on KCP and its copies are kept until the grace period ends (1); 0 on replicas that do not lead";
        let not_found = "Whether a source that a flag names has never existed (1); 0 on replicas that do not lead";
        Self {
            invalid: register(registry, "source_invalid", invalid),
            deletion_pending: register(registry, "source_deletion_pending", pending),
            not_found: register(registry, "source_not_found", not_found),
        }
    }

    /// Creates one series in each family, for the generated reference.
    pub fn create_series(&self) {
        let labels = [("source", ""), ("controller", "")];
        drop(self.invalid.get_or_create(&[("source", "")]));
        drop(self.deletion_pending.get_or_create(&labels));
        drop(self.not_found.get_or_create(&labels));
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

    /// Sets whether a configured source has never existed, as one controller sees it.
    pub(crate) fn not_found(&self, kind: SourceKind, controller: &'static str, not_found: bool) {
        let labels = [("source", kind.name()), ("controller", controller)];
        self.not_found.get_or_create(&labels).set(not_found.into());
    }
}

/// The state of an object on the API server.
pub(super) enum SourceUpdate<T> {
    /// It is not configured, or its kind is not served.
    Unmanaged,
    Absent,
    Present(T),
}

impl<T> SourceUpdate<T> {
    pub(super) fn of(object: Option<T>) -> Self {
        object.map_or(Self::Absent, Self::Present)
    }

    fn read<'a, V, R>(
        &'a self,
        view: impl Fn(&'a T) -> V,
        read: impl Fn(Option<V>) -> SourceState<R>,
    ) -> SourceState<R> {
        match self {
            Self::Unmanaged => SourceState::Unmanaged,
            Self::Absent => read(None),
            Self::Present(object) => read(Some(view(object))),
        }
    }
}

/// The last state of each object; `None` if it was not observed yet.
#[derive(Default)]
pub(super) struct ObservedSources {
    pub(super) pull_secret: Option<SourceUpdate<SecretObject>>,
    pub(super) trust_bundle: Option<SourceUpdate<BundleObject>>,
    pub(super) configuration: Option<SourceUpdate<Data>>,
}

impl ObservedSources {
    fn read(&self, salt: &Salt, names: &SourceNames) -> Option<Sources> {
        Some(sources(
            self.pull_secret.as_ref()?,
            self.trust_bundle.as_ref()?,
            self.configuration.as_ref()?,
            (salt, names),
        ))
    }
}

/// The three objects, read and validated.
pub(super) fn sources(
    pull_secret: &SourceUpdate<SecretObject>,
    trust_bundle: &SourceUpdate<BundleObject>,
    configuration: &SourceUpdate<Data>,
    (salt, names): (&Salt, &SourceNames),
) -> Sources {
    Sources {
        names: names.clone(),
        pull_secret: pull_secret.read(SecretObject::view, |it| read_pull_secret(salt, it)),
        trust_bundle: trust_bundle.read(BundleObject::view, |it| read_trust_bundle(salt, it)),
        configuration: configuration.read(config_map_view, |it| read_configuration(salt, it)),
    }
}

fn config_map_view(data: &Data) -> ConfigMapView<'_> {
    ConfigMapView {
        data: data.as_ref(),
    }
}

pub(super) struct Publisher {
    salt: Salt,
    names: SourceNames,
    seen: Mutex<ObservedSources>,
    sender: watch::Sender<Option<Arc<Sources>>>,
    condition: ReadinessCheck,
    metrics: SourceMetrics,
}

impl Publisher {
    /// A publisher that has not published anything, and the receiver.
    pub(super) fn new(
        salt: Salt,
        names: SourceNames,
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

    /// Stores what a watch reported, and publishes if it changes a source.
    pub(super) fn update(&self, change: impl FnOnce(&mut ObservedSources)) {
        let mut seen = self.lock();
        change(&mut seen);
        let Some(sources) = seen.read(&self.salt, &self.names) else {
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
            match (sources.summary(*kind), error_text(sources, *kind)) {
                (_, Some(error)) => {
                    tracing::error!(source, error, "invalid source, rollout suspended");
                }
                (SourceSummary::Valid(hash), _) => {
                    tracing::info!(source, %hash, "source observed");
                }
                (SourceSummary::Unmanaged, _) => {
                    tracing::warn!(source, "API of source not served, copies are kept");
                }
                _ => tracing::info!(source, "source absent"),
            }
        }
        let mut errors = Vec::new();
        for kind in SourceKind::ALL
            .into_iter()
            .filter(|kind| self.is_configured(*kind))
        {
            let error = error_text(sources, kind);
            self.metrics.set(kind, error.is_some());
            errors.extend(error.map(|error| format!("{}: {error}", kind.name())));
        }
        if errors.is_empty() {
            self.condition.ready();
        } else {
            self.condition.detail(errors.join("; "));
        }
    }

    /// Whether an operator configured the source: only such a source is reported.
    fn is_configured(&self, kind: SourceKind) -> bool {
        self.names.get(kind).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, ObservedSources> {
        // No code path panics while it holds the lock, and the value is valid after any of them.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sources whose content or error changed.
fn changed_sources(before: Option<&Sources>, now: &Sources) -> Vec<SourceKind> {
    let state = |sources: &Sources, kind| (sources.summary(kind), error_text(sources, kind));
    let differs =
        |kind: &SourceKind| before.is_none_or(|before| state(before, *kind) != state(now, *kind));
    SourceKind::ALL.into_iter().filter(differs).collect()
}

fn error_text(sources: &Sources, kind: SourceKind) -> Option<String> {
    sources.error(kind).map(|error| error_chain(error))
}
