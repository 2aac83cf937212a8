//! One object in the queue.

use std::sync::Arc;

use super::managers::ManagerId;
use crate::outbox::moment::Moment;

/// Which take of which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Ticket {
    pub(super) slot: u32,
    pub(super) take: u64,
}

/// An object's place in the queue.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Arc<[u8]>,
    pub(super) manager: ManagerId,
    pub(super) place: Place,
    /// The last change.
    pub(super) changed: Moment,
    /// Since when KCP should know what it is told next.
    pub(super) since: Moment,
    /// Only the confirmation is to be told.
    pub(super) confirming: bool,
    /// 0: none yet.
    pub(super) number: u64,
    pub(super) attempt: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Waiting {
        due: Moment,
        order: u64,
    },
    UnderWay {
        take: u64,
        at: Moment,
        /// The first change since.
        changed: Option<Moment>,
    },
}

/// The slot that `ticket` was given for, when it was taken, and the first change since; if it is still under way.
pub(super) fn under_way(
    slots: &mut [Option<Slot>],
    ticket: Ticket,
) -> Option<(&mut Slot, Moment, Option<Moment>)> {
    let slot = slots.get_mut(ticket.slot as usize)?.as_mut()?;
    match slot.place {
        Place::UnderWay { take, at, changed } if take == ticket.take => Some((slot, at, changed)),
        _ => None,
    }
}
