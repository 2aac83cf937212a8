//! All Runtimes at one moment: numbers, and which ones to write.

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

/// When to evaluate all Runtimes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    last: Option<Instant>,
    next: Option<Instant>,
}

impl Schedule {
    /// Something changed.
    pub(super) fn soon(&mut self) {
        let earliest = self.last.map(|it| it + EVALUATION_INTERVAL);
        self.by([earliest.unwrap_or_else(Instant::now)]);
    }

    /// The next evaluation is not later than these times.
    pub(super) fn by(&mut self, times: impl IntoIterator<Item = Instant>) {
        self.next = times.into_iter().chain(self.next).min();
    }

    /// Whether an evaluation is due, which then counts as carried out.
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    /// Number of Runtimes by their state; signals in flight count as unacknowledged.
    pub(super) counts: Counts,
    /// Names of Runtimes that failed, as many as a status contains.
    pub(super) failed: Vec<String>,
    /// Why signals are reported as stopped.
    pub(super) stop: Option<Stop>,
    /// Runtimes to write next. Keys are removed before Runtimes are signaled, and Ready Runtimes are signaled before others: KIM may
    /// never acknowledge a signal to those, which then uses up the limit.
    pub(super) due: VecDeque<(Arc<str>, Step)>,
    /// When a failed write may be retried.
    pub(super) retry_at: Option<Instant>,
    /// Since when signals are observed to be unacknowledged.
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

    /// Since when the oldest signal is unacknowledged.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.unacknowledged.values().min().copied()
    }
}
