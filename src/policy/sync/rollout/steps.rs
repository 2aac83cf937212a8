//! The steps of a rollout: the members that the current step admits, and the start of the next step.

use super::member::{Member, Phase};
use super::{Name, Rollout, Stopped, count};

impl Rollout {
    pub(super) fn stopped(&self) -> Option<Stopped> {
        if self.is_paused {
            return Some(Stopped::Paused);
        }
        let limit = self.settings.max_failures?.of(self.admitted.total());
        let failed = self.all.failed + count(self.deleted.len());
        (!self.is_complete && failed > limit).then_some(Stopped::FailureLimitExceeded)
    }

    /// Admits members until the step has its size: first members that have started, then the other members in order.
    /// After the last step all members may start.
    pub(super) fn admit(&mut self) {
        if self.target.is_none() {
            return;
        }
        let size = self.size();
        if self.admitted.total() >= size {
            return;
        }
        // Only a resumed rollout counts members that have the revision as started: in a new rollout they had it before.
        let has = self.target.filter(|_| self.is_resumed);
        let has_started = |member: &Member| match member.phase {
            Phase::Progressing { .. } | Phase::Soaking { .. } | Phase::Failed { .. } => true,
            Phase::Waiting | Phase::Unreachable | Phase::Done => {
                has.is_some() && member.revision == has
            }
        };
        let others = |it: &Name| {
            let member = self.members.get(it);
            member.is_some_and(|it| !it.is_admitted && it.takes_place(self.target))
        };
        let names = self
            .order
            .iter()
            .map(|(_, name)| name)
            .filter(|it| others(it));
        let (first, then): (Vec<Name>, Vec<Name>) = names
            .cloned()
            .partition(|it| self.members.get(it).is_some_and(&has_started));
        for name in first.iter().chain(&then) {
            if self.admitted.total() >= size {
                return;
            }
            self.admit_member(name);
            self.admissions += 1;
        }
    }

    pub(super) fn admit_member(&mut self, name: &str) {
        if let Some(member) = self.members.get_mut(name)
            && !member.is_admitted
            && member.takes_place(self.target)
            && self.target.is_some()
        {
            member.is_admitted = true;
            *self.admitted.of(member.phase) += 1;
        }
    }

    /// Returns the number of members that the current step admits.
    pub(super) fn size(&self) -> u32 {
        let all = count(self.order.len());
        if self.is_complete {
            all
        } else {
            self.settings.size(self.step, all)
        }
    }

    /// Starts the next step while the current one has settled, and completes the rollout after the last step. A step
    /// of which no member was reached is not completed, nor is a rollout without members: nothing shows that the
    /// revision works.
    pub(super) fn proceed(&mut self) {
        while !self.is_complete
            && self.target.is_some()
            && self.stopped().is_none()
            && self.admitted.total() > 0
            && self.admitted.unsettled() == 0
        {
            if !self.is_last_step() {
                self.step += 1;
                self.admit();
            } else if self.admitted.done > 0 || self.admitted.failed > 0 {
                self.is_complete = true;
                self.completed = self.target;
                self.deleted.clear();
            } else {
                // All members are unreachable.
                return;
            }
        }
    }
}
