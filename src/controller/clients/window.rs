//! How many calls may be in flight, over all runtimes; or how many of something else that is waited for.
//!
//! Invariants: places are given in the order of asking, and a [`super::Remote`] asks for one at a time, so a runtime
//! with many calls cannot crowd out the others. A call that has had no answer for `patience` moves to a side room of
//! the same size: the window bounds work, and a call to a dead runtime is no work, only waiting. When the side room is
//! full too, slow calls keep their places, and the number of calls stays bounded by twice the window.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
pub(crate) struct RequestLimiter {
    places: Arc<Semaphore>,
    side_room: Arc<Semaphore>,
    patience: Duration,
}

/// A place in the window. (None: the semaphore was closed, which nobody does.)
pub(crate) type Place = Option<OwnedSemaphorePermit>;

impl RequestLimiter {
    /// With so many places; what takes longer than `patience` moves.
    pub(crate) fn new(size: usize, patience: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(size)),
            side_room: Arc::new(Semaphore::new(size)),
            patience,
        }
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self) -> Place {
        self.places.clone().acquire_owned().await.ok()
    }

    /// Runs a call in its place, and moves it to the side room when it is slow.
    pub(crate) async fn hold<F: Future>(&self, place: Place, call: F) -> F::Output {
        let mut call = std::pin::pin!(call);
        if let Ok(output) = tokio::time::timeout(self.patience, &mut call).await {
            return output;
        }
        let moved = self.side_room.clone().try_acquire_owned();
        let _kept = match moved {
            Ok(seat) => {
                drop(place);
                Some(seat)
            }
            Err(_) => place,
        };
        call.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn slow_calls_make_room_until_the_side_room_is_full() {
        let window = Arc::new(RequestLimiter::new(2, PATIENCE));
        let mut stalled = Vec::new();
        for _ in 0..4 {
            let place = window.enter().await;
            let window = window.clone();
            stalled.push(tokio::spawn(async move {
                window.hold(place, pending::<()>()).await;
            }));
        }
        assert!(window.enter().now_or_never().is_none());
        // Two sit aside, two keep their places for good.
        tokio::time::sleep(PATIENCE * 10).await;
        assert!(window.enter().now_or_never().is_none());
        stalled.pop().unwrap().abort();
        let _place = window.enter().await;
    }

    #[tokio::test(start_paused = true)]
    async fn places_go_in_the_order_of_asking() {
        let window = Arc::new(RequestLimiter::new(1, PATIENCE));
        let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
        let first = window.enter().await;
        for index in 0..20 {
            let window = window.clone();
            let served = served.clone();
            tokio::spawn(async move {
                let place = window.enter().await;
                served.send(index).unwrap();
                window.hold(place, tokio::time::sleep(PATIENCE / 10)).await;
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        for index in 0..20 {
            assert_eq!(order.recv().await, Some(index));
        }
    }
}
