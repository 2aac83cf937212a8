//! Progress of a namespace that is not in the desired state.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use component_base::backoff::Backoff;
use policy::copies::RemovalCause;
use tokio::time::Instant;

use super::state::{CopyAction, CopyTask};
use super::writer::WriteError;

/// Minimum time between two writes in one namespace.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Time from the end of the requirement to the deletion.
const REMOVAL_DELAY: Duration = Duration::from_secs(10);

/// Backoff between two lists of the Pods of a namespace whose copy is no longer required and in use.
const IN_USE: Backoff = Backoff {
    base: Duration::from_secs(15),
    cap: Duration::from_mins(5),
};

/// Backoff after failures.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(2),
};

/// Completed writes and deferred tasks of one namespace.
#[derive(Default)]
pub(super) struct Progress {
    /// Time of the next decision, if it is scheduled.
    pub(super) queued: Option<Instant>,
    pub(super) is_writing: bool,
    /// End of the pause after the last write or failure. A change does not shorten the pause.
    pub(super) paused_until: Option<Instant>,
    failures: u32,
    /// The last failure, until a success.
    failing: Option<&'static str>,
    held: Option<Held>,
}

/// A deferred task.
struct Held {
    cause: HeldCause,
    /// Time before which neither the task is executed nor Pods are listed; `None` means never.
    until: Option<Instant>,
    /// Number of times that a Pod was found to use the copy.
    found_in_use: u32,
}

#[derive(PartialEq)]
enum HeldCause {
    /// A copy that must be deleted.
    Removal(RemovalCause),
    /// A Secret of another client in the place of a copy, with its UID.
    Conflict(Option<String>),
}

impl Progress {
    /// Returns when the task is due: `None` if nothing must be done before a change. Each cause of a deletion has a
    /// separate delay, so the deletion of the source does not wait for the Pods for which the copy was kept.
    pub(super) fn due(&mut self, task: &CopyTask, now: Instant) -> Option<Instant> {
        let (cause, until) = match &task.action {
            CopyAction::Create(_) | CopyAction::Update(_) | CopyAction::Recreate(..) => {
                self.held = None;
                return Some(now);
            }
            CopyAction::Remove(_, cause) => (HeldCause::Removal(*cause), now + REMOVAL_DELAY),
            CopyAction::Report(uid) => (HeldCause::Conflict(uid.clone()), now),
        };
        if let Some(held) = &self.held
            && held.cause == cause
        {
            return held.until;
        }
        if let HeldCause::Conflict(_) = cause {
            let text = "a foreign Secret is in the place of the pull Secret and is left alone";
            tracing::warn!(namespace = task.namespace, "{text}");
        }
        self.held = Some(Held {
            cause,
            until: Some(until),
            found_in_use: 0,
        });
        Some(until)
    }

    /// Returns whether a Secret of another client is in the place of the copy.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(&self.held, Some(held) if matches!(held.cause, HeldCause::Conflict(_)))
    }

    /// Records the end of a task. Returns the end of the pause after it.
    pub(super) fn executed(&mut self, is_ok: bool) -> Instant {
        self.is_writing = false;
        let pause = if is_ok {
            self.failures = 0;
            WRITE_INTERVAL
        } else {
            self.failures = self.failures.saturating_add(1);
            RETRY.delay(self.failures - 1, fastrand::u64(..))
        };
        *self.paused_until.insert(Instant::now() + pause)
    }

    /// Continues to defer the task, because a Pod uses the copy, or because its conflict was reported.
    pub(super) fn hold(&mut self, namespace: &str, user: Option<String>) {
        let Some(held) = &mut self.held else { return };
        held.until = user.map(|pod| {
            if held.found_in_use == 0 {
                let text = "deletion of pull Secret copy deferred, used by a Pod";
                tracing::info!(namespace, pod, "{text}");
            }
            let pause = IN_USE.delay(held.found_in_use, fastrand::u64(..));
            held.found_in_use = held.found_in_use.saturating_add(1);
            Instant::now() + pause
        });
    }
}

/// Records the failure or the recovery of a namespace. Returns the reason if it must be logged: a failure is logged once
/// per namespace until it changes, and so is the recovery. A missing permission is logged once for all namespaces.
pub(super) fn note_failure(
    tracked: &mut HashMap<String, Progress>,
    namespace: &str,
    error: Option<&WriteError>,
) -> Option<&'static str> {
    let reason = error.map(WriteError::reason);
    let before = mem::replace(&mut tracked.get_mut(namespace)?.failing, reason);
    let mut others = tracked.iter().filter(|(name, _)| *name != namespace);
    let failure = reason.or(before)?;
    let is_logged_for_all =
        failure == WriteError::FORBIDDEN && others.any(|(_, it)| it.failing == Some(failure));
    // After a conflict the next event decides whether anything must be done.
    let is_changed = before != reason && !matches!(error, Some(WriteError::Changed));
    (is_changed && !is_logged_for_all).then_some(failure)
}
