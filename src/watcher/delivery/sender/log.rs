//! Log messages about deliveries: at most two messages per subject in [`PAUSE`]. Managers that any client may have invented
//! share one subject, and their names are not logged.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use component_base::telemetry::error_chain;
use watcher_types::PathSegment;

use crate::delivery::PostError;

/// Time between two messages about failures of the same subject.
const PAUSE: Duration = Duration::from_mins(10);

/// Target that fails or recovers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Kcp,
    /// A manager that is configured or has accepted an event.
    Manager(PathSegment),
    /// All other managers.
    Others,
}

#[derive(Default)]
pub(super) struct DeliveryLog {
    failing: HashMap<Subject, Failing>,
}

struct Failing {
    logged_at: Instant,
    fails: bool,
    /// Whether the recovery is logged.
    logged: bool,
}

impl DeliveryLog {
    pub(super) fn failed(&mut self, subject: Subject, error: &PostError, now: Instant) {
        if let Some(known) = self.failing.get_mut(&subject)
            && (known.fails || now < known.logged_at + PAUSE)
        {
            known.fails = true;
            return;
        }
        let error = error_chain(error);
        match &subject {
            Subject::Kcp => tracing::warn!(error, "delivery failed, retrying"),
            Subject::Manager(manager) => {
                tracing::warn!(%manager, error, "delivery to manager failed, retrying");
            }
            Subject::Others => {
                tracing::warn!(
                    error,
                    "delivery to managers that are not configured failed, retrying"
                );
            }
        }
        let failing = Failing {
            logged_at: now,
            fails: true,
            logged: true,
        };
        self.failing.insert(subject, failing);
    }

    /// Records that a request to `subject` was successful.
    pub(super) fn recovered(&mut self, subject: &Subject) {
        let Some(known) = self.failing.get_mut(subject) else {
            return;
        };
        known.fails = false;
        if !std::mem::take(&mut known.logged) {
            return;
        }
        match subject {
            Subject::Kcp => tracing::info!("delivery recovered"),
            Subject::Manager(manager) => tracing::info!(%manager, "delivery to manager recovered"),
            Subject::Others => {
                tracing::info!("delivery to managers that are not configured recovered");
            }
        }
    }

    /// Removes managers that are not registered anymore.
    pub(super) fn retain(&mut self, is_registered: impl Fn(&PathSegment) -> bool) {
        self.failing.retain(|subject, _| match subject {
            Subject::Manager(manager) => is_registered(manager),
            Subject::Kcp | Subject::Others => true,
        });
    }
}
