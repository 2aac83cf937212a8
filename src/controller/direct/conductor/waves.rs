//! The conductor's part in rollouts: who takes part, who may begin, and who is woken when the next wave comes.
//!
//! Invariant: nobody who cannot arrive holds up a wave: neither a paused runtime nor one on its way out takes part.

use api::bootstrapper::{
    ConditionStatus, IDENTITY_VERIFIED, INSTALLED, REACHABLE, RuntimeBootstrapper,
    RuntimeBootstrapperStatus,
};
use policy::sync::desired::Desired;
use policy::sync::status::{Goal, Withheld};
use policy::sync::waves::{ReconcileResult, State};

use super::super::pass::{End, purpose};
use super::super::progress::Stored;
use super::super::queue::Name;
use super::super::rollout::{Aim, Earlier, Member, Rollouts};
use super::super::store::Entry;
use super::Conductor;

impl Conductor {
    pub(super) fn begin(&mut self, aim: Aim, desired: &Desired) {
        let members = self
            .register
            .resources()
            .filter(takes_part)
            .map(|(name, entry)| Member {
                name: name.to_string(),
                order: self.register.order(name),
                state: state(entry.status.shape(), aim, desired),
            });
        let settings = self
            .rollouts
            .as_ref()
            .map_or(self.settings.waves, Rollouts::settings);
        let mut rollouts = Rollouts::begin(settings, aim, &members.collect::<Vec<_>>());
        if let Some(earlier) = self.earlier.take() {
            rollouts.recall(&earlier);
        }
        if let Some(before) = &self.rollouts {
            rollouts.follow(before);
        }
        rollouts.pause(self.paused.unwrap_or(true));
        self.rollouts = Some(rollouts);
        self.publish();
    }

    /// What the rollout's ConfigMap says: what an earlier leader learnt, and whether an operator stops the rollout or lets
    /// it go on.
    pub(in super::super) fn hear(&mut self, stored: &Stored) {
        if !self.has_heard() {
            self.earlier = stored.progress.as_deref().and_then(Earlier::read);
        }
        self.paused = Some(stored.paused);
        self.pause(stored.paused);
    }

    /// Whether that is known.
    pub(in super::super) fn has_heard(&self) -> bool {
        self.paused.is_some()
    }

    fn pause(&mut self, paused: bool) {
        if let Some(rollouts) = &mut self.rollouts {
            rollouts.pause(paused);
        }
        self.wake_waiting();
        self.publish();
    }

    /// Why nothing may be written to a runtime now, if so; else it has begun.
    pub(super) fn withheld(
        &mut self,
        name: &Name,
        resource: &RuntimeBootstrapper,
    ) -> Option<Withheld> {
        if purpose(resource) != Goal::Sync {
            self.leave_rollout(name);
            return None;
        }
        if resource.spec.paused {
            self.leave_rollout(name);
            return Some(Withheld::Paused);
        }
        let order = self.register.order(name);
        let rollouts = self.rollouts.as_mut()?;
        rollouts.join(name, order);
        (!rollouts.start(name, self.origin.elapsed())).then_some(Withheld::Wave)
    }

    /// A runtime does not take part any more.
    pub(super) fn leave_rollout(&mut self, name: &str) {
        if let Some(rollouts) = &mut self.rollouts
            && rollouts.leave(name)
        {
            self.wake_waiting();
            self.publish();
        }
    }

    /// Notes what the end of a reconcile means for the rollout, and whether the reconcile tried to write something.
    pub(super) fn note(&mut self, name: &Name, end: End, wrote: bool) {
        let result = match end {
            End::Settled => ReconcileResult::Done,
            End::Waits => ReconcileResult::Progressing,
            End::Interrupted { .. } => ReconcileResult::Interrupted,
            End::Broken | End::Failed { .. } => ReconcileResult::Failed,
            End::Unreached { .. } => ReconcileResult::Unreachable,
            End::Withheld { .. } => ReconcileResult::Withheld,
            End::Gone => return,
        };
        self.note_result(name, result, wrote);
    }

    /// Notes a reconcile that the control plane did not let happen: it cannot go on so for ever.
    pub(super) fn note_refused(&mut self, name: &Name) {
        self.note_result(name, ReconcileResult::Interrupted, false);
    }

    fn note_result(&mut self, name: &Name, result: ReconcileResult, wrote: bool) {
        let Some(rollouts) = &mut self.rollouts else {
            return;
        };
        if rollouts.note(name, result, wrote, self.origin.elapsed()) {
            self.wake_waiting();
        }
        self.publish();
    }

    /// Others may go on now, or not any more.
    fn wake_waiting(&mut self) {
        let Some(rollouts) = &self.rollouts else {
            return;
        };
        let waiting: Vec<Name> = self
            .register
            .resources()
            .filter(|(name, _)| rollouts.state(name) == Some(State::Waiting))
            .filter(|(name, _)| rollouts.may_start(name))
            .map(|(name, _)| Name::clone(name))
            .collect();
        for name in waiting {
            self.wake(&name);
        }
    }

    fn publish(&self) {
        let Some(rollouts) = &self.rollouts else {
            return;
        };
        let text = rollouts.published(self.installations.default().version());
        self.progress.send_if_modified(|before| {
            let changed = *before != text;
            *before = text;
            changed
        });
    }
}

fn takes_part((_, entry): &(&Name, &Entry)) -> bool {
    entry
        .resource
        .as_ref()
        .is_some_and(|it| purpose(it.shape()) == Goal::Sync && !it.shape().spec.paused)
}

/// Where a runtime stands on the way to an aim, by what was last said about it. The hash says only that all manifests are
/// there: a runtime whose Pods are not ready yet, or that cannot be reached since, may not have arrived.
fn state(status: &RuntimeBootstrapperStatus, aim: Aim, desired: &Desired) -> State {
    let webhook = status.webhook.as_ref();
    let installed = webhook.and_then(|it| it.manifest_hash.as_deref());
    if desired.is_held(status.configuration.as_ref())
        && installed == Some(&*aim.webhook.to_string())
        && has_condition(status, &[INSTALLED], ConditionStatus::True)
    {
        State::Done
    } else if is_reached(status) {
        State::Waiting
    } else {
        State::Unreachable
    }
}

/// Whether the last reconcile reached the runtime and verified its identity, so that writes to it were possible.
pub(super) fn is_reached(status: &RuntimeBootstrapperStatus) -> bool {
    let kinds = [REACHABLE, IDENTITY_VERIFIED];
    !has_condition(status, &kinds, ConditionStatus::False)
}

/// Whether one of these conditions has that status.
fn has_condition(
    status: &RuntimeBootstrapperStatus,
    kinds: &[&str],
    wanted: ConditionStatus,
) -> bool {
    let conditions = status.conditions.iter();
    let mut of_kinds = conditions.filter(|it| kinds.contains(&&*it.kind));
    of_kinds.any(|it| it.status == wanted)
}
