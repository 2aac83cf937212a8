//! The loop: gather, decide, apply.
//!
//! One task owns the state, so there is no lock; writes are futures of that task, so none outlives it.

use std::collections::HashMap;

use chassis::telemetry::error_chain;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use kube::Client;
use kube::runtime::watcher::Event;
use policy::mirror::RemovalCause;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::knowledge::Knowledge;

use super::apply::{Applier, ApplyError, Done};
use super::copies::Copies;
use super::foreign::{Foreigners, Unsaid};
use super::found::Found;
use super::pacing::Pacing;
use super::queue::Queue;
use super::state::{Dirty, Job, State, Verdict, Work};
use super::trouble::Troubles;
use super::{Mirror, MirrorMetrics, gather};

/// Writes under way at a time: enough for a thousand namespaces within seconds, few beside what an API server lets one
/// client do.
const IN_FLIGHT: usize = 8;

type Finished = (Job, Result<Done, ApplyError>);
type Writes = FuturesUnordered<BoxFuture<'static, Finished>>;

/// See the module.
pub(super) struct Reconciler {
    client: Client,
    knowledge: Knowledge,
    applier: Applier,
    metrics: MirrorMetrics,
    pacing: Pacing,
    state: State,
    /// The name that is watched.
    watched: Option<String>,
    queue: Queue,
    lingering: HashMap<String, Lingering>,
    foreign: Foreigners,
    troubles: Troubles,
}

/// A copy that is to be removed.
#[derive(Clone, Copy)]
struct Lingering {
    /// Why.
    cause: RemovalCause,
    /// It is not removed, nor are Pods listed, before then.
    until: Instant,
    /// How often a Pod was found to use it.
    found_in_use: u32,
}

impl Reconciler {
    pub(super) fn new(mirror: Mirror) -> Self {
        let Mirror {
            client,
            knowledge,
            recorder,
            metrics,
            product_namespace,
            pacing,
        } = mirror;
        Self {
            applier: Applier {
                client: client.clone(),
                recorder,
            },
            client,
            knowledge,
            metrics,
            pacing,
            state: State::new(product_namespace),
            watched: None,
            queue: Queue::default(),
            lingering: HashMap::new(),
            foreign: Foreigners::default(),
            troubles: Troubles::default(),
        }
    }

    pub(super) async fn run(mut self, token: CancellationToken) {
        let mut revisions = self.knowledge.revisions();
        let mut pods = gather::pods(&self.client);
        self.refresh();
        let mut secrets = gather::secrets(&self.client, self.watched.as_deref());
        let mut writes = Writes::new();
        loop {
            self.begin(&mut writes);
            let due = self.queue.next_due();
            tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some((job, result)) = writes.next() => self.finish(&job, result),
                Ok(()) = revisions.changed() => if self.refresh() {
                    secrets = gather::secrets(&self.client, self.watched.as_deref());
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                Some(event) = secrets.next() => self.see_secret(event),
                Some(event) = pods.next() => {
                    let dirty = self.state.pods.see(event);
                    self.mark(&dirty);
                }
            }
        }
        while let Some((job, result)) = writes.next().await {
            self.finish(&job, result);
        }
    }

    /// Takes over what is known; whether another name has to be watched from now on.
    fn refresh(&mut self) -> bool {
        for namespace in self.state.refresh(&self.knowledge) {
            self.queue.mark(&namespace);
        }
        let name = self.state.secret_name().map(str::to_owned);
        if name == self.watched {
            return false;
        }
        let left = self.state.copies.ours();
        if let Some(old) = &self.watched {
            tracing::warn!(
                old,
                new = name,
                left,
                "name of the pull Secret changed, copies under the old name are not updated"
            );
        }
        self.watched = name;
        self.state.copies = Copies::default();
        self.foreign = Foreigners::default();
        true
    }

    fn see_secret(&mut self, event: Event<(String, Found)>) {
        if let Event::Apply((namespace, _))
        | Event::Delete((namespace, _))
        | Event::InitApply((namespace, _)) = &event
            && self.state.is_product_namespace(namespace)
        {
            return;
        }
        match self.state.copies.see(event) {
            Dirty::Nothing => {}
            dirty => {
                self.mark(&dirty);
                self.count();
            }
        }
    }

    fn mark(&mut self, dirty: &Dirty) {
        match dirty {
            Dirty::Nothing => {}
            Dirty::Namespace(namespace) => self.queue.mark(namespace),
            Dirty::All => {
                for namespace in self.state.namespaces() {
                    self.queue.mark(namespace);
                }
            }
        }
    }

    /// Starts what is to be done, as far as there is room.
    fn begin(&mut self, writes: &mut Writes) {
        let now = Instant::now();
        self.queue.advance(now);
        while writes.len() < IN_FLIGHT
            && let Some(namespace) = self.queue.take()
        {
            if let Some(job) = self.next_job(&namespace, now) {
                let applier = self.applier.clone();
                writes.push(Box::pin(async move {
                    let result = applier.run(&job).await;
                    (job, result)
                }));
            } else {
                self.queue.done(&namespace, None);
            }
        }
        self.metrics.set_foreign(self.foreign.count());
    }

    fn next_job(&mut self, namespace: &str, now: Instant) -> Option<Job> {
        match self.state.decide(namespace) {
            Verdict::Settled => {
                self.lingering.remove(namespace);
                self.foreign.none_in(namespace);
                self.settled(namespace);
                None
            }
            Verdict::Linger(job) => {
                let until = self.lingers_until(namespace, &job, now);
                if until > now {
                    self.queue.mark_at(namespace, until);
                    return None;
                }
                Some(job)
            }
            Verdict::Act(job) => {
                self.lingering.remove(namespace);
                if let Work::Report(identity) = &job.work {
                    self.is_news(namespace, identity.uid.as_deref())
                        .then_some(job)
                } else {
                    self.foreign.none_in(namespace);
                    Some(job)
                }
            }
        }
    }

    /// A deleted source does not wait for the Pods that a copy was kept for.
    fn lingers_until(&mut self, namespace: &str, job: &Job, now: Instant) -> Instant {
        let cause = match job.work {
            Work::Remove(_, cause) => cause,
            _ => RemovalCause::NotNeeded,
        };
        let linger = Lingering {
            cause,
            until: now + self.pacing.linger,
            found_in_use: 0,
        };
        let lingering = self
            .lingering
            .entry(namespace.to_owned())
            .and_modify(|it| {
                if it.cause != cause {
                    *it = linger;
                }
            })
            .or_insert(linger);
        lingering.until
    }

    fn is_news(&mut self, namespace: &str, uid: Option<&str>) -> bool {
        let unsaid = self.foreign.seen(namespace, uid);
        if unsaid == Unsaid::All {
            let text = "a foreign Secret is in the place of the pull Secret and is left alone";
            tracing::warn!(namespace, "{text}");
        }
        unsaid != Unsaid::Nothing
    }

    fn finish(&mut self, job: &Job, result: Result<Done, ApplyError>) {
        let namespace = job.namespace.as_str();
        let pause = match result {
            Ok(done) => {
                self.succeeded(job, done);
                self.pacing.rest
            }
            Err(error) => {
                // A namespace that goes is settled as soon as the snapshot knows; until then there is nothing to tell.
                if !matches!(error, ApplyError::NamespaceGone) {
                    self.tell(job, &error);
                }
                let earlier = self.queue.failed(namespace);
                self.pacing.retry.delay(earlier, fastrand::u64(..))
            }
        };
        self.queue.done(namespace, Some(Instant::now() + pause));
    }

    fn succeeded(&mut self, job: &Job, done: Done) {
        let namespace = job.namespace.as_str();
        self.settled(namespace);
        match &done {
            Done::Reported => return self.foreign.reported(namespace),
            Done::InUse(pod) => return self.keep_in_use(namespace, pod),
            Done::Wrote(_) | Done::Removed => {}
        }
        self.metrics.wrote(job.work.name());
        // The name may have changed while the write was under way.
        if self.watched.as_deref() != Some(&job.secret) {
            return;
        }
        match done {
            Done::Wrote(found) => self.state.copies.wrote(namespace, found),
            Done::Removed => self.state.copies.removed(namespace),
            Done::InUse(_) | Done::Reported => {}
        }
        self.count();
    }

    /// The copy stays under the Pods that use it. They are listed again later, at growing distances.
    fn keep_in_use(&mut self, namespace: &str, pod: &str) {
        let Some(lingering) = self.lingering.get_mut(namespace) else {
            return;
        };
        if lingering.found_in_use == 0 {
            tracing::info!(
                namespace,
                pod,
                "deletion of pull Secret copy deferred, used by a Pod"
            );
        }
        let distance = self
            .pacing
            .in_use
            .delay(lingering.found_in_use, fastrand::u64(..));
        lingering.until = Instant::now() + distance;
        lingering.found_in_use = lingering.found_in_use.saturating_add(1);
    }

    fn settled(&mut self, namespace: &str) {
        self.queue.succeeded(namespace);
        if let Some(kind) = self.troubles.settled(namespace) {
            tracing::info!(namespace, kind, "pull Secret synchronization recovered");
        }
    }

    fn tell(&mut self, job: &Job, error: &ApplyError) {
        self.metrics.failed(error.kind());
        if self.troubles.failed(&job.namespace, error) {
            let (namespace, action) = (&job.namespace, job.work.name());
            let error = error_chain(error);
            tracing::warn!(
                namespace,
                action,
                error,
                "pull Secret synchronization failed"
            );
        }
    }

    fn count(&self) {
        self.metrics.set_copies(self.state.copies.ours());
    }
}

impl Drop for Reconciler {
    /// Whoever leads next counts from now on.
    fn drop(&mut self) {
        self.metrics.set_copies(0);
        self.metrics.set_foreign(0);
    }
}
