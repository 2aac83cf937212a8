//! The world of watching: one runtime with the watcher, KCP with the gateway, and the managers that listen there.
//!
//! Invariant: scenarios share one [`Stage`] and run side by side, each with a namespace of its own on the runtime, so that
//! what KCP hears of one is not mistaken for another's. Whoever stops, kills or rotates something is `@serial`, and
//! [`World::end`] puts it back.

mod arrival;
mod heard;
mod manager;
mod objects;
mod stage;
mod steps;
mod stranger;
mod subject;
mod trouble;
mod watcher;

pub use arrival::Arrival;
pub use stage::Stage;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use clusters::evidence::Evidence;
use heard::Watched;
use subject::{Stream, Subject, Writes};
use trouble::Trouble;

/// One scenario.
#[derive(cucumber::World)]
#[world(init = Self::begin)]
pub struct World {
    stage: Arc<Stage>,
    title: String,
    /// Of the scenario's own, on the runtime.
    namespace: String,
    /// The object that the scenario speaks of.
    subject: Option<Subject>,
    /// Objects that it speaks of all at once.
    crowd: Writes,
    /// Objects that are made all the while.
    stream: Option<Stream>,
    /// What a client was answered, or why it was not.
    answer: Option<Value>,
    /// What an earlier step saw and a later one compares.
    seen: Value,
    /// What the scenario changed for all.
    changed: BTreeSet<Changed>,
    /// It did, and all is well again.
    ended_trouble: bool,
}

/// What a scenario may change for all, and what puts it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    /// KCP is in trouble.
    Kcp(Trouble),
    /// The watcher is down.
    Watcher,
    /// KCP knows another domain for the runtime.
    Domain,
}

static STAGE: RwLock<Option<Arc<Stage>>> = RwLock::new(None);
static SCENARIOS: AtomicU32 = AtomicU32::new(0);

impl World {
    /// Every scenario from now on runs there.
    pub fn run_on(stage: Option<Arc<Stage>>) {
        if let Ok(mut current) = STAGE.write() {
            *current = stage;
        }
    }

    async fn begin() -> anyhow::Result<Self> {
        let stage = STAGE.read().ok().and_then(|current| current.clone());
        let stage = stage.context("no stage was set up")?;
        let number = SCENARIOS.fetch_add(1, Ordering::Relaxed);
        // A kept cluster may still have those of an earlier run.
        let namespace = format!("watched-{}-{number}", std::process::id());
        stage.skr.make_namespace(&namespace).await?;
        Ok(Self {
            stage,
            title: String::new(),
            namespace,
            subject: None,
            crowd: Writes::default(),
            stream: None,
            answer: None,
            seen: Value::Null,
            changed: BTreeSet::new(),
            ended_trouble: false,
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
        if let Some(stream) = self.stream.take() {
            stream.abandon();
        }
        let changed = std::mem::take(&mut self.changed);
        for changed in &changed {
            self.stage.put_back(*changed).await?;
        }
        // Whoever comes next shall not wait behind what this one has left.
        if !changed.is_empty() || self.ended_trouble {
            self.stage.skr.is_calm().await?;
        }
        if let Some(subject) = &self.subject {
            self.stage.skr.forget(subject).await?;
        }
        self.stage.skr.drop_namespace(&self.namespace).await
    }

    fn subject(&self) -> anyhow::Result<&Subject> {
        self.subject.as_ref().context("no object yet")
    }

    /// What KCP would call the object that the scenario speaks of.
    fn name(&self) -> anyhow::Result<Watched> {
        Ok(self.subject()?.heard_as())
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("namespace", &self.namespace)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// Who the runtime is on KCP.
const RUNTIME: &str = "4d7c1c0e-8f0f-4d34-9d0a-1f6b1d6e8a55";
/// Its Kyma's annotation `skr-domain`.
const DOMAIN: &str = "one.skr.landscape.test";
/// The time between two heartbeats of a watcher here, instead of a minute.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long "KCP does not hear of it" is looked at: a hundred times what an event takes.
const A_WHILE: Duration = Duration::from_millis(1_500);
/// How long anything that a scenario waits for may take.
const PATIENCE: Duration = Duration::from_mins(1);
