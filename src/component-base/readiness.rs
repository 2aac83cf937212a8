//! Readiness of a process, as named checks.
//!
//! Invariant: the process is ready when it has at least one check, all checks pass, and it is not draining. Setting a
//! check is a synchronous call, so that request handlers and watches can use it. Not in here: HTTP (see
//! [`crate::admin`]) and expiry of checks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::watch::WatchMetrics;

/// State of a check.
#[derive(Debug)]
enum CheckState {
    Ready,
    NotReady(String),
    Detail(String),
}

/// All checks of one process. Clones share the checks.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Checks>>,
    probes: watch::Sender<Probes>,
    watches: WatchMetrics,
}

#[derive(Debug, Default)]
struct Checks {
    states: BTreeMap<Cow<'static, str>, CheckState>,
    draining: Option<Instant>,
}

/// What the readiness probes have found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probes {
    /// There was no probe. There may never be one.
    #[default]
    None,
    /// No probe has found the process ready, so it gets no requests.
    NotReady,
    /// The time of the first probe that found the process ready.
    Ready(Instant),
}

impl Readiness {
    /// Creates a state without checks. Watches report their failures in these metrics.
    #[must_use]
    pub fn new(watches: WatchMetrics) -> Self {
        Self {
            watches,
            ..Self::default()
        }
    }

    /// Adds a check, which is not ready at first. A second call with the same name returns another handle of the same check
    /// and does not change its state.
    #[must_use]
    pub fn check(&self, name: impl Into<Cow<'static, str>>) -> ReadinessCheck {
        let name = name.into();
        self.lock()
            .states
            .entry(name.clone())
            .or_insert_with(|| CheckState::NotReady("not reported yet".to_owned()));
        ReadinessCheck {
            name,
            readiness: self.clone(),
            is_advisory: false,
        }
    }

    /// Returns a check that never fails: a failure is only a message for operators. It is for conditions for which a ready
    /// process starts to wait later, often together with all other replicas.
    #[must_use]
    pub fn advisory_check(&self, name: impl Into<Cow<'static, str>>) -> ReadinessCheck {
        ReadinessCheck {
            name: name.into(),
            readiness: self.clone(),
            is_advisory: true,
        }
    }

    /// Makes the process permanently not ready, so that it is removed from endpoints before it stops serving.
    pub fn drain(&self) {
        self.lock().draining.get_or_insert_with(Instant::now);
    }

    /// Returns when the process started to drain.
    #[must_use]
    pub fn draining_since(&self) -> Option<Instant> {
        self.lock().draining
    }

    /// Returns the report for a readiness probe, which is recorded.
    #[must_use]
    pub fn probe(&self) -> (bool, String) {
        let (is_ready, report) = self.report();
        self.probes.send_if_modified(|probes| {
            let before = *probes;
            *probes = match (before, is_ready) {
                (Probes::Ready(_), _) => before,
                (_, true) => Probes::Ready(Instant::now()),
                (_, false) => Probes::NotReady,
            };
            before != *probes
        });
        (is_ready, report)
    }

    /// Returns what the probes have found, now and in future.
    #[must_use]
    pub fn probes(&self) -> watch::Receiver<Probes> {
        self.probes.subscribe()
    }

    /// Returns whether the process is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }

    /// Returns whether the process is ready, and one line per check.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let checks = self.lock();
        let mut lines = Vec::new();
        if checks.draining.is_some() {
            lines.push("shutdown: not ready: draining".to_owned());
        }
        if checks.states.is_empty() {
            lines.push("conditions: not ready: none registered yet".to_owned());
        }
        for (name, state) in &checks.states {
            let line = match state {
                CheckState::Ready => format!("{name}: ready"),
                CheckState::NotReady(reason) => format!("{name}: not ready: {reason}"),
                CheckState::Detail(message) => format!("{name}: ready: {message}"),
            };
            lines.push(line.replace(char::is_control, " "));
        }
        (checks.is_ready(), lines.join("\n") + "\n")
    }

    fn lock(&self) -> MutexGuard<'_, Checks> {
        // No code panics while it holds the lock, and the map would be valid after a panic.
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle of one check. Clones share the check.
#[derive(Clone, Debug)]
pub struct ReadinessCheck {
    name: Cow<'static, str>,
    readiness: Readiness,
    is_advisory: bool,
}

impl ReadinessCheck {
    /// Returns the name of the check.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the check. If another handle sets it, it is added again.
    pub fn remove(&self) {
        self.readiness.lock().states.remove(&self.name);
    }

    /// Returns the metrics of the watches of this process.
    pub(crate) fn watches(&self) -> &WatchMetrics {
        &self.readiness.watches
    }

    fn set(&self, state: CheckState) {
        let mut checks = self.readiness.lock();
        checks.states.insert(self.name.clone(), state);
    }

    /// Records that the check passes.
    pub fn ready(&self) {
        self.set(CheckState::Ready);
    }

    /// Records that the check fails, so that requests should go to another replica. An advisory check passes. The reason is
    /// for operators.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(if self.is_advisory {
            CheckState::Detail(reason.into())
        } else {
            CheckState::NotReady(reason.into())
        });
    }

    /// Records that the check passes, with a message for operators, for instance that a document was rejected, or that a
    /// watch fails while its last state is still served.
    pub fn detail(&self, message: impl Into<String>) {
        self.set(CheckState::Detail(message.into()));
    }
}

impl Checks {
    fn is_ready(&self) -> bool {
        let mut states = self.states.values();
        let fails = states.any(|state| matches!(state, CheckState::NotReady(_)));
        self.draining.is_none() && !self.states.is_empty() && !fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_report(readiness: &Readiness, is_ready: bool, lines: &str) {
        assert_eq!(readiness.report(), (is_ready, lines.to_owned()));
    }

    #[test]
    fn nothing_registered_is_not_ready() {
        let expected = "conditions: not ready: none registered yet\n";
        assert_report(&Readiness::default(), false, expected);
    }

    #[test]
    fn every_condition_must_agree_and_a_remark_is_no_objection() {
        let readiness = Readiness::default();
        let config = readiness.check("config");
        let certificate = readiness.check(String::from("certificate"));
        config.ready();
        let expected = "certificate: not ready: not reported yet\nconfig: ready\n";
        assert_report(&readiness, false, expected);

        certificate.ready();
        config.detail("document 7 refused:\nline 3");
        let expected = "certificate: ready\nconfig: ready: document 7 refused: line 3\n";
        assert_report(&readiness, true, expected);

        config.not_ready("gone");
        assert!(!readiness.is_ready());
    }

    #[test]
    fn handles_of_one_name_share_one_condition() {
        let readiness = Readiness::default();
        readiness.check("watch").ready();
        let again = readiness.check("watch");
        assert!(readiness.is_ready());
        assert_eq!(again.name(), "watch");
    }

    #[test]
    fn an_advisory_check_never_fails() {
        let readiness = Readiness::default();
        readiness.check("config").ready();
        let advisory = readiness.advisory_check("watch");
        assert_report(&readiness, true, "config: ready\n");
        advisory.not_ready("first list not complete yet");
        let expected = "config: ready\nwatch: ready: first list not complete yet\n";
        assert_report(&readiness, true, expected);
    }

    #[test]
    fn a_removed_condition_does_not_count() {
        let readiness = Readiness::default();
        readiness.check("config").ready();
        let watch = readiness.check("watch");
        assert!(!readiness.is_ready());
        watch.remove();
        assert_report(&readiness, true, "config: ready\n");
    }

    #[test]
    fn the_first_successful_probe_is_recorded() {
        let readiness = Readiness::default();
        let probes = readiness.probes();
        let condition = readiness.check("config");
        assert_eq!(*probes.borrow(), Probes::None);
        assert!(!readiness.probe().0);
        assert_eq!(*probes.borrow(), Probes::NotReady);
        condition.ready();
        assert_eq!(*probes.borrow(), Probes::NotReady);
        assert!(readiness.probe().0);
        let first = *probes.borrow();
        assert!(matches!(first, Probes::Ready(_)));
        condition.not_ready("gone");
        assert!(!readiness.probe().0);
        condition.ready();
        assert!(readiness.probe().0);
        assert_eq!(*probes.borrow(), first);
    }

    #[test]
    fn drain_wins_over_conditions_for_good() {
        let readiness = Readiness::default();
        let condition = readiness.check("config");
        condition.ready();
        assert_eq!(readiness.draining_since(), None);
        readiness.clone().drain();
        let since = readiness.draining_since();
        readiness.drain();
        assert!(since.is_some() && readiness.draining_since() == since);
        condition.ready();
        let expected = "shutdown: not ready: draining\nconfig: ready\n";
        assert_report(&readiness, false, expected);
    }
}
