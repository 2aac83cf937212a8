//! What the process still waits for, as named conditions.
//!
//! Invariant: the process is ready when it has at least one condition, none of them says
//! otherwise, and it does not drain. Setting a condition is a plain call without `await`, so the
//! request path and the watch loops can both do it. Deliberately absent: HTTP (see
//! [`crate::admin`]) and time (a condition never expires by itself).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::watch::WatchMetrics;

/// What one condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// In order.
    Ready,
    /// Not in order: requests should go elsewhere. The reason is for a human.
    NotReady(String),
    /// In order, with a remark that an operator should see (a broken document was refused, a
    /// watch fails but its last state is still served).
    Detail(String),
}

/// All conditions of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Conditions>>,
    watches: WatchMetrics,
}

#[derive(Debug, Default)]
struct Conditions {
    states: BTreeMap<Cow<'static, str>, State>,
    draining: bool,
}

impl Readiness {
    /// No conditions yet. A watch that is given one of them counts its failures in these metrics.
    #[must_use]
    pub fn new(watches: WatchMetrics) -> Self {
        Self {
            watches,
            ..Self::default()
        }
    }

    /// Adds a condition, which begins as not ready. Asking again for the same name gives a
    /// second handle on the same condition and leaves its state alone.
    #[must_use]
    pub fn condition(&self, name: impl Into<Cow<'static, str>>) -> Condition {
        let name = name.into();
        self.lock()
            .states
            .entry(name.clone())
            .or_insert_with(|| State::NotReady("not reported yet".to_owned()));
        Condition {
            name,
            readiness: self.clone(),
        }
    }

    /// Turns readiness off for good, whatever the conditions say: endpoints must forget this
    /// process before it stops to serve.
    pub fn drain(&self) {
        self.lock().draining = true;
    }

    /// Whether requests may be sent here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lock().is_ready()
    }

    /// Whether requests may be sent here, and one line a condition for a human.
    #[must_use]
    pub fn report(&self) -> (bool, String) {
        let conditions = self.lock();
        (conditions.is_ready(), conditions.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Conditions> {
        // No code path panics while it holds the lock, and the map is valid after any of them.
        self.conditions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle on one named condition. Clones share the condition.
#[derive(Clone, Debug)]
pub struct Condition {
    name: Cow<'static, str>,
    readiness: Readiness,
}

impl Condition {
    /// The name given to [`Readiness::condition`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the condition, whatever it says. Another handle that sets it adds it again.
    pub fn remove(&self) {
        self.readiness.lock().states.remove(&self.name);
    }

    /// The metrics of the watches of this process.
    pub(crate) fn watches(&self) -> &WatchMetrics {
        &self.readiness.watches
    }

    /// Replaces what the condition says.
    pub fn set(&self, state: State) {
        self.readiness
            .lock()
            .states
            .insert(self.name.clone(), state);
    }

    /// Sets [`State::Ready`].
    pub fn ready(&self) {
        self.set(State::Ready);
    }

    /// Sets [`State::NotReady`].
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.set(State::NotReady(reason.into()));
    }

    /// Sets [`State::Detail`].
    pub fn detail(&self, remark: impl Into<String>) {
        self.set(State::Detail(remark.into()));
    }
}

impl Conditions {
    fn is_ready(&self) -> bool {
        !self.draining
            && !self.states.is_empty()
            && !self
                .states
                .values()
                .any(|state| matches!(state, State::NotReady(_)))
    }
}

impl std::fmt::Display for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.draining {
            f.write_str("shutdown: not ready: draining\n")?;
        }
        if self.states.is_empty() {
            f.write_str("conditions: not ready: none registered yet\n")?;
        }
        for (name, state) in &self.states {
            write!(f, "{name}: ")?;
            match state {
                State::Ready => f.write_str("ready")?,
                State::NotReady(reason) => write_line(f, "not ready: ", reason)?,
                State::Detail(remark) => write_line(f, "ready: ", remark)?,
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

/// One condition is one line, whatever an error message contains.
fn write_line(f: &mut std::fmt::Formatter<'_>, prefix: &str, text: &str) -> std::fmt::Result {
    f.write_str(prefix)?;
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .try_for_each(|c| f.write_char(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_registered_is_not_ready() {
        let (ready, report) = Readiness::default().report();
        assert!(!ready);
        assert_eq!(report, "conditions: not ready: none registered yet\n");
    }

    #[test]
    fn every_condition_must_agree_and_a_remark_is_no_objection() {
        let readiness = Readiness::default();
        let config = readiness.condition("config");
        let certificate = readiness.condition(String::from("certificate"));
        config.ready();
        assert_eq!(
            readiness.report(),
            (
                false,
                "certificate: not ready: not reported yet\nconfig: ready\n".to_owned()
            )
        );

        certificate.ready();
        config.detail("document 7 refused:\nline 3");
        assert_eq!(
            readiness.report(),
            (
                true,
                "certificate: ready\nconfig: ready: document 7 refused: line 3\n".to_owned()
            )
        );

        config.not_ready("gone");
        assert!(!readiness.is_ready());
    }

    #[test]
    fn handles_of_one_name_share_one_condition() {
        let readiness = Readiness::default();
        readiness.condition("watch").ready();
        let again = readiness.condition("watch");
        assert!(readiness.is_ready());
        assert_eq!(again.name(), "watch");
    }

    #[test]
    fn a_removed_condition_does_not_count() {
        let readiness = Readiness::default();
        readiness.condition("config").ready();
        let watch = readiness.condition("watch");
        assert!(!readiness.is_ready());
        watch.remove();
        assert_eq!(readiness.report(), (true, "config: ready\n".to_owned()));
    }

    #[test]
    fn drain_wins_over_conditions_for_good() {
        let readiness = Readiness::default();
        let condition = readiness.condition("config");
        condition.ready();
        readiness.clone().drain();
        condition.ready();
        assert_eq!(
            readiness.report(),
            (
                false,
                "shutdown: not ready: draining\nconfig: ready\n".to_owned()
            )
        );
    }
}
