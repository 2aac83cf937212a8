//! A term of leadership, from an election to its end.

use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::candidate::Candidate;

/// Reason why a term ended.
#[derive(Debug)]
pub(super) enum TermEnd {
    Shutdown,
    /// Another process holds the Lease.
    Taken,
    /// The Lease was not renewed in time.
    Unrenewed,
    /// The Lease has an earlier resource version than before.
    Restored,
    Work(Result<(), JoinError>),
}

impl TermEnd {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Taken => "lease taken by another",
            Self::Unrenewed => "lease not renewed in time",
            Self::Restored => "API server restored from a backup",
            Self::Work(Ok(())) => "work returned",
            Self::Work(Err(_)) => "work panicked",
        }
    }
}

/// Runs the work and renews the Lease until the term ends, and then ends the work. `fence` is the instant until which the
/// work is safe.
pub(super) async fn run_term<F>(
    candidate: &mut Candidate,
    shutdown: &CancellationToken,
    mut fence: Instant,
    work: impl FnOnce(CancellationToken) -> F,
    on_end: impl FnOnce(),
) -> TermEnd
where
    F: Future<Output = ()> + Send + 'static,
{
    let token = CancellationToken::new();
    // A separate task, so that busy work does not delay renewals.
    let mut task = AbortOnDropHandle::new(tokio::spawn(work(token.clone())));
    let end = loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break TermEnd::Shutdown,
            ended = &mut task => break TermEnd::Work(ended),
            renewed = candidate.renew(fence) => match renewed {
                Ok(next) => fence = next,
                Err(end) => break end,
            },
        }
    };
    token.cancel();
    on_end();
    match end {
        TermEnd::Taken | TermEnd::Unrenewed | TermEnd::Restored => {
            task.abort();
            // Waits until the task is aborted, because two terms must not overlap.
            (&mut task).await.ok();
        }
        TermEnd::Shutdown => {
            if timeout_at(fence, &mut task).await.is_err() {
                task.abort();
                (&mut task).await.ok();
            }
            candidate.release().await;
        }
        TermEnd::Work(_) => candidate.release().await,
    }
    end
}
