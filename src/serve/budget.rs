//! Memory budget of all request bodies of one server.
//!
//! Invariant: the sum of the shares never exceeds the budget. Bytes are counted when they have arrived, so a client that
//! announces a large body and sends none of it takes no share.
//!
//! Bodies are received into blocks of one size, which are reused for the next body instead of being freed. Buffers that
//! grow and are freed would cause fragmentation, so that the allocator would hold several times the memory in use.
//!
//! When the budget is exhausted, the oldest incomplete bodies are evicted. A client that sends fast therefore always
//! succeeds: its body is only evicted if other clients send a whole budget during its transfer. A complete body is being
//! handled and is never evicted.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::metrics::{Counter, Statistics};

/// Unit of the budget, in bytes, which is also the share of the smallest body.
pub(crate) const BLOCK: usize = 16 * 1024;

/// Memory budget of one server.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    /// Total number of blocks. All other sizes are also in blocks.
    total: usize,
    statistics: Statistics,
    state: Mutex<State>,
    /// Notified when blocks are released.
    released: Notify,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Blocks of evicted bodies, whose readers are about to release them.
    evicted: usize,
    /// Empty blocks for the next body.
    spare: Vec<Vec<u8>>,
    next: u64,
    /// Incomplete bodies that hold blocks, in the order of their start.
    incomplete: BTreeMap<u64, Incomplete>,
}

#[derive(Debug)]
struct Incomplete {
    held: usize,
    evicted: CancellationToken,
}

/// Error: the body lost its share to a newer body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evicted;

/// Share of one body in the budget. Dropping it releases the share.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<BodyBudget>,
    held: usize,
    /// Received blocks of a body that did not arrive at once.
    blocks: Vec<Vec<u8>>,
    /// Number of the body, and token that signals its eviction; set while the body is incomplete.
    incomplete: Option<(u64, CancellationToken)>,
    waiting: bool,
}

impl BodyBudget {
    /// Creates a budget of `bytes`, rounded up to whole blocks.
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

    /// Returns an empty share for a new body.
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
    /// Keeps blocks for reuse by the next body.
    fn keep(&mut self, blocks: &mut Vec<Vec<u8>>) {
        for mut block in blocks.drain(..) {
            block.clear();
            self.spare.push(block);
        }
    }

    /// Evicts the oldest incomplete bodies until `blocks` are free or about to be released. Evicts no body that started
    /// after `own`, and no body if all of them together would not be sufficient.
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
    /// Counts a body of `bytes` that has arrived at once.
    ///
    /// # Errors
    /// [`Evicted`], as for [`append`](Self::append).
    pub(crate) async fn count(&mut self, bytes: usize) -> Result<(), Evicted> {
        self.take(bytes.div_ceil(BLOCK), true).await
    }

    /// Stores a received piece, and waits while the budget is exhausted.
    ///
    /// # Errors
    /// [`Evicted`] if a newer body got the share.
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

    /// Returns the complete body, which is not evicted from now on. The share stays reserved.
    ///
    /// # Errors
    /// [`Evicted`], as for [`append`](Self::append).
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
            // Registered before each attempt, so that no release is missed in between.
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

    /// Waits until a newer body gets the share.
    pub(crate) async fn evicted(&self) {
        match &self.incomplete {
            Some((_, evicted)) => evicted.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether a part of the body has arrived for which the budget has no capacity.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn try_take(&mut self, blocks: usize, complete: bool) -> bool {
        let mut state = self.budget.state();
        let own = self.incomplete.as_ref().map(|(number, _)| *number);
        if own.is_some_and(|number| !state.incomplete.contains_key(&number)) {
            // The body was evicted. The token notifies the caller.
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
