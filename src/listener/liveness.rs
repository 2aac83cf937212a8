//! Which runtimes' watchers were heard from, and what of theirs did not arrive.
//!
//! A watcher numbers its events and sends heartbeats, so silence and loss can be told from calm, which the public pair
//! cannot. Invariant: memory is bounded by [`Options::runtimes`] and four watchers each, of which each takes 16 KiB at
//! most; a runtime is *silent* if a heartbeat was due for three intervals. Public watchers send none and are never
//! silent, unless the operator says with [`Liveness::expect`] that it counts on them.
//!
//! A spool goes with its Pod, and nobody says what was in it. So a look at everything is called for when a watcher
//! falls quiet whose last heartbeat said that something waited, and when one is replaced that nobody had heard for three
//! intervals: a look too many costs less than a change too few. It is called for in vain where that watcher has drained
//! after its last heartbeat, or where its container alone was killed, whose next life delivers what waited: from here
//! all of these look the same.
//!
//! Deliberately absent: persistence. After a restart of the operator nothing is known until heartbeats come or are
//! expected. Several listeners for one manager each see a part of the numbers, and miss the rest.
//!
//! [`Options::runtimes`]: crate::Options::runtimes

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::event::{BootId, Heartbeat};
use tokio::time::Instant;

use self::watcher::Watcher;
use crate::certificate::RuntimeId;

mod sequences;
mod watcher;

/// Missed intervals after which a runtime is silent.
const MISSED_INTERVALS: u32 = 3;

/// Watchers of one runtime that are remembered: its replicas, and one that was just replaced.
const WATCHERS: usize = 4;

/// What is known of each runtime. Clones share it.
#[derive(Clone, Debug)]
pub struct Liveness {
    runtimes: Arc<Mutex<Runtimes>>,
}

/// One runtime, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeLiveness {
    /// Which.
    pub runtime_id: RuntimeId,
    /// Whether a heartbeat has been due for three intervals.
    pub silent: bool,
    /// Time since its last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// Time since its last event; `None` if there was none.
    pub since_event: Option<Duration>,
    /// Numbered events that should have arrived and have not, over all its watchers since it is known.
    pub missing_events: u64,
    /// How often a look at everything that is watched on the runtime was called for, since changes were dropped, or may
    /// have gone with a Pod. A number that has grown asks for one look.
    pub resyncs_needed: u64,
    /// Its watchers: one for each replica, and those that were replaced, until another one comes.
    pub watchers: Vec<WatcherLiveness>,
}

/// One life of a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatcherLiveness {
    /// Which life.
    pub boot_id: BootId,
    /// Whether it had heartbeats, and the next has been due for three intervals: it cannot reach KCP, or was replaced.
    pub silent: bool,
    /// Time since its last heartbeat; `None` if there was none.
    pub since_heartbeat: Option<Duration>,
    /// The highest event number heard of.
    pub sequence: u64,
    /// Numbered events that should have arrived and have not.
    pub missing_events: u64,
    /// Its last heartbeat, if there was one.
    pub heartbeat: Option<Heartbeat>,
}

#[derive(Debug)]
struct Runtimes {
    limit: usize,
    /// After so long without a heartbeat, a runtime is silent.
    silence: Duration,
    known: HashMap<RuntimeId, Runtime>,
    forgotten: u64,
}

#[derive(Debug, Default)]
struct Runtime {
    /// From when on a heartbeat is due.
    expected: Option<Instant>,
    heartbeat: Option<Instant>,
    event: Option<Instant>,
    watchers: Vec<Watcher>,
    /// Missing from watchers that are not remembered any more.
    missing_before: u64,
    resyncs_needed: u64,
}

impl Liveness {
    /// Remembers at most `limit` runtimes, whose watchers send a heartbeat each `interval`.
    pub(crate) fn new(limit: usize, interval: Duration) -> Self {
        let runtimes = Runtimes {
            limit,
            silence: interval.saturating_mul(MISSED_INTERVALS),
            known: HashMap::new(),
            forgotten: 0,
        };
        Self {
            runtimes: Arc::new(Mutex::new(runtimes)),
        }
    }

    /// All runtimes that are known, in the order of their ids.
    #[must_use]
    pub fn snapshot(&self) -> Vec<RuntimeLiveness> {
        let now = Instant::now();
        let runtimes = self.runtimes();
        let seen = runtimes.known.iter();
        let mut snapshot: Vec<_> = seen
            .map(|(id, runtime)| runtime.seen(id, now, runtimes.silence))
            .collect();
        snapshot.sort_by(|one, other| one.runtime_id.cmp(&other.runtime_id));
        snapshot
    }

    /// Counts on heartbeats of `runtime` from now on, so that one that never says a word is found silent, too.
    pub fn expect(&self, runtime: RuntimeId) {
        let now = Instant::now();
        self.runtimes().entry(runtime, |known| {
            known.expected.get_or_insert(now);
        });
    }

    /// Forgets `runtime`, which is gone, so that its silence alarms nobody.
    pub fn forget(&self, runtime: &RuntimeId) {
        self.runtimes().known.remove(runtime);
    }

    /// Runtimes forgotten because there were more than the limit.
    pub(crate) fn forgotten(&self) -> u64 {
        self.runtimes().forgotten
    }

    pub(crate) fn heartbeat(&self, runtime: &RuntimeId, heartbeat: Heartbeat) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let silence = runtimes.silence;
        runtimes.entry(runtime.clone(), |known| {
            known.heartbeat = Some(now);
            known.resyncs_needed += u64::from(heartbeat.resync_needed);
            let watcher = known.watcher(&heartbeat.boot_id, now, silence);
            watcher.beat(heartbeat, now);
        });
    }

    /// An event has arrived; `number` tells which life of the watcher sent it as its how-manieth.
    pub(crate) fn event(&self, runtime: &RuntimeId, number: Option<(BootId, u64)>) {
        let now = Instant::now();
        let mut runtimes = self.runtimes();
        let silence = runtimes.silence;
        runtimes.entry(runtime.clone(), |known| {
            known.event = Some(now);
            if let Some((boot_id, sequence)) = number {
                known.watcher(&boot_id, now, silence).arrived(sequence);
            }
        });
    }

    fn runtimes(&self) -> MutexGuard<'_, Runtimes> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtimes {
    /// Changes what is known of `id`. One runtime too many takes the place of the one that was heard longest ago.
    fn entry(&mut self, id: RuntimeId, change: impl FnOnce(&mut Runtime)) {
        if !self.known.contains_key(&id) && self.known.len() >= self.limit {
            let quietest = self.known.iter().min_by_key(|(_, known)| known.heard());
            if let Some(quietest) = quietest.map(|(id, _)| id.clone()) {
                self.known.remove(&quietest);
                self.forgotten += 1;
            }
        }
        change(self.known.entry(id).or_default());
    }
}

impl Runtime {
    fn heard(&self) -> Option<Instant> {
        self.heartbeat.max(self.event).max(self.expected)
    }

    /// The watcher `boot_id`, heard now; if it is new, those that have been quiet for the `silence` make room for it.
    fn watcher(&mut self, boot_id: &BootId, now: Instant, silence: Duration) -> &mut Watcher {
        let at = self.watchers.iter().position(|it| it.is(boot_id));
        let at = at.unwrap_or_else(|| {
            self.drop_watchers(now, silence);
            self.watchers.push(Watcher::new(boot_id.clone(), now));
            self.watchers.len() - 1
        });
        let watcher = &mut self.watchers[at];
        // Whatever it brings back, the look was called for.
        self.resyncs_needed += u64::from(watcher.left_a_spool(now, silence));
        watcher.hear(now);
        watcher
    }

    fn drop_watchers(&mut self, now: Instant, silence: Duration) {
        self.watchers.sort_by_key(Watcher::heard);
        let quiet = self.watchers.iter();
        let quiet = quiet.take_while(|it| it.is_quiet(now, silence)).count();
        let surplus = (self.watchers.len() + 1).saturating_sub(WATCHERS);
        let unheard = self.watchers[..quiet]
            .iter()
            .any(|it| !it.was_replaced_in_time(&self.watchers, silence));
        self.resyncs_needed += u64::from(unheard);
        for watcher in self.watchers.drain(..quiet.max(surplus)) {
            self.resyncs_needed += u64::from(watcher.has_spooled());
            self.missing_before = self.missing_before.saturating_add(watcher.missing());
        }
    }

    fn seen(&self, id: &RuntimeId, now: Instant, silence: Duration) -> RuntimeLiveness {
        let since = |at: Option<Instant>| at.map(|at| now.duration_since(at));
        let due = since(self.heartbeat.max(self.expected));
        let watchers = self.watchers.iter();
        let missing = watchers.clone().map(Watcher::missing);
        let left = watchers
            .clone()
            .filter(|watcher| watcher.left_a_spool(now, silence));
        let resyncs_needed = left.fold(self.resyncs_needed, |sum, _| sum + 1);
        RuntimeLiveness {
            runtime_id: id.clone(),
            silent: due.is_some_and(|due| due >= silence),
            since_heartbeat: since(self.heartbeat),
            since_event: since(self.event),
            missing_events: missing.fold(self.missing_before, u64::saturating_add),
            resyncs_needed,
            watchers: watchers.map(|it| it.seen(now, silence)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
