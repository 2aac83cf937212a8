//! Several stages, so that scenarios of which each needs one for itself are played at once.
//!
//! Invariant: a stage is lent to one scenario at a time, and is free again when what was lent is dropped.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::stage::Stage;
use crate::world::supplies::Supplies;
use clusters::images::{self, Role};
use clusters::progress::Progress;
use clusters::setup::Setup;

/// See the module.
pub struct Stages {
    giving: UnboundedSender<Arc<Stage>>,
    free: Mutex<UnboundedReceiver<Arc<Stage>>>,
}

/// A stage that nobody else has.
pub(super) struct Lent {
    stage: Arc<Stage>,
    giving: UnboundedSender<Arc<Stage>>,
}

impl Stages {
    /// How many there are: with a third one, two cores have too much to do.
    pub const COUNT: usize = LETTERS.len();

    /// Starts all of them, or takes what an earlier run kept.
    ///
    /// # Errors
    /// At the first part that does not come up.
    pub async fn start(progress: &Progress, setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let supplies = Arc::new(Supplies::gather(progress, setup, keep).await?);
        let image = images::product(progress, Role::Controller).await?;
        let start = |letter| {
            let supplies = Arc::clone(&supplies);
            Box::pin(Stage::with(progress, supplies, &image, letter))
        };
        let stages = futures::future::try_join_all(LETTERS.map(start)).await?;
        let (giving, free) = unbounded_channel();
        for stage in stages {
            giving.send(Arc::new(stage)).context("nobody takes it")?;
        }
        let free = Mutex::new(free);
        Ok(Self { giving, free })
    }

    /// A stage, as soon as one is free.
    pub(super) async fn lend(&self) -> anyhow::Result<Lent> {
        let stage = self.free.lock().await.recv().await;
        Ok(Lent {
            stage: stage.context("no stage was set up")?,
            giving: self.giving.clone(),
        })
    }

    /// Removes everything that is not kept.
    ///
    /// # Errors
    /// When Docker refuses, or a scenario still has one.
    pub async fn stop(self) -> anyhow::Result<()> {
        let mut free = self.free.into_inner();
        for _ in LETTERS {
            let stage = free.try_recv().context("a scenario still has a stage")?;
            let stage = Arc::into_inner(stage).context("a scenario still uses a stage")?;
            Box::pin(stage.stop()).await?;
        }
        Ok(())
    }
}

impl Deref for Lent {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // When nobody takes it the run is over, and what it started goes with the run.
        let _ = self.giving.send(Arc::clone(&self.stage));
    }
}

/// One a stage; they tell clusters apart.
const LETTERS: [&str; 2] = ["a", "b"];
