//! A term of leadership: from an election to its end.

use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::candidate::{Candidate, LeadershipLost};

/// The running work, and the instant until which it is safe.
pub(super) struct LeadershipTerm {
    fence: Instant,
    token: CancellationToken,
    task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
pub(super) enum TermEnd {
    Shutdown,
    Lost(LeadershipLost),
    Work(Result<(), JoinError>),
}

impl TermEnd {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Lost(LeadershipLost::Taken) => "lease taken by another",
            Self::Lost(LeadershipLost::Unrenewed) => "lease not renewed in time",
            Self::Work(Ok(())) => "work returned",
            Self::Work(Err(_)) => "work panicked",
        }
    }

    pub(super) fn lets_another_replica_lead(&self) -> bool {
        matches!(self, Self::Work(_))
    }
}

impl LeadershipTerm {
    pub(super) fn begin<W, F>(fence: Instant, work: &mut W) -> Self
    where
        W: FnMut(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let token = CancellationToken::new();
        // In its own task, so that busy work does not delay renewals.
        let task = AbortOnDropHandle::new(tokio::spawn(work(token.clone())));
        Self { fence, token, task }
    }

    /// Renews the Lease until the term ends, and ends the work.
    pub(super) async fn run(
        mut self,
        candidate: &mut Candidate,
        shutdown: &CancellationToken,
        on_end: impl FnOnce(),
    ) -> TermEnd {
        let end = self.serve(candidate, shutdown).await;
        self.token.cancel();
        on_end();
        let Self {
            fence, mut task, ..
        } = self;
        match end {
            TermEnd::Lost(_) => {
                task.abort();
                // Waits until the task is aborted: two terms must not overlap.
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

    async fn serve(&mut self, candidate: &mut Candidate, shutdown: &CancellationToken) -> TermEnd {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return TermEnd::Shutdown,
                ended = &mut self.task => return TermEnd::Work(ended),
                renewed = candidate.renew(self.fence) => match renewed {
                    Ok(fence) => self.fence = fence,
                    Err(lost) => return TermEnd::Lost(lost),
                },
            }
        }
    }
}
