//! What the three watches brought, understood together and published when it says something new.
//!
//! Invariants: nothing is published before all three are known; the same content is published once.
//! Deliberately absent: the watches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use component_base::metrics::create_series;
use component_base::readiness::Condition;
use component_base::telemetry::error_chain;
use policy::sync::sources::{
    ConfigMapView, SourceState, Sources, Summary, read_configuration, read_pull_secret,
    read_trust_bundle,
};
use policy::sync::{Salt, SourceKind};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::objects::{BundleObject, Data, SecretObject};
use super::{Published, SourceNames};

/// What is counted of the sources. Clones share the figures.
#[derive(Clone, Debug, Default)]
pub struct SourceMetrics {
    invalid: Family<SourceLabel, Gauge>,
    deletion_pending: Family<AbsentLabel, Gauge>,
    not_found: Family<AbsentLabel, Gauge>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AbsentLabel {
    source: &'static str,
    controller: &'static str,
}

impl SourceMetrics {
    /// Figures that the registry shows: `source_invalid{source}`, `source_deletion_pending{source,controller}` and
    /// `source_not_found{source,controller}`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "source_invalid",
            "Whether a source on KCP is invalid (1), so that it is not synchronized",
            metrics.invalid.clone(),
        );
        registry.register(
            "source_deletion_pending",
            "Whether a source was deleted on KCP and its copies are kept until the grace period ends (1); 0 on replicas that do not lead",
            metrics.deletion_pending.clone(),
        );
        registry.register(
            "source_not_found",
            "Whether a source that a flag names has never existed (1); 0 on replicas that do not lead",
            metrics.not_found.clone(),
        );
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`component_base::metrics::create_series`].
    pub fn create_series(&self) {
        create_series(&self.invalid);
        create_series(&self.deletion_pending);
        create_series(&self.not_found);
    }

    fn set(&self, kind: SourceKind, invalid: bool) {
        let label = SourceLabel {
            source: kind.name(),
        };
        self.invalid.get_or_create(&label).set(invalid.into());
    }

    /// Notes whether the deletion of a source waits, in the eyes of one controller.
    pub(crate) fn deletion_pending(
        &self,
        kind: SourceKind,
        controller: &'static str,
        pending: bool,
    ) {
        let label = AbsentLabel::new(kind, controller);
        let gauge = self.deletion_pending.get_or_create(&label);
        gauge.set(pending.into());
    }

    /// Notes whether a source that is named was never there, in the eyes of one controller.
    pub(crate) fn not_found(&self, kind: SourceKind, controller: &'static str, not_found: bool) {
        let label = AbsentLabel::new(kind, controller);
        self.not_found.get_or_create(&label).set(not_found.into());
    }
}

impl AbsentLabel {
    fn new(kind: SourceKind, controller: &'static str) -> Self {
        Self {
            source: kind.name(),
            controller,
        }
    }
}

/// What the API server says of an object.
pub(super) enum Told<T> {
    /// It was not asked, or does not serve the kind.
    Unmanaged,
    Absent,
    There(T),
}

impl<T> Told<T> {
    pub(super) fn of(object: Option<T>) -> Self {
        object.map_or(Self::Absent, Self::There)
    }

    fn read<'a, V, R>(
        &'a self,
        view: impl Fn(&'a T) -> V,
        read: impl Fn(Option<V>) -> SourceState<R>,
    ) -> SourceState<R> {
        match self {
            Self::Unmanaged => SourceState::Unmanaged,
            Self::Absent => read(None),
            Self::There(object) => read(Some(view(object))),
        }
    }
}

/// What the API server said last, as far as it said anything.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) pull_secret: Option<Told<SecretObject>>,
    pub(super) trust_bundle: Option<Told<BundleObject>>,
    pub(super) configuration: Option<Told<Data>>,
}

impl Seen {
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
    pull_secret: &Told<SecretObject>,
    trust_bundle: &Told<BundleObject>,
    configuration: &Told<Data>,
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
    seen: Mutex<Seen>,
    sender: watch::Sender<Option<Arc<Sources>>>,
    condition: Condition,
    metrics: SourceMetrics,
}

impl Publisher {
    /// One that has published nothing, and where it will.
    pub(super) fn new(
        salt: Salt,
        names: SourceNames,
        condition: Condition,
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

    /// Takes note of what a watch brought.
    pub(super) fn take(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.lock();
        change(&mut seen);
        let Some(sources) = seen.read(&self.salt, &self.names) else {
            return;
        };
        // Still under the lock, so that the newest is the last to be published.
        self.sender.send_if_modified(|published| {
            let news = news(published.as_deref(), &sources);
            if !news.is_empty() {
                self.tell(&news, &sources);
                *published = Some(Arc::new(sources));
            }
            !news.is_empty()
        });
    }

    fn tell(&self, news: &[SourceKind], sources: &Sources) {
        for kind in news.iter().filter(|kind| self.is_asked_for(**kind)) {
            let source = kind.name();
            match (sources.summary(*kind), complaint(sources, *kind)) {
                (_, Some(error)) => {
                    tracing::error!(source, error, "invalid source, rollout suspended");
                }
                (Summary::Valid(hash), _) => {
                    tracing::info!(source, %hash, "source observed");
                }
                (Summary::Unmanaged, _) => {
                    tracing::warn!(source, "API of source not served, copies are kept");
                }
                _ => tracing::info!(source, "source absent"),
            }
        }
        let mut remarks = Vec::new();
        for kind in SourceKind::ALL
            .into_iter()
            .filter(|kind| self.is_asked_for(*kind))
        {
            let error = complaint(sources, kind);
            self.metrics.set(kind, error.is_some());
            remarks.extend(error.map(|error| format!("{}: {error}", kind.name())));
        }
        if remarks.is_empty() {
            self.condition.ready();
        } else {
            self.condition.detail(remarks.join("; "));
        }
    }

    /// That an operator wants no source of a kind is nothing to complain of.
    fn is_asked_for(&self, kind: SourceKind) -> bool {
        self.names.get(kind).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // No code path panics while it holds the lock, and the value is valid after any of them.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which sources say something else than before.
fn news(before: Option<&Sources>, now: &Sources) -> Vec<SourceKind> {
    let says = |sources: &Sources, kind| (sources.summary(kind), complaint(sources, kind));
    let differs =
        |kind: &SourceKind| before.is_none_or(|before| says(before, *kind) != says(now, *kind));
    SourceKind::ALL.into_iter().filter(differs).collect()
}

fn complaint(sources: &Sources, kind: SourceKind) -> Option<String> {
    sources.error(kind).map(|error| error_chain(error))
}
