//! What a demonstration shows: one change is heard on KCP, and one that was made while KCP was away.
//!
//! Invariant: a user's write is timed by itself; when KCP heard of it was seen in what the listener handed over.

use std::time::{Duration, Instant};

use super::objects::LIFECYCLE;
use super::stage::Stage;
use super::subject::{Kind, Subject};
use super::trouble::Trouble;
use super::{PATIENCE, RUNTIME};
use testkit::until::until;

/// Two changes of a Kyma on a runtime, as a manager on KCP heard of them.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The runtime, as its certificate names it.
    pub runtime: String,
    /// The manager that heard.
    pub manager: &'static str,
    /// How long the user's write took.
    pub write: Duration,
    /// When the manager had heard, from the write's beginning.
    pub heard: Duration,
    /// How long a user's write took while nobody listened on KCP.
    pub write_meanwhile: Duration,
    /// When the manager had heard of it, from KCP's return.
    pub heard_after: Duration,
}

impl Stage {
    /// Changes a Kyma twice, the second time while KCP refuses every connection.
    ///
    /// # Errors
    /// When a write is refused, or the manager does not hear of it.
    pub async fn tell(&self) -> anyhow::Result<Arrival> {
        let namespace = format!("told-{}", std::process::id());
        self.skr.make_namespace(&namespace).await?;
        let [first, second] = [(); 2].map(|()| Subject::fresh(Kind::Kyma, &namespace));
        let begin = Instant::now();
        let write = self.written(&first).await?;
        self.is_heard(&first).await?;
        let heard = begin.elapsed();

        self.trouble(Trouble::Refuses).await?;
        let meanwhile = self.written(&second).await;
        let returned = Instant::now();
        self.recover(Trouble::Refuses).await?;
        let write_meanwhile = meanwhile?;
        self.is_heard(&second).await?;
        let heard_after = returned.elapsed();
        self.skr.drop_namespace(&namespace).await?;
        Ok(Arrival {
            runtime: RUNTIME.to_owned(),
            manager: LIFECYCLE,
            write,
            heard,
            write_meanwhile,
            heard_after,
        })
    }

    async fn written(&self, kyma: &Subject) -> anyhow::Result<Duration> {
        let begin = Instant::now();
        kyma.create(&self.skr.dialogue, Some("kyma")).await?;
        Ok(begin.elapsed())
    }

    async fn is_heard(&self, kyma: &Subject) -> anyhow::Result<()> {
        let manager = self.manager(LIFECYCLE)?;
        until("KCP hears of the Kyma", PATIENCE, || async {
            !manager.heard.of(&kyma.heard_as()).is_empty()
        })
        .await?;
        Ok(())
    }
}
