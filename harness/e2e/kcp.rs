//! The world of synchronization: a control plane, its runtimes, and today's manager.
//!
//! Invariant: a scenario has its [`Stage`] for itself; each finds the controller working and the sources
//! valid, and [`World::end`] gets there again from wherever the scenario left them. Contents are never put back:
//! every change makes a content that was never there before, so that an old one cannot be taken for it.

mod controller;
mod inventory;
mod objects;
mod obstacles;
mod plane;
mod runtime;
mod skr;
mod source;
mod stage;
mod stages;
mod steps;

pub use stage::{Rotation, Stage};
pub use stages::Stages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use crate::doubles::kim::Kim;
use clusters::evidence::Evidence;
use runtime::Runtime;
use skr::Skr;
use source::Source;
use stages::Lent;

/// One scenario.
#[derive(cucumber::World)]
#[world(init = Self::begin)]
pub struct World {
    stage: Lent,
    title: String,
    /// Today's manager, while the scenario has one.
    kim: Option<Kim>,
    /// The Runtime that the scenario speaks of.
    subject: Option<Runtime>,
    /// Another one.
    other: Option<Runtime>,
    /// Runtimes that go with the scenario.
    guests: Vec<Runtime>,
    /// The source that changed last.
    source: Option<Source>,
    /// Pods that are created all the while.
    pods: Option<Stream>,
    /// What became of them.
    tally: Tally,
    /// What the scenario changed for all.
    changed: BTreeSet<Changed>,
    /// What an earlier step saw and a later one compares, by a name of their choice.
    seen: BTreeMap<String, Value>,
}

/// Pods that are created until somebody asks for them.
struct Stream {
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Tally>,
}

/// What became of Pods.
#[derive(Default)]
struct Tally {
    pods: u32,
    /// Those that were refused or missed, and why.
    odd: Vec<String>,
    /// Those of a registry whose pull Secret they lack.
    halves: Vec<String>,
    /// Those that lack the trust bundle.
    bare: Vec<String>,
    /// Moments at which there was not exactly one webhook of ours.
    others: Vec<String>,
}

/// What a scenario may change for all, and what puts it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    /// A source is deleted or cannot be used.
    Source(Source),
    /// The controller is down, or runs otherwise.
    Controller,
    /// The node of a runtime keeps the control plane out.
    Away(usize),
    /// Something on a runtime stands in the way.
    Obstacle(usize),
    /// The rollout is paused.
    Pause,
    /// The webhook of a resident runtime has another image, or less time to start than usual.
    Webhook(usize),
}

static STAGES: RwLock<Option<Arc<Stages>>> = RwLock::new(None);

impl World {
    /// Every scenario from now on runs on one of these.
    pub fn run_on(stages: Option<Arc<Stages>>) {
        if let Ok(mut current) = STAGES.write() {
            *current = stages;
        }
    }

    async fn begin() -> anyhow::Result<Self> {
        let stages = STAGES.read().ok().and_then(|current| current.clone());
        Ok(Self {
            stage: stages.context("no stage was set up")?.lend().await?,
            title: String::new(),
            kim: None,
            subject: None,
            other: None,
            guests: Vec::new(),
            source: None,
            pods: None,
            tally: Tally::default(),
            changed: BTreeSet::new(),
            seen: BTreeMap::new(),
        })
    }

    /// Names the scenario.
    pub fn entitle(&mut self, title: &str) {
        title.clone_into(&mut self.title);
    }

    /// Ends the scenario: evidence if it failed, then everything is put back.
    ///
    /// # Errors
    /// When something could not be put back.
    pub async fn end(&mut self, feature: &str, failed: bool) -> anyhow::Result<()> {
        if failed {
            let evidence = Evidence::of(feature, &self.title)?;
            self.stage.keep(&evidence).await;
        }
        self.kim = None;
        if let Some(stream) = self.pods.take() {
            stream.task.abort();
        }
        let changed = std::mem::take(&mut self.changed);
        for changed in &changed {
            self.stage.put_back(*changed).await?;
        }
        // By a controller that works: it lets go what it holds.
        for guest in std::mem::take(&mut self.guests) {
            self.stage.remove(&guest).await?;
        }
        if changed.iter().any(|it| matches!(it, Changed::Source(_))) {
            self.stage.is_noticed().await?;
        }
        Ok(())
    }

    fn subject(&self) -> anyhow::Result<&Runtime> {
        self.subject.as_ref().context("no runtime yet")
    }

    fn other(&self) -> anyhow::Result<&Runtime> {
        self.other.as_ref().context("no other runtime yet")
    }

    /// The one that a RuntimeBootstrapper is about: the last one that the scenario brought up.
    fn latest(&self) -> anyhow::Result<&Runtime> {
        let latest = self.other.as_ref().or(self.subject.as_ref());
        latest.context("no runtime yet")
    }

    /// The cluster of the runtime that the scenario speaks of.
    fn skr(&self) -> anyhow::Result<&Skr> {
        let number = self.subject()?.skr.context("it has no cluster")?;
        Ok(&self.stage.skrs[number])
    }

    fn kim(&self) -> anyhow::Result<&Kim> {
        self.kim.as_ref().context("the manager was never started")
    }

    fn seen(&self, name: &str) -> Value {
        self.seen.get(name).cloned().unwrap_or_default()
    }

    /// Remembers how everything is, before something happens to it.
    async fn look(&mut self) -> anyhow::Result<()> {
        if let Some(kim) = &self.kim {
            let counts = serde_json::to_value(kim.counts())?;
            self.seen.insert("reconciles".to_owned(), counts);
        }
        for (role, runtime) in [("subject", &self.subject), ("other", &self.other)] {
            let Some(runtime) = runtime else { continue };
            let object = self.stage.plane.runtime(&runtime.name).await?;
            self.seen.insert(format!("Runtime of {role}"), object);
            if let Some(number) = runtime.skr {
                let writes = self.stage.skrs[number].writes().await?;
                self.seen.insert(format!("writes to {role}"), writes);
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("subject", &self.subject)
            .field("other", &self.other)
            .finish_non_exhaustive()
    }
}

/// How long "nothing happens" is looked at: longer than the controller leaves a runtime alone.
const A_WHILE: Duration = Duration::from_secs(2);
/// How long anything that a scenario waits for may take.
const PATIENCE: Duration = Duration::from_mins(1);
