//! The loop: gather, decide, apply.
//!
//! One task owns the state, so there is no lock; writes are futures of that task, so none outlives it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use component_base::telemetry::error_chain;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Client;
use kube::runtime::watcher::Event;
use policy::sync::known::Grace;
use policy::sync::signal::{Eligibility, Epoch, Step};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fleet::{Dirty, Fleet};
use super::gather::{self, Events};
use super::ledger::{Attended, Ledger};
use super::metrics::Failure;
use super::pace::{Pace, RETRY};
use super::queue::Queue;
use super::report::{Report, Reports};
use super::runtime::{Marks, Sight};
use super::watchman::Watchman;
use super::write::{WriteError, write};
use super::{SignalKeys, SignalMetrics, SignalOptions};
use crate::absent::{AbsentSources, Voice};
use crate::clock::Clock;
use crate::sources::Published;

/// Writes under way at a time: with a slow API server the pace is not kept, rather than an ever growing crowd.
const IN_FLIGHT: usize = 16;

/// What a write was for.
struct Job {
    name: Arc<str>,
    step: Step,
    epoch: Epoch,
}

type Finished = (Job, Result<Marks, WriteError>);

/// See the module.
pub(super) struct Reconciler {
    client: Client,
    namespace: Arc<str>,
    keys: SignalKeys,
    sources: Published,
    /// Whether the decision knows of the newest sources.
    looked: bool,
    /// When it is to look at them again although none changed: a grace period ends.
    look_at: Option<Instant>,
    absent: AbsentSources,
    clock: Clock,
    deletion_grace: Duration,
    runtimes: Events<(String, Sight)>,
    bootstrappers: Events<String>,
    fleet: Fleet,
    ledger: Ledger,
    queue: Queue,
    pace: Pace,
    writes: FuturesUnordered<BoxFuture<'static, Finished>>,
    events: FuturesUnordered<Report>,
    reports: Reports,
    metrics: SignalMetrics,
    watchman: Watchman,
    /// How a runtime failed last, so that the same is said once.
    failing: HashMap<Arc<str>, Failure>,
}

impl Reconciler {
    pub(super) fn new(options: SignalOptions) -> Self {
        let SignalOptions {
            client,
            settings,
            sources,
            readiness,
            reporter,
            metrics,
            source_metrics,
        } = options;
        let now = Instant::now();
        let namespace = settings.namespace.as_str();
        Self {
            keys: settings.keys,
            sources,
            looked: false,
            look_at: None,
            absent: AbsentSources::new(Voice {
                client: client.clone(),
                reporter: reporter.clone(),
                metrics: source_metrics,
                controller: "signal",
                outcome: "no Runtime is signaled before, and all are signaled",
            }),
            clock: Clock::new(),
            deletion_grace: settings.deletion_grace,
            runtimes: gather::runtimes(&client, namespace, settings.selector, &readiness),
            bootstrappers: gather::bootstrappers(&client, namespace, &readiness),
            fleet: Fleet::default(),
            ledger: Ledger::new(client.clone(), namespace, &settings.record),
            namespace: namespace.into(),
            queue: Queue::default(),
            pace: Pace::new(settings.per_second, now),
            writes: FuturesUnordered::new(),
            events: FuturesUnordered::new(),
            reports: Reports::new(client.clone(), reporter, &readiness, metrics.clone()),
            client,
            watchman: Watchman::new(metrics.clone(), now),
            metrics,
            failing: HashMap::new(),
        }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        loop {
            self.attend().await;
            self.look();
            self.begin();
            self.show();
            let due = self.next_due();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some((job, result)) = self.writes.next() => self.finish(job, result),
                Some(()) = self.events.next() => {}
                Ok(()) = self.sources.changed() => self.looked = false,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                // First, as a runtime that is handed back gets its signal before its resource goes.
                Some(event) = self.runtimes.next() => {
                    let dirty = self.fleet.see(event);
                    self.mark(dirty);
                }
                Some(event) = self.bootstrappers.next() => self.take_bootstrapper(event),
            }
        }
        while let Some((job, result)) = self.writes.next().await {
            self.finish(job, result);
        }
        let flushed = self.ledger.flush().await;
        self.attended(flushed);
    }

    fn take_bootstrapper(&mut self, event: Event<String>) {
        let gone = match &event {
            Event::Delete(name) => Some(name.clone()),
            _ => None,
        };
        let dirty = self.fleet.see_direct(event);
        if let Some(name) = gone
            && self.fleet.standing(&name) == Eligibility::Selected
            && self.stands(&name)
        {
            self.ledger.adopt(&name);
        }
        self.mark(dirty);
    }

    fn stands(&self, name: &str) -> bool {
        let marks = self.fleet.marks(name);
        marks.is_some_and(|marks| self.keys.stands(marks))
    }

    async fn attend(&mut self) {
        let attended = self.ledger.attend(Instant::now()).await;
        self.attended(attended);
    }

    fn attended(&mut self, attended: Attended) {
        match attended {
            Attended::Nothing => {}
            Attended::Loaded => {
                self.looked = false;
                self.reports.in_order();
            }
            Attended::Stored => self.reports.in_order(),
            Attended::Refused(refusal) => {
                let record = self.ledger.reference();
                self.events.extend(self.reports.refused(&refusal, record));
            }
        }
    }

    /// Takes note of the sources, once all that a decision needs is known.
    fn look(&mut self) {
        let expired = self.look_at.is_some_and(|at| at <= Instant::now());
        if (self.looked && !expired) || !self.ledger.is_loaded() || !self.fleet.is_known() {
            return;
        }
        let Some(sources) = self.sources.borrow_and_update().clone() else {
            return;
        };
        self.looked = true;
        let record = self.ledger.reference();
        let withheld = self.reports.withheld(&sources, record.clone());
        self.events.extend(withheld);
        let grace = Grace {
            now: self.clock.now(),
            period: self.deletion_grace,
        };
        let advance = self.ledger.advance(&sources, grace, self.fleet.affected());
        self.look_at = self.ledger.next_deletion().map(|at| self.clock.instant(at));
        let absent = self.absent.show(&sources, &self.ledger.known(), &record);
        self.events.extend(absent);
        match advance {
            None => self.events.push(self.reports.begun(record)),
            Some(kinds) if kinds.is_empty() => {}
            Some(kinds) => {
                let due = self.ledger.pending().count();
                self.events.push(self.reports.changed(&kinds, due, record));
            }
        }
        self.mark(Dirty::All);
    }

    fn mark(&mut self, dirty: Dirty) {
        match dirty {
            Dirty::Nothing => {}
            Dirty::One(name) => self.queue.mark(&name),
            Dirty::All => {
                for name in self.ledger.pending() {
                    self.queue.mark(&name.into());
                }
            }
        }
    }

    /// Starts what is to be done, as far as the pace allows.
    fn begin(&mut self) {
        if !self.ledger.is_open() || !self.looked {
            return;
        }
        let now = Instant::now();
        self.queue.advance(now);
        while self.may_begin(now)
            && let Some(name) = self.queue.take()
        {
            let epoch = self.ledger.epoch();
            let step = self.decide(&name);
            match step {
                Step::Nothing | Step::Adopt | Step::Withhold | Step::Forget => {
                    self.ledger.done(&name, step, epoch);
                    self.queue.succeeded(&name);
                    self.failing.remove(&name);
                }
                Step::Set | Step::RemoveLeftover => {
                    self.pace.goes(now, fastrand::u64(..));
                    self.write(Job { name, step, epoch });
                }
            }
        }
    }

    fn may_begin(&self, now: Instant) -> bool {
        self.writes.len() < IN_FLIGHT && self.pace.next() <= now
    }

    fn decide(&self, name: &str) -> Step {
        let standing = self.fleet.standing(name);
        let marks = self.fleet.marks(name).unwrap_or_default();
        let seen = self.keys.seen(marks);
        self.ledger.decide(name, standing, self.keys.policy(), seen)
    }

    fn write(&mut self, job: Job) {
        let (client, keys) = (self.client.clone(), self.keys);
        let namespace = Arc::clone(&self.namespace);
        let marks = self.fleet.marks(&job.name).unwrap_or_default();
        let patch = match job.step {
            Step::Set => keys.set(),
            _ => keys.remove(marks),
        };
        self.writes.push(Box::pin(async move {
            let mut result = write(&client, &namespace, &job.name, &patch).await;
            if job.step == Step::Set
                && let Ok(marks) = result
                && !keys.stands(marks)
            {
                result = Err(WriteError::Ineffective);
            }
            (job, result)
        }));
    }

    fn finish(&mut self, job: Job, result: Result<Marks, WriteError>) {
        let Job { name, step, epoch } = job;
        match result {
            Ok(marks) => {
                self.fleet.wrote(&name, marks);
                self.ledger.done(&name, step, epoch);
                self.metrics.wrote(match step {
                    Step::Set => "set",
                    _ => "remove",
                });
                self.queue.succeeded(&name);
                if let Some(failure) = self.failing.remove(&name) {
                    tracing::info!(
                        runtime = &*name,
                        was = failure.name(),
                        "signal write recovered"
                    );
                }
                // A change may have come in between.
                self.queue.mark(&name);
            }
            Err(error) => {
                self.tell(&name, &error);
                let backoff = RETRY.delay(self.queue.failures(&name), fastrand::u64(..));
                let delay = error.retry_after().unwrap_or_default().max(backoff);
                self.queue.hold(&name, Instant::now() + delay);
            }
        }
    }

    fn tell(&mut self, name: &Arc<str>, error: &WriteError) {
        let failure = error.failure();
        self.metrics.failed(failure);
        // What all suffer from alike is one line.
        let alike = self.failing.values().any(|it| *it == failure);
        let before = self.failing.insert(name.clone(), failure);
        if before != Some(failure) && !alike && !error.is_expected() {
            let error = error_chain(error);
            tracing::warn!(runtime = &**name, error, "failed to signal runtime");
        }
    }

    fn show(&mut self) {
        let stands = |name: &str| {
            let marks = self.fleet.marks(name);
            marks.is_some_and(|marks| self.keys.stands(marks))
        };
        self.watchman.show(Instant::now(), &self.ledger, stands);
    }

    fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let may_write = self.ledger.is_open() && self.looked && self.writes.len() < IN_FLIGHT;
        let pace = (may_write && self.queue.has_ready()).then(|| self.pace.next());
        let held = may_write.then(|| self.queue.next_due()).flatten();
        let show = self.watchman.due(&self.ledger);
        let may_look = self.ledger.is_loaded() && self.fleet.is_known();
        let look = self.look_at.filter(|_| may_look);
        [self.ledger.due(now), pace, held, show, look]
            .into_iter()
            .flatten()
            .min()
    }
}
