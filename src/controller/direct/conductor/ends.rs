//! What follows from a pass: what is said, and when the next one is.
//!
//! Invariant: whoever had a pass stands in the queue again, unless the resource is gone.

use std::time::Duration;

use component_base::backoff::spread;
use tokio::task::{Id, JoinError};
use tokio::time::Instant;

use super::super::pass::{End, Report};
use super::super::queue::Name;
use super::super::writer::StatusUpdate;
use super::{Conductor, Done, Running};

impl Conductor {
    /// Takes note of what ended.
    pub(in super::super) fn take(&mut self, ended: Result<(Id, Done), JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(name) = self.names.remove(&id) else {
            return;
        };
        let Some(Running { again, aim, .. }) = self.running.remove(&name) else {
            return;
        };
        let is_current = aim == self.aimed();
        match ended {
            Ok((_, Done::Pass(report))) => {
                self.take_report(&report, is_current);
                if again {
                    self.wake(&name);
                }
            }
            Ok((_, Done::Chore(done))) => {
                if !done {
                    self.retry(&name, None);
                    if is_current {
                        self.note_refused(&name);
                    }
                }
                if again {
                    self.wake(&name);
                }
            }
            Err(error) => {
                tracing::error!(runtime = &*name, %error, "reconcile panicked");
                self.retry(&name, None);
                if is_current {
                    self.note(&name, End::Broken, true);
                }
            }
        }
    }

    fn take_report(&mut self, report: &Report, is_current: bool) {
        let name = Name::clone(&report.name);
        let resource = self.register.get(&name).and_then(|it| it.resource.as_ref());
        if resource.is_none_or(|it| it.uid() != report.uid.as_deref()) {
            self.let_be(&name, report);
            return;
        }
        let reason = report
            .status
            .conditions
            .iter()
            .find(|it| it.kind == api::bootstrapper::READY)
            .and_then(|it| known_reason(&it.reason));
        self.common.metrics.reconciled(reason, report.took);
        let now = Instant::now();
        let resync = spread(self.settings.resync, fastrand::u64(..));
        if report.thorough || !self.thorough_at.contains_key(&name) {
            // The first look after a start may be a quick one: the thorough ones then spread over the period.
            let share = if report.thorough {
                resync
            } else {
                resync.mul_f64(fastrand::f64())
            };
            self.thorough_at.insert(Name::clone(&name), now + share);
        }
        self.left_alone.remove(&name);
        self.say(&name, report);
        self.schedule(&name, report, now);
        if is_current {
            self.note(&name, report.end, report.wrote);
        }
    }

    /// The resource went away during the pass, and what the pass noted down goes with it.
    fn let_be(&mut self, name: &Name, report: &Report) {
        if self
            .register
            .get(name)
            .is_none_or(|it| it.resource.is_none())
            && let Some(id) = &report.status.runtime_id
        {
            self.common.claims.release(id);
        }
        self.wake(name);
    }

    fn say(&mut self, name: &Name, report: &Report) {
        let said = self.register.shapes.close(report.status.clone());
        let Some(entry) = self.register.get_mut(name) else {
            return;
        };
        let Some(resource) = &entry.resource else {
            return;
        };
        if entry.status != said && report.end != End::Gone {
            entry.status = said.clone();
            self.statuses.say(StatusUpdate {
                name: Name::clone(name),
                uid: resource.uid().map(str::to_owned),
                status: said,
            });
        }
    }

    fn schedule(&mut self, name: &Name, report: &Report, now: Instant) {
        let thorough = self.thorough_at.get(name).copied();
        let Some(entry) = self.register.get_mut(name) else {
            return;
        };
        match report.end {
            End::Settled | End::Withheld { look_again: false } => {
                entry.attempts = 0;
                entry.steps = 0;
                entry.waits = false;
                entry.whole = false;
                self.queue.set(name, thorough.unwrap_or(now));
            }
            End::Waits | End::Withheld { look_again: true } => {
                // Neither failures that are over nor steps that were made delay the next step. Another writer that undoes each
                // of them is not answered this fast for long.
                let is_first = !std::mem::replace(&mut entry.waits, true);
                entry.steps = entry.steps.saturating_add(u32::from(report.wrote));
                if is_first || (report.wrote && entry.steps <= STEPS) {
                    entry.attempts = 0;
                }
                let delay = self.settings.soon.delay(entry.attempts, fastrand::u64(..));
                entry.attempts = entry.attempts.saturating_add(1);
                entry.whole = true;
                self.queue.set(name, now + delay);
            }
            End::Broken => self.retry(name, None),
            End::Unreached { retry_after }
            | End::Interrupted { retry_after }
            | End::Failed { retry_after } => {
                self.retry(name, retry_after);
            }
            End::Gone => {}
        }
    }

    fn retry(&mut self, name: &Name, at_least: Option<Duration>) {
        let Some(entry) = self.register.get_mut(name) else {
            return;
        };
        let delay = self
            .settings
            .backoff
            .delay(entry.attempts, fastrand::u64(..));
        entry.waits = false;
        entry.attempts = entry.attempts.saturating_add(1);
        let now = Instant::now();
        if let Some(at_least) = at_least {
            self.left_alone.insert(Name::clone(name), now + at_least);
        }
        let delay = delay.max(at_least.unwrap_or_default());
        self.queue.set(name, now + delay);
    }
}

/// Steps of an installation that follow each other without a growing delay: twice as many as one has.
const STEPS: u32 = 8;

/// What came of something on the control plane.
pub(super) fn chore(name: &Name, outcome: &kube::Result<()>) -> Done {
    if let Err(error) = outcome {
        let error = component_base::telemetry::error_chain(error);
        tracing::warn!(runtime = &**name, error, "KCP API request failed");
    }
    Done::Chore(outcome.is_ok())
}

/// The word out of the closed list, so that it can be a label.
fn known_reason(word: &str) -> Option<policy::sync::status::Reason> {
    policy::sync::status::Reason::ALL
        .iter()
        .find(|it| it.name() == word)
        .copied()
}
