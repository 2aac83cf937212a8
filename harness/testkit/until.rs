//! Waiting: the only file of the harness that may sleep.
//!
//! Every wait polls a state and has a deadline. After the deadline, the error names the expected state and the last observed
//! one. [`holds`] polls a state for a period, to check that nothing happens.
#![expect(
    clippy::disallowed_methods,
    reason = "polling sleeps between two looks at the state"
)]

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Polls `probe` until it returns a value or `deadline` has passed.
///
/// The probe returns an `Option`, a `Result` or a `bool`; `None`, `Err` and `false` mean "not yet". A probe that does not
/// return is canceled at the deadline.
pub async fn until<F, A: Answer>(
    what: &str,
    deadline: Duration,
    probe: impl FnMut() -> F,
) -> Result<A::Value, TooLate>
where
    F: Future<Output = A>,
{
    paced(what, deadline, [FIRST_PAUSE, LONGEST_PAUSE], probe).await
}

/// Polls as [`until`] does, with a constant interval. It is for waits whose end is measured.
pub async fn until_every<F, A: Answer>(
    pause: Duration,
    what: &str,
    deadline: Duration,
    probe: impl FnMut() -> F,
) -> Result<A::Value, TooLate>
where
    F: Future<Output = A>,
{
    paced(what, deadline, [pause; 2], probe).await
}

async fn paced<F, A: Answer>(
    what: &str,
    deadline: Duration,
    [mut pause, longest]: [Duration; 2],
    mut probe: impl FnMut() -> F,
) -> Result<A::Value, TooLate>
where
    F: Future<Output = A>,
{
    let end = Instant::now() + deadline;
    let mut last_seen = None;
    loop {
        match timeout_at(end, probe()).await.map(Answer::seen) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last_seen = Some(reason),
            // The result before a canceled probe is more useful.
            Err(_) => {
                last_seen.get_or_insert_with(|| "no answer at all".to_owned());
            }
        }
        if Instant::now() + pause >= end {
            let last_seen = last_seen.unwrap_or_default();
            return Err(TooLate(what.to_owned(), deadline, last_seen));
        }
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Polls `probe` during the whole `span`, and fails at the first result that is not a value.
pub async fn holds<F, A: Answer>(
    what: &str,
    span: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<(), Broken>
where
    F: Future<Output = A>,
{
    let begin = Instant::now();
    loop {
        let seen = probe().await.seen();
        seen.map_err(|seen| Broken(what.to_owned(), begin.elapsed(), seen))?;
        if begin.elapsed() >= span {
            return Ok(());
        }
        sleep(LONGEST_PAUSE).await;
    }
}

/// Result of a probe.
pub trait Answer {
    /// Result of the wait.
    type Value;

    /// Returns the value, or the reason why there is none yet.
    fn seen(self) -> Result<Self::Value, String>;
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing yet".to_owned())
    }
}

impl<T, E: Display> Answer for Result<T, E> {
    type Value = T;

    fn seen(self) -> Result<T, String> {
        // The alternate form prints the whole chain of an `anyhow::Error`.
        self.map_err(|error| format!("{error:#}"))
    }
}

impl Answer for bool {
    type Value = ();

    fn seen(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

/// Error of a wait: the expected state, the deadline, and the last observed state.
#[derive(Debug, thiserror::Error)]
#[error("{0}: not within {1:?}; last seen: {2}")]
pub struct TooLate(String, Duration, String);

/// Error of [`holds`]: the expected state, the time after which it was no longer true, and the observed state.
#[derive(Debug, thiserror::Error)]
#[error("{0}: no longer true after {1:?}: {2}")]
pub struct Broken(String, Duration, String);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn yields_the_value_once_it_is_there() {
        let mut calls = 0..;
        let third = until("third call", Duration::from_secs(5), || {
            std::future::ready(calls.next().filter(|it| *it == 2))
        });
        assert_eq!(third.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_have_the_length_that_is_asked_for() {
        let begin = Instant::now();
        let pause = Duration::from_millis(2);
        let late = || std::future::ready(begin.elapsed() >= Duration::from_secs(1));
        let waited = until_every(pause, "a second", Duration::from_secs(5), late).await;
        waited.unwrap();
        assert_eq!(begin.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn says_what_was_seen_last() {
        let pending = async || Err::<(), _>(anyhow::anyhow!("Pending").context("pod web"));
        let error = until("a Pod", Duration::from_secs(5), pending).await;
        let text = "a Pod: not within 5s; last seen: pod web: Pending";
        assert_eq!(error.unwrap_err().to_string(), text);
        let hang = std::future::pending::<bool>;
        let error = until("a hang", Duration::from_secs(1), hang).await;
        let text = error.unwrap_err().to_string();
        assert!(text.ends_with("no answer at all"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn holds_fails_at_the_first_break() {
        let begin = Instant::now();
        let early = async || begin.elapsed() < Duration::from_secs(1);
        let error = holds("quiet", Duration::from_secs(3), early).await;
        let text = error.unwrap_err().to_string();
        assert!(text.starts_with("quiet: no longer true after 1s"), "{text}");
        let always = holds("always", Duration::from_secs(3), async || true);
        always.await.unwrap();
    }
}
