//! The loop that watches Pods, judges each Pod, and once a second reports and evicts.

mod report;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::watch_with_backoff;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher::{Config, Event};
use policy::repairs::{Deviation, Evictions, PodKey, UnstartedPods};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Repairs;
use super::eviction::evict;
use super::metrics::PodSeries;
use super::pod::{Basis, Judge, StoredPod};
use super::record::Record;
use crate::UNFINISHED;
use crate::snapshot::{ActiveRevision, KnownNamespace};

/// Interval of reports and evictions.
const TICK: Duration = Duration::from_secs(1);

/// Minimum time between two lists of all Pods.
const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// Pause between two attempts to read the record.
const RECORD_RETRY: Duration = Duration::from_secs(5);

/// Maximum number of Pods in one page. A Pod has some kilobytes, and a hostile Pod may have more than a megabyte. With
/// fifty, the process keeps some additional MiB after a list of ten thousand Pods.
const PAGE: u32 = 10;

/// Maximum number of changed Namespaces whose Pods are listed separately. Beyond it all Pods are listed.
const MAX_CHANGED: usize = 50;

pub(super) type Namespaces = Arc<HashMap<String, Arc<KnownNamespace>>>;

/// Runs the repairs that the parent module describes. Its state outlives the watch, so that no Pod is reported twice.
pub(super) struct Reconciler<'a> {
    repairs: &'a Repairs,
    judge: Judge,
    evictions: Evictions,
    unstarted: UnstartedPods,
    /// The Pods whose judgment panicked.
    unjudged: HashSet<PodKey>,
    record: Record,
    /// Pod, reason and note of pending Events.
    events: VecDeque<(ObjectReference, String, String)>,
    started: Instant,
    next_list: Instant,
    probe_failed: bool,
    missed_before: usize,
    series: PodSeries,
}

/// One list and watch of all Pods, with one active revision.
struct Round {
    active: Arc<ActiveRevision>,
    revision: policy::repairs::RevisionTimes,
    namespaces: Namespaces,
    listed: HashSet<PodKey>,
    is_complete: bool,
    /// Namespaces whose Pods must be judged again.
    changed: BTreeSet<String>,
}

impl<'a> Reconciler<'a> {
    pub(super) fn new(repairs: &'a Repairs, judge: Judge) -> Self {
        Self {
            repairs,
            judge,
            evictions: Evictions::default(),
            unstarted: UnstartedPods::default(),
            unjudged: HashSet::new(),
            record: Record::default(),
            events: VecDeque::new(),
            started: Instant::now(),
            next_list: Instant::now(),
            probe_failed: false,
            missed_before: 0,
            series: PodSeries::default(),
        }
    }

    /// Runs until the token is canceled or Pods must be judged by another revision.
    pub(super) async fn run(&mut self, token: &CancellationToken) {
        let mut changes = self.repairs.snapshots.changes();
        let Some(Some(mut round)) = token.run_until_cancelled(self.begin(&mut changes)).await
        else {
            return;
        };
        let condition = Readiness::new(self.repairs.watches.clone()).check("repair Pods");
        let config = Config::default().fields(UNFINISHED).page_size(PAGE);
        let api = Api::<StoredPod>::all(self.repairs.client.clone());
        let mut pods = pin!(watch_with_backoff(api, config, condition));
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                Some(event) = pods.next() => self.observe(&mut round, event),
                Ok(()) = changes.changed() => {
                    if self.is_other_revision(&round) {
                        return;
                    }
                    round.refresh(self.repairs.snapshots.namespaces());
                    if round.changed.len() > MAX_CHANGED {
                        return;
                    }
                }
                _ = tick.tick() => {
                    self.record.follow(&round.namespaces, &round.active);
                    // Again, if it failed.
                    let repairs = self.repairs;
                    let namespace = &repairs.product_namespace;
                    self.record.write(&repairs.client, namespace).await;
                    if self.report_and_evict(&mut round).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Waits until all parts of a revision are observed, and for the pause between two lists.
    async fn begin(&mut self, changes: &mut watch::Receiver<u64>) -> Option<Round> {
        let repairs = self.repairs;
        let (client, namespace) = (&repairs.client, &repairs.product_namespace);
        while let Err(error) = self.record.read(client, namespace).await {
            let error = error_chain(&error);
            tracing::warn!(error, "record of revisions cannot be read, retrying");
            tokio::time::sleep(RECORD_RETRY).await;
        }
        loop {
            changes.borrow_and_update();
            let active = repairs.snapshots.active();
            let is_due = Instant::now() >= self.next_list;
            // A replica that starts may need the document at once, even if not all parts are observed.
            self.record.times(&active);
            self.record.write(client, namespace).await;
            // The write may have told a time of the API server.
            if is_due && let Some(revision) = self.record.times(&active) {
                self.next_list = Instant::now() + LIST_INTERVAL;
                return Some(Round {
                    active,
                    revision,
                    namespaces: repairs.snapshots.namespaces(),
                    listed: HashSet::new(),
                    is_complete: false,
                    changed: BTreeSet::new(),
                });
            }
            tokio::select! {
                () = sleep_until(self.next_list), if !is_due => {}
                next = changes.changed() => next.ok()?,
            }
        }
    }

    /// Returns whether Pods would be judged differently now.
    fn is_other_revision(&mut self, round: &Round) -> bool {
        let active = self.repairs.snapshots.active();
        if Arc::ptr_eq(&active, &round.active) {
            return false;
        }
        // An object that is not observed anymore will be observed again soon.
        let Some(revision) = self.record.times(&active) else {
            return true;
        };
        revision != round.revision
            || active.configuration != round.active.configuration
            || active.pull_secret.known != round.active.pull_secret.known
            || active.trust_bundle != round.active.trust_bundle
    }

    fn observe(&mut self, round: &mut Round, event: Event<StoredPod>) {
        match event {
            Event::Init => {
                round.listed.clear();
                round.is_complete = false;
            }
            Event::InitApply(pod) => {
                round.listed.insert(pod.key());
                self.judge(round, &pod, true);
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut round.listed);
                self.evictions.retain(|key| listed.contains(key));
                self.unstarted.retain(|key| listed.contains(key));
                self.unjudged.retain(|key| listed.contains(key));
                round.is_complete = true;
            }
            Event::Apply(pod) => self.judge(round, &pod, false),
            Event::Delete(pod) => {
                let (key, now) = (pod.key(), self.started.elapsed());
                self.unjudged.remove(&key);
                self.unstarted.observe(&key, None, now);
                self.evictions.observe(key, None, false, now);
            }
        }
    }

    fn judge(&mut self, round: &Round, pod: &StoredPod, is_listed: bool) {
        let basis = Basis {
            active: &round.active,
            product_namespace: &self.repairs.product_namespace,
            revision: round.revision,
            fallback_policy: self.repairs.snapshots.fallback_policy(),
        };
        let key = pod.key();
        // Its Pods are listed again when the Namespace is observed.
        let Some(namespace) = round.namespaces.get(&*key.namespace) else {
            return;
        };
        let namespace = self.record.namespaces.kept(&key.namespace, namespace);
        // A Pod that cannot be judged must not end the repairs of each leader in turn.
        let judged = pod.judge_with(self.judge, Some(&namespace), &basis);
        self.report_judged(&key, judged.is_ok());
        let (tracked, note, unstarted) = match judged.ok().flatten() {
            Some(it) => (Some(it.tracked), it.note, it.unstarted),
            None => (None, None, None),
        };
        let now = self.started.elapsed();
        self.unstarted.observe(&key, unstarted, now);
        let found = self.evictions.observe(key, tracked, is_listed, now);
        // The first list of a leader has Pods that an earlier leader has counted.
        if found.is_some_and(Deviation::is_missed) && !(is_listed && pod.is_old()) {
            self.repairs.metrics.missed_found.inc();
        }
        if let (Some(deviation), Some(note)) = (found, note) {
            let reason = format!("Missed{}", deviation.reason());
            self.enqueue(pod.reference(), reason, note);
        }
    }

    /// Reports and evicts once. An error ends the round; the next round lists all Pods.
    async fn report_and_evict(&mut self, round: &mut Round) -> Result<(), kube::Error> {
        if let Some(namespace) = round.changed.pop_first()
            && let Err(error) = self.list(round, &namespace).await
        {
            let text = error_chain(&error);
            tracing::warn!(namespace, error = text, "failed to list Pods");
            return Err(error);
        }
        self.evictions
            .retain_namespaces(|name| round.namespaces.contains_key(name));
        self.report_unstarted();
        self.count(round.is_complete);
        self.publish_pending().await;
        if round.is_complete {
            self.evict().await;
        }
        Ok(())
    }

    /// Judges the Pods of one namespace again.
    async fn list(&mut self, round: &Round, namespace: &str) -> Result<(), kube::Error> {
        let api = Api::<StoredPod>::namespaced(self.repairs.client.clone(), namespace);
        let mut parameters = ListParams::default().fields(UNFINISHED).limit(PAGE);
        loop {
            let page = api.list(&parameters).await?;
            for pod in &page.items {
                self.judge(round, pod, true);
            }
            match page.metadata.continue_.filter(|it| !it.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    async fn evict(&mut self) {
        let repairs = self.repairs;
        if repairs.evict.is_empty() {
            return;
        }
        let now = self.started.elapsed();
        let Some((key, uid)) = self.evictions.next(&repairs.evict, now) else {
            return;
        };
        let probed = (repairs.probe)().await;
        let failed_before = std::mem::replace(&mut self.probe_failed, probed.is_err());
        if let Err(error) = probed {
            if !failed_before {
                tracing::warn!(error, "no evictions while the probe of the webhook fails");
            }
            return;
        }
        let (outcome, text) = evict(&repairs.client, &key, &uid).await;
        let result = [("result", outcome.into())];
        repairs.metrics.evictions.get_or_create(&result).inc();
        let now = self.started.elapsed();
        self.evictions.executed(&key, outcome, now);
        self.report(&key, &uid, outcome, &text).await;
    }
}

impl Round {
    /// Stores the Namespaces, and records Namespaces that result in different decisions.
    fn refresh(&mut self, namespaces: Namespaces) {
        let before = std::mem::replace(&mut self.namespaces, namespaces);
        if Arc::ptr_eq(&before, &self.namespaces) {
            return;
        }
        let reads_labels = self.active.reads_labels();
        let changed = self.namespaces.iter().filter(|(name, known)| {
            let differs = |before: &KnownNamespace| {
                before.view.annotations != known.view.annotations
                    || (reads_labels && before.view.labels != known.view.labels)
            };
            let before = before.get(*name);
            before.is_none_or(|it| !Arc::ptr_eq(it, known) && differs(it))
        });
        self.changed.extend(changed.map(|(name, _)| name.clone()));
    }
}
