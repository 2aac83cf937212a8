//! The delivery mode `sync`: the event is delivered before the API server is answered, in at most three attempts, as the public watcher does
//! it. Waits are jittered, and the caller bounds the whole by dropping it.

use std::time::Duration;

use component_base::backoff::spread;
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use tokio::time::sleep;
use watcher_types::{PathSegment, WatchEvent};

use super::{Channel, PostError};

/// How many attempts a delivery took, 1 to 3, and how the last one ended.
pub type Delivery = (u32, Result<(), PostError>);

/// Around which times to wait, one entry before each further attempt.
const WAITS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(4)];

/// Posts an event, at most three times. Such an event has no number: it was never in the outbox.
pub async fn deliver_now(channel: &Channel, manager: &PathSegment, event: &WatchEvent) -> Delivery {
    // Boxed, because the compiler cannot see through the closure that the whole may change threads.
    let post = || -> BoxFuture<'_, _> { Box::pin(channel.post_event(manager, event, None)) };
    three_times(post).await
}

async fn three_times<P>(mut post: impl FnMut() -> P) -> Delivery
where
    P: Future<Output = Result<(), PostError>>,
{
    let mut attempts = 0;
    loop {
        let result = post().await;
        let wait = WAITS.get(attempts as usize);
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

/// From a little less to a fifth more.
fn around(wait: Duration, random: u64) -> Duration {
    spread(wait * 6 / 5, random)
}

#[cfg(test)]
mod tests;
