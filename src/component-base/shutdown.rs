//! Shutdown by SIGTERM and SIGINT.
//!
//! The first signal starts the drain, and the second signal ends the wait for it. Invariant: this module never ends the
//! process; the caller awaits [`Shutdown::second_signal`] and returns from `main`. Not in here: order and deadlines of the
//! drain, which differ per component.

use std::io;

use futures::{Stream, StreamExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Signals cannot be handled.
#[derive(Debug, thiserror::Error)]
#[error("failed to install the handler of {signal}")]
pub struct ShutdownError {
    signal: &'static str,
    /// The error of the operating system.
    source: io::Error,
}

/// The two steps of a shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown {
    first: CancellationToken,
    second: CancellationToken,
}

impl Shutdown {
    /// Handles SIGTERM and SIGINT from now on. It must be called in a tokio runtime.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn on_signals() -> Result<Self, ShutdownError> {
        let terminate = signal_stream("SIGTERM", SignalKind::terminate())?;
        let interrupt = signal_stream("SIGINT", SignalKind::interrupt())?;
        Ok(Self::on(futures::stream::select(terminate, interrupt)))
    }

    fn on(signals: impl Stream<Item = &'static str> + Send + 'static) -> Self {
        let shutdown = Self {
            first: CancellationToken::new(),
            second: CancellationToken::new(),
        };
        tokio::spawn(shutdown.clone().listen(signals));
        shutdown
    }

    async fn listen(self, signals: impl Stream<Item = &'static str> + Send) {
        let mut signals = std::pin::pin!(signals);
        for step in [&self.first, &self.second] {
            let Some(name) = signals.next().await else {
                return;
            };
            tracing::info!(
                signal = name,
                drain = !self.first.is_cancelled(),
                "SIGTERM received, draining"
            );
            step.cancel();
        }
    }

    /// Returns a token that the first SIGTERM or SIGINT cancels. A task that fails permanently may also cancel it.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.first.clone()
    }

    /// Waits for the second SIGTERM or SIGINT.
    pub async fn second_signal(&self) {
        self.second.cancelled().await;
    }
}

fn signal_stream(
    name: &'static str,
    kind: SignalKind,
) -> Result<impl Stream<Item = &'static str>, ShutdownError> {
    let refused = |source| ShutdownError {
        signal: name,
        source,
    };
    let mut signal = signal(kind).map_err(refused)?;
    let received = futures::stream::poll_fn(move |context| signal.poll_recv(context));
    Ok(received.map(move |()| name))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Duration;

    use futures::{FutureExt, channel::mpsc};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_first_signal_drains_and_the_second_ends_the_wait() {
        let (send, signals) = mpsc::unbounded();
        let shutdown = Shutdown::on(signals);
        assert!(!shutdown.token().is_cancelled());

        send.unbounded_send("SIGTERM").unwrap();
        shutdown.token().cancelled().await;
        assert!(shutdown.second_signal().now_or_never().is_none());

        send.unbounded_send("SIGINT").unwrap();
        shutdown.second_signal().await;
    }

    #[tokio::test]
    async fn a_drain_begun_without_a_signal_leaves_both_steps_to_the_signals() {
        let (send, signals) = mpsc::unbounded();
        let shutdown = Shutdown::on(signals);
        shutdown.token().cancel();
        send.unbounded_send("SIGTERM").unwrap();
        tokio::task::yield_now().await;
        assert!(shutdown.second_signal().now_or_never().is_none());
        send.unbounded_send("SIGTERM").unwrap();
        shutdown.second_signal().await;
    }

    #[tokio::test]
    async fn real_signals_arrive() {
        let shutdown = Shutdown::on_signals().unwrap();
        let kill = |signal: &str| {
            let command = format!("kill -{signal} {}", id());
            assert!(
                Command::new("sh")
                    .args(["-c", &command])
                    .status()
                    .unwrap()
                    .success()
            );
        };
        let deadline = Duration::from_secs(10);
        kill("TERM");
        timeout(deadline, shutdown.token().cancelled())
            .await
            .unwrap();
        kill("INT");
        timeout(deadline, shutdown.second_signal()).await.unwrap();
    }
}
