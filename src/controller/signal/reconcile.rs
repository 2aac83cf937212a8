//! The main loop of mode `signal`: observe, decide, write.
//!
//! One task owns the state, so there is no lock. Writes are futures of that task, so no write continues after the task.

use std::collections::BTreeMap;
use std::time::Duration;

use api::rollout::{RolloutStatus, SIGNAL};
use futures::StreamExt as _;
use futures::stream::{BoxStream, FuturesUnordered};
use kube::Api;
use policy::sync::history::Grace;
use policy::sync::signal::{Advance, Gates, KeyState, Step, StopReason, Target, mark_stale};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::cache::RuntimeCache;
use super::evaluation::{Evaluation, Schedule};
use super::pace::Pace;
use super::persisted_state::StateFile;
use super::report::{EventReporter, Report};
use super::status::{StatusPublisher, message};
use super::write::{Finished, Write, Writer};
use super::{SignalOptions, SignalSettings};
use crate::absent::{AbsentSources, EventSettings};
use crate::clock::Clock;
use crate::inventory::RuntimeChanges;
use crate::kube_events::EventWriter;
use crate::rollouts::{self, Stored};
use crate::sources::Published;

/// Interval of evaluations while a signal is unacknowledged, for its age in the metrics.
const AGE_INTERVAL: Duration = Duration::from_secs(5);

/// The main loop; see the module.
pub(super) struct Reconciler {
    settings: SignalSettings,
    sources: Published,
    /// Whether the newest sources are observed.
    observed: bool,
    /// The time at which the sources have to be observed again without a change, because a grace period ends.
    observe_at: Option<Instant>,
    gates: Gates,
    absent: AbsentSources,
    clock: Clock,
    cache: RuntimeCache,
    state: StateFile,
    rollouts: BoxStream<'static, BTreeMap<String, Stored>>,
    /// The object `signal`; `None` until the objects were listed.
    rollout: Option<Stored>,
    status: StatusPublisher,
    evaluation: Evaluation,
    schedule: Schedule,
    pace: Pace,
    writer: Writer,
    reporter: EventReporter,
    events: FuturesUnordered<Report>,
}

impl Reconciler {
    pub(super) fn new(
        options: SignalOptions,
        runtimes: RuntimeChanges,
        status: watch::Sender<Option<RolloutStatus>>,
    ) -> Self {
        let (settings, client, readiness) = (options.settings, options.client, options.readiness);
        let namespace = settings.namespace.as_str();
        let selected = (settings.selector.clone(), settings.keys);
        let api = Api::namespaced(client.clone(), namespace);
        let events = |action| EventWriter {
            client: client.clone(),
            reporter: options.reporter.clone(),
            action,
        };
        Self {
            sources: options.sources,
            observed: false,
            observe_at: None,
            gates: Gates::default(),
            absent: AbsentSources::new(EventSettings {
                events: events("SynchronizeSource"),
                metrics: options.source_metrics,
                controller: "signal",
                outcome: "no Runtime is signaled before, and all are signaled",
            }),
            clock: Clock::new(),
            cache: RuntimeCache::new(runtimes, (&client, namespace), selected, &readiness),
            state: StateFile::new(client.clone(), namespace, &settings.state),
            rollouts: rollouts::watch(&client, namespace, &readiness),
            rollout: None,
            status: StatusPublisher::new(status, settings.has_direct),
            evaluation: Evaluation::default(),
            schedule: Schedule::default(),
            pace: Pace::new(settings.per_second, Instant::now()),
            writer: Writer::new(api, options.metrics.clone()),
            reporter: EventReporter::new(events("SignalRuntimes"), &readiness, options.metrics),
            events: FuturesUnordered::new(),
            settings,
        }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        loop {
            self.synchronize_state().await;
            self.observe_sources();
            self.evaluate();
            self.start_writes();
            let due = self.next_due();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some(finished) = self.writer.next() => self.finish(finished),
                Some(()) = self.events.next() => {}
                Ok(()) = self.sources.changed() => self.observed = false,
                Some(mut all) = self.rollouts.next() => {
                    let stored = all.remove(SIGNAL).unwrap_or_default();
                    if let Some(before) = &self.rollout {
                        self.status.repeat(before, &stored);
                    }
                    self.rollout = Some(stored);
                    self.schedule.soon();
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = self.cache.next() => self.schedule.soon(),
            }
        }
        while let Some(finished) = self.writer.next().await {
            self.finish(finished);
        }
    }

    async fn synchronize_state(&mut self) {
        match self.state.synchronize(Instant::now()).await {
            None => return,
            Some(Ok(())) => {
                self.observed = false;
                self.reporter.valid();
            }
            Some(Err(error)) => {
                let report = self.reporter.invalid(&error, self.state.reference());
                self.events.extend(report);
            }
        }
        self.schedule.soon();
    }

    /// Observes the sources, once the state and all Runtimes are known.
    fn observe_sources(&mut self) {
        let is_due = self.observe_at.is_some_and(|at| at <= Instant::now());
        if (self.observed && !is_due) || !self.cache.is_complete() {
            return;
        }
        let Some(state) = self.state.loaded() else {
            return;
        };
        let Some(sources) = self.sources.borrow_and_update().clone() else {
            return;
        };
        self.observed = true;
        let grace = Grace {
            now: self.clock.now(),
            period: self.settings.deletion_grace,
        };
        let advance = state.advance(&sources, grace);
        let history = state.history().clone();
        let deletion = history.next_deletion();
        self.observe_at = deletion.map(|at| self.clock.instant(at));
        self.gates.deletion_pending = deletion.is_some();
        self.gates.invalid_source = sources.invalid().next().is_some();
        let state = self.state.reference();
        self.events
            .extend(self.absent.report(&sources, &history, &state));
        if advance != Advance::Unchanged {
            self.state.changed();
        }
        match advance {
            Advance::First => self.events.push(self.reporter.initialized(state)),
            Advance::Changed(kinds) => self.events.push(self.reporter.changed(&kinds, state)),
            Advance::Unchanged | Advance::Noted => {}
        }
        self.schedule.soon();
    }

    /// Returns the state with which Runtimes are compared; `None` while a part of it is unknown or not saved.
    fn target(&self) -> Option<Target> {
        let is_known = self.observed && self.cache.is_complete() && self.rollout.is_some();
        let revisions = self.state.saved().filter(|_| is_known)?.revisions()?;
        Some(Target {
            revisions,
            keys: self.settings.keys,
            usable: !self.gates.invalid_source && !self.gates.deletion_pending,
        })
    }

    /// Evaluates all Runtimes, if that is due, and reports the result.
    fn evaluate(&mut self) {
        let now = Instant::now();
        if !self.schedule.is_due(now) {
            return;
        }
        let Some(target) = self.target() else {
            self.evaluation.due.clear();
            return;
        };
        self.gates.paused = self.rollout.as_ref().is_some_and(|it| it.paused);
        let copied_at = self.cache.update_copying(&target, now);
        self.evaluation
            .update(&target, &self.cache, &mut self.writer, now);
        if self.stop().is_some() {
            self.evaluation
                .due
                .retain(|(_, step)| *step != Step::Signal);
        }
        let (stop, again) = self.status.stop(self.stop(), now);
        self.report(&target, stop);
        let oldest = self.evaluation.oldest();
        let age = oldest.map_or(Duration::ZERO, |it| now - it);
        self.reporter.show(&self.evaluation.counts, age);
        let again = [
            again,
            self.evaluation.retry_at,
            copied_at,
            Some(self.status.known_at()).filter(|it| now < *it),
            oldest.map(|_| now + AGE_INTERVAL),
        ];
        self.schedule.by(again.into_iter().flatten());
        if self.evaluation.counts.waiting == 0
            && let Some(state) = self.state.loaded()
            && state.complete()
        {
            self.state.changed();
        }
    }

    fn report(&mut self, target: &Target, stop: Option<StopReason>) {
        let (Some(stored), Some(sources)) = (&self.rollout, &*self.sources.borrow()) else {
            return;
        };
        let evaluation = &mut self.evaluation;
        let limits = &self.settings.limits;
        evaluation.stop = stop.map(|it| (it, message(it, sources, &evaluation.counts, limits)));
        let now = self.clock.now().strftime("%FT%TZ").to_string();
        self.status
            .publish(stored, target.revisions, evaluation, &now);
        let report = self
            .reporter
            .stopped(evaluation.stop.clone(), self.state.reference());
        self.events.extend(report);
    }

    fn stop(&self) -> Option<StopReason> {
        StopReason::of(self.gates, &self.evaluation.counts, &self.settings.limits)
    }

    /// Starts writes, up to the rate limit and the other limits.
    fn start_writes(&mut self) {
        let now = Instant::now();
        let Some(target) = self.target() else {
            return;
        };
        while self.writer.has_capacity()
            && self.pace.next() <= now
            && let Some((name, _)) = self.evaluation.due.pop_front()
        {
            if self.evaluation.due.is_empty() {
                self.schedule.soon();
            }
            let Some(runtime) = self.cache.get(&name) else {
                continue;
            };
            // The Runtime may have changed since the evaluation.
            let step = target.step(&runtime);
            if step == Step::Signal {
                if self.stop().is_some() {
                    continue;
                }
                self.evaluation.counts.unacknowledged += 1;
            }
            if let Some(patch) = target.patch(step, &runtime) {
                self.pace.goes(now, fastrand::u64(..));
                self.writer.start(Write { name, step, patch });
            }
        }
    }

    fn finish(&mut self, (write, result): Finished) {
        self.schedule.soon();
        let metadata = match result {
            Ok(metadata) => metadata,
            Err(error) => return self.writer.failed(&write.name, Some(&error)),
        };
        let keys = self.cache.wrote(&write.name, metadata);
        if write.step != Step::Signal || self.settings.keys.state(keys) == KeyState::Complete {
            return self.writer.succeeded(&write);
        }
        // An admission plugin removed the keys, and the stored revision shows that the Runtime is signaled. If the write
        // of another revision fails, the next evaluation repeats it.
        self.cache.spoil(&write.name);
        self.writer.failed(&write.name, None);
        self.writer.start(Write {
            name: write.name,
            step: Step::MarkStale,
            patch: mark_stale(),
        });
    }

    fn next_due(&self) -> Option<Instant> {
        let may_write = !self.evaluation.due.is_empty() && self.writer.has_capacity();
        let write = (may_write && self.target().is_some()).then(|| self.pace.next());
        let observe = self.observe_at.filter(|_| self.state.is_loaded());
        let state = self.state.due(Instant::now());
        let times = [state, observe, self.schedule.next(), write];
        times.into_iter().flatten().min()
    }
}
