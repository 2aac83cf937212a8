//! How many signals are due and stand, and since when: for an operator whose manager takes none.
//!
//! Invariant: the figures are those of the leader; a replica that does not lead any more shows none. Times are those of
//! this process: a signal that stood before it began counts from then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::SignalMetrics;
use super::ledger::Ledger;
use super::metrics::Figures;

/// How often the figures are shown while there is anything to show.
const SHOW: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Watchman {
    metrics: SignalMetrics,
    /// Since when a signal is seen to stand.
    standing: HashMap<Arc<str>, Instant>,
    shown: Figures,
    next: Instant,
}

impl Watchman {
    pub(super) fn new(metrics: SignalMetrics, now: Instant) -> Self {
        Self {
            metrics,
            standing: HashMap::new(),
            shown: Figures::default(),
            next: now,
        }
    }

    /// When to show again; `None` while there is nothing.
    pub(super) fn due(&self, ledger: &Ledger) -> Option<Instant> {
        let anything = self.shown != Figures::default() || ledger.pending().next().is_some();
        anything.then_some(self.next)
    }

    /// Shows, if it is time.
    pub(super) fn show(&mut self, now: Instant, ledger: &Ledger, stands: impl Fn(&str) -> bool) {
        if now < self.next {
            return;
        }
        self.next = now + SHOW;
        let mut standing = HashMap::new();
        for name in ledger.pending().filter(|name| stands(name)) {
            let known = self.standing.remove_entry(name);
            let (name, since) = known.unwrap_or_else(|| (name.into(), now));
            standing.insert(name, since);
        }
        self.standing = standing;
        let tally = ledger.tally();
        let oldest = self.standing.values().min();
        self.shown = Figures {
            waiting: tally.due,
            standing: tally.standing + tally.outdated,
            oldest: oldest.map(|since| now - *since),
        };
        self.metrics.show(self.shown);
    }
}

impl Drop for Watchman {
    /// Whoever leads next counts from now on.
    fn drop(&mut self) {
        self.metrics.show(Figures::default());
    }
}
