//! One term of office: from an election to its end.

use tokio::task::JoinError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::candidate::{Candidate, Lost};

/// Work under way, and until when it is safe.
pub(super) struct Term {
    fence: Instant,
    token: CancellationToken,
    task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
pub(super) enum End {
    Shutdown,
    Lost(Lost),
    Work(Result<(), JoinError>),
}

impl End {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::Lost(Lost::Taken) => "lease taken by another",
            Self::Lost(Lost::Unrenewed) => "lease not renewed in time",
            Self::Work(Ok(())) => "work ended by itself",
            Self::Work(Err(_)) => "work panicked",
        }
    }

    pub(super) fn gives_others_a_turn(&self) -> bool {
        matches!(self, Self::Work(_))
    }
}

impl Term {
    pub(super) fn begin<W, F>(fence: Instant, work: &mut W) -> Self
    where
        W: FnMut(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let token = CancellationToken::new();
        // A task of its own, so that busy work cannot keep the renewals from being sent.
        let task = AbortOnDropHandle::new(tokio::spawn(work(token.clone())));
        Self { fence, token, task }
    }

    /// Renews until the term ends, and ends the work.
    pub(super) async fn run(
        mut self,
        candidate: &mut Candidate,
        shutdown: &CancellationToken,
        resigned: impl FnOnce(),
    ) -> End {
        let end = self.serve(candidate, shutdown).await;
        self.token.cancel();
        resigned();
        let Self {
            fence, mut task, ..
        } = self;
        match end {
            End::Lost(_) => {
                task.abort();
                // Waits for the abort, not for the work: two terms must not overlap.
                (&mut task).await.ok();
            }
            End::Shutdown => {
                if timeout_at(fence, &mut task).await.is_err() {
                    task.abort();
                    (&mut task).await.ok();
                }
                candidate.release().await;
            }
            End::Work(_) => candidate.release().await,
        }
        end
    }

    async fn serve(&mut self, candidate: &mut Candidate, shutdown: &CancellationToken) -> End {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::Shutdown,
                ended = &mut self.task => return End::Work(ended),
                renewed = candidate.renew(self.fence) => match renewed {
                    Ok(fence) => self.fence = fence,
                    Err(lost) => return End::Lost(lost),
                },
            }
        }
    }
}
