//! The members of a rollout: how they join, change their order, and leave.

use std::sync::Arc;
use std::time::Duration;

use super::member::{Initial, Member};
use super::{Name, Rollout, count};

impl Rollout {
    /// Adds a member. An existing member is not changed.
    pub fn join(&mut self, name: &Name, order: u32, initial: Initial, now: Duration) {
        if self.members.contains_key(name) {
            return;
        }
        let mut member = Member::new(order);
        if let Some(target) = self.target {
            member.reset(initial, target, self.is_resumed.then_some(now));
        }
        self.insert(name, member);
    }

    /// Changes the order of a member that has not started.
    pub fn reorder(&mut self, name: &Name, order: u32) {
        if let Some(member) = self.members.get(name)
            && member.order != order
            && member.phase.is_startable()
            && (member.revision.is_none() || member.revision != self.target)
            && let Some(member) = self.remove(name)
        {
            let is_admitted = false;
            self.insert(
                name,
                Member {
                    order,
                    is_admitted,
                    ..member
                },
            );
        }
    }

    fn insert(&mut self, name: &Name, member: Member) {
        *self.all.of(member.phase) += 1;
        self.note_failure(name, member.phase);
        self.order.insert((member.order, Arc::clone(name)));
        self.members.insert(Arc::clone(name), member);
        if self.size() == count(self.order.len()) {
            self.admit_member(name);
        } else {
            self.admit();
        }
        self.proceed();
    }

    /// Adds members that failed under an earlier leader; called before [`Self::begin`] resumes the rollout. A member that has not
    /// started, because it was created again, counts as deleted until it starts.
    pub fn recall_failed(&mut self, names: impl IntoIterator<Item = Name>) {
        self.deleted.extend(names);
    }

    /// Removes a member that an operator excludes from the rollout, with its failure.
    pub fn leave(&mut self, name: &str) {
        let was_deleted = self.deleted.remove(name);
        if self.remove(name).is_some() || was_deleted {
            self.admit();
            self.proceed();
        }
    }

    /// Removes a member that is deleted. Its failure counts until the rollout of another revision starts, until a member of the
    /// same name starts with the revision or is excluded, or until an operator pauses and continues the rollout.
    pub fn delete(&mut self, name: &str) {
        let failed = self.failed.get(name).filter(|_| !self.is_complete);
        self.deleted.extend(failed.cloned());
        if self.remove(name).is_some() {
            self.admit();
            self.proceed();
        }
    }

    fn remove(&mut self, name: &str) -> Option<Member> {
        let (name, member) = self.members.remove_entry(name)?;
        self.failed.remove(&name);
        self.change_counts(member.is_admitted, |it| *it.of(member.phase) -= 1);
        self.order.remove(&(member.order, name));
        Some(member)
    }
}
