//! Evaluation of all Runtimes at one time: their counts, and the Runtimes to write.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use api::rollout::MAX_FAILED_RUNTIMES;
use policy::sync::signal::{Counts, RuntimeState, Step, Target};
use tokio::time::Instant;

use super::cache::RuntimeCache;
use super::status::Stop;
use super::write::{MAX_IN_FLIGHT, Writer};

/// Minimum time between two evaluations of all Runtimes.
const EVALUATION_INTERVAL: Duration = Duration::from_millis(100);

/// Schedule of the evaluations of all Runtimes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    last: Option<Instant>,
    next: Option<Instant>,
}

impl Schedule {
    /// Schedules an evaluation after a change.
    pub(super) fn soon(&mut self) {
        let earliest = self.last.map(|it| it + EVALUATION_INTERVAL);
        self.by([earliest.unwrap_or_else(Instant::now)]);
    }

    /// Schedules the next evaluation not later than these times.
    pub(super) fn by(&mut self, times: impl IntoIterator<Item = Instant>) {
        self.next = times.into_iter().chain(self.next).min();
    }

    /// Returns whether an evaluation is due, and marks it as done.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_some_and(|it| it <= now);
        if is_due {
            (self.last, self.next) = (Some(now), None);
        }
        is_due
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }
}

/// The evaluation; see the module.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    /// Number of Runtimes by their state; signals in flight count as unacknowledged.
    pub(super) counts: Counts,
    /// Number of Runtimes whose label requests mode `direct`, and that have no `RuntimeBootstrapper`.
    pub(super) unmanaged: usize,
    /// Names of Runtimes that failed, up to the maximum number in a status.
    pub(super) failed: Vec<String>,
    /// Reason for which signals are reported as stopped.
    pub(super) stop: Option<Stop>,
    /// Runtimes to write next. Keys are removed before Runtimes are signaled. Ready Runtimes are signaled before
    /// others: KIM may never acknowledge a signal to a Runtime that is not Ready, which then uses up the limit.
    pub(super) due: VecDeque<(Arc<str>, Step)>,
    /// Time at which a failed write may be retried.
    pub(super) retry_at: Option<Instant>,
    /// Time since which a signal is observed to be unacknowledged.
    unacknowledged: HashMap<Arc<str>, Instant>,
}

impl Evaluation {
    pub(super) fn update(
        &mut self,
        target: &Target,
        cache: &RuntimeCache,
        writer: &mut Writer,
        now: Instant,
    ) {
        let before = std::mem::take(self);
        self.unmanaged = cache.unmanaged();
        let mut groups: [Vec<(Arc<str>, Step)>; 3] = Default::default();
        let mut failing = HashSet::new();
        for (name, runtime) in cache.iter() {
            if self.counts.add(target, &runtime) && self.failed.len() < MAX_FAILED_RUNTIMES {
                self.failed.push(name.to_string());
            }
            if target.is_unacknowledged(&runtime) {
                let since = before.unacknowledged.get(name).copied();
                self.unacknowledged
                    .insert(name.clone(), since.unwrap_or(now));
            }
            let step = target.step(&runtime);
            let group = match step {
                Step::Nothing | Step::Wait => continue,
                Step::RemoveLeftover | Step::MarkStale | Step::Withdraw => 0,
                Step::Signal => 1 + usize::from(runtime.state == RuntimeState::NotReady),
            };
            if writer.is_writing(name) {
                self.counts.unacknowledged += u32::from(step == Step::Signal);
            }
            let retry_at = writer.retry_at(name);
            if retry_at.is_some() {
                failing.insert(name.clone());
            }
            match retry_at.filter(|it| *it > now) {
                Some(at) => self.retry_at = Some(self.retry_at.map_or(at, |it| it.min(at))),
                None if groups[group].len() < MAX_IN_FLIGHT && !writer.is_writing(name) => {
                    groups[group].push((name.clone(), step));
                }
                None => {}
            }
        }
        writer.retain(|name| failing.contains(name));
        self.due = groups.concat().into();
    }

    /// Returns the time since which the oldest signal is unacknowledged.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.unacknowledged.values().min().copied()
    }
}
