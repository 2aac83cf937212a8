//! Delivery mode `sync`: the event is delivered before the response to the API server, in at most three attempts, as in the
//! public watcher. Waits are jittered. The caller limits the total time by dropping the future.

use std::time::Duration;

use component_base::backoff::spread;
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use tokio::time::sleep;
use watcher_types::{PathSegment, WatchEvent};

use super::{Channel, PostError};

/// Number of attempts of a delivery, 1 to 3, and result of the last attempt.
pub type Delivery = (u32, Result<(), PostError>);

/// Approximate waits, one for each further attempt.
pub type Waits = [Duration; 2];

/// The waits of the public watcher.
pub const WAITS: Waits = [Duration::from_secs(2), Duration::from_secs(4)];

/// Posts an event, with at most three attempts. Such an event has no sequence number, because it was never in the outbox.
pub async fn deliver_now(
    channel: &Channel,
    waits: Waits,
    manager: &PathSegment,
    event: &WatchEvent,
) -> Delivery {
    // Boxed, because the compiler cannot infer that the future of the closure is `Send`.
    let post = || -> BoxFuture<'_, _> { Box::pin(channel.post_event(manager, event, None)) };
    three_times(waits, post).await
}

async fn three_times<P>(waits: Waits, mut post: impl FnMut() -> P) -> Delivery
where
    P: Future<Output = Result<(), PostError>>,
{
    let mut attempts = 0;
    loop {
        let result = post().await;
        let wait = waits.get(attempts as usize);
        attempts += 1;
        match (&result, wait) {
            (Err(error), Some(&wait)) if error.transient() => {
                let error = error_chain(error);
                tracing::debug!(error, attempts, "delivery failed, retrying");
                sleep(around(wait, fastrand::u64(..))).await;
            }
            _ => return (attempts, result),
        }
    }
}

/// Returns a wait between 4 % less and a fifth more.
fn around(wait: Duration, random: u64) -> Duration {
    spread(wait * 6 / 5, random)
}

#[cfg(test)]
mod tests;
