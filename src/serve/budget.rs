//! The memory that all request bodies of one server may hold together.
//!
//! Invariant: the shares that are held never exceed the budget in sum. Bytes are counted when they have arrived, so a
//! peer that announces a large body and sends none of it holds nothing.
//!
//! Bodies arrive into blocks of one size, which are kept for the next body instead of being freed: buffers that grow and
//! are freed in the middle leave an allocator with several times the memory that is in use.
//!
//! When the budget is used up, the bodies that began earliest and are still incomplete are evicted. A peer that sends
//! fast therefore always gets through: its body is lost only if a whole budget arrives from other peers while it is on
//! its way. A body that is complete is being handled and is never evicted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Counter, Statistics};

/// The unit of the budget, in bytes: what the smallest body takes.
pub(crate) const BLOCK: usize = 16 * 1024;

/// The budget of one server.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    /// In blocks, as all that follows.
    total: usize,
    statistics: Statistics,
    state: Mutex<State>,
    /// Told whenever bytes are given back.
    released: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Of evicted bodies, whose readers are about to give them back.
    evicted: usize,
    /// Empty ones, for the next body.
    spare: Vec<Vec<u8>>,
    next: u64,
    /// The incomplete bodies that hold blocks, in the order in which they began.
    incomplete: BTreeMap<u64, Incomplete>,
}

#[derive(Debug)]
struct Incomplete {
    held: usize,
    evicted: CancellationToken,
}

/// The body has lost its share to a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted;

/// What one body holds of the budget; given back on drop.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<BodyBudget>,
    held: usize,
    /// What has arrived of a body that did not come at once.
    blocks: Vec<Vec<u8>>,
    /// While the body is incomplete: its number, and how it learns of its eviction.
    incomplete: Option<(u64, CancellationToken)>,
    waiting: bool,
}

impl BodyBudget {
    /// A budget of so many bytes, rounded up to whole blocks.
    pub(crate) fn new(bytes: usize, statistics: Statistics) -> Arc<Self> {
        let total = bytes.div_ceil(BLOCK);
        Arc::new(Self {
            total,
            statistics,
            state: Mutex::new(State {
                free: total,
                evicted: 0,
                spare: Vec::new(),
                next: 0,
                incomplete: BTreeMap::new(),
            }),
            released: Notify::new(),
        })
    }

    /// The share of a new body; it holds nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> BudgetShare {
        BudgetShare {
            budget: Arc::clone(self),
            held: 0,
            blocks: Vec::new(),
            incomplete: None,
            waiting: false,
        }
    }

    fn show(&self, state: &State) {
        let held = (self.total - state.free) * BLOCK;
        self.statistics.set(Counter::BodyBytes, held);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps blocks for the next body.
    fn keep(&mut self, blocks: &mut Vec<Vec<u8>>) {
        for mut block in blocks.drain(..) {
            block.clear();
            self.spare.push(block);
        }
    }

    /// Evicts the earliest incomplete bodies until `blocks` are free or about to be, but none that began after `own`,
    /// and none if all of them would not be enough.
    fn evict(&mut self, blocks: usize, own: Option<u64>) {
        let mut missing = blocks.saturating_sub(self.free + self.evicted);
        let earlier = self.incomplete.range(..own.unwrap_or(u64::MAX));
        let evictable: usize = earlier.map(|(_, body)| body.held).sum();
        if evictable < missing {
            return;
        }
        while missing > 0
            && let Some((_, body)) = self.incomplete.pop_first()
        {
            missing = missing.saturating_sub(body.held);
            self.evicted += body.held;
            body.evicted.cancel();
        }
    }
}

impl BudgetShare {
    /// Counts a body of so many bytes that has come at once.
    ///
    /// # Errors
    /// [`Evicted`], as [`append`](Self::append).
    pub(crate) async fn count(&mut self, bytes: usize) -> Result<(), Evicted> {
        self.take(bytes.div_ceil(BLOCK), true).await
    }

    /// Keeps `piece`, which has arrived, and waits while the budget is used up.
    ///
    /// # Errors
    /// [`Evicted`] if the share went to a newer body.
    pub(crate) async fn append(&mut self, mut piece: &[u8]) -> Result<(), Evicted> {
        while !piece.is_empty() {
            let left = self.blocks.last().map_or(0, |last| BLOCK - last.len());
            if left == 0 {
                self.take(1, false).await?;
                let spare = self.budget.state().spare.pop();
                let block = spare.unwrap_or_else(|| Vec::with_capacity(BLOCK));
                self.blocks.push(block);
                continue;
            }
            let (now, later) = piece.split_at(left.min(piece.len()));
            if let Some(last) = self.blocks.last_mut() {
                last.extend_from_slice(now);
            }
            piece = later;
        }
        Ok(())
    }

    /// The body, complete: it is not evicted from now on. The share is held as before.
    ///
    /// # Errors
    /// [`Evicted`], as [`append`](Self::append).
    pub(crate) async fn complete(&mut self) -> Result<Vec<u8>, Evicted> {
        self.take(0, true).await?;
        let body = self.blocks.concat();
        let mut state = self.budget.state();
        state.keep(&mut self.blocks);
        Ok(body)
    }

    async fn take(&mut self, blocks: usize, complete: bool) -> Result<(), Evicted> {
        let budget = Arc::clone(&self.budget);
        loop {
            // Registered before each try, so that no release is missed in between.
            let mut released = pin!(budget.released.notified());
            released.as_mut().enable();
            self.waiting = !self.try_take(blocks, complete);
            if !self.waiting {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = self.evicted() => return Err(Evicted),
                () = released => {}
            }
        }
    }

    /// Ready when the share went to a newer body.
    pub(crate) async fn evicted(&self) {
        match &self.incomplete {
            Some((_, evicted)) => evicted.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the body has arrived further than the budget allows to keep.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn try_take(&mut self, blocks: usize, complete: bool) -> bool {
        let mut state = self.budget.state();
        let own = self.incomplete.as_ref().map(|(number, _)| *number);
        if own.is_some_and(|number| !state.incomplete.contains_key(&number)) {
            // Evicted; the caller learns it by its token.
            return false;
        }
        let Some(free) = state.free.checked_sub(blocks) else {
            state.evict(blocks, own);
            return false;
        };
        state.free = free;
        self.budget.show(&state);
        self.held += blocks;
        if complete {
            own.and_then(|number| state.incomplete.remove(&number));
            self.incomplete = None;
        } else {
            let (number, evicted) = self.incomplete.get_or_insert_with(|| {
                state.next += 1;
                (state.next, CancellationToken::new())
            });
            let body = Incomplete {
                held: self.held,
                evicted: evicted.clone(),
            };
            state.incomplete.insert(*number, body);
        }
        true
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        if self.held == 0 {
            return;
        }
        let mut state = self.budget.state();
        state.keep(&mut self.blocks);
        state.free += self.held;
        if let Some((number, _)) = &self.incomplete
            && state.incomplete.remove(number).is_none()
        {
            state.evicted -= self.held;
        }
        self.budget.show(&state);
        drop(state);
        self.budget.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
