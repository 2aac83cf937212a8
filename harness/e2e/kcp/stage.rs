//! What a scenario of synchronization runs on: one control plane with the controller, two runtimes.
//!
//! Invariant: [`Stage::start`] returns when a controller leads and the sources are there. The first runtime stays in
//! direct mode from its first mention on, the second one is what a scenario makes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::runtimes::{CONTENT_HASH, KCP_NAMESPACE, MODE_DIRECT, ROLLOUT, ROLLOUT_PAUSED};
use serde_json::{Value, json};

use super::controller::{Controller, RECORD};
use super::objects::{found, named_config_map};
use super::plane::Plane;
use super::runtime::Runtime;
use super::skr::Skr;
use super::source::Source;
use super::{Changed, PATIENCE};
use crate::world::Dialogue;
use crate::world::supplies::Supplies;
use clusters::cluster::ClusterOptions;
use clusters::control_plane::ControlPlane;
use clusters::evidence::Evidence;
use clusters::images::{self, ImageTar, Role};
use clusters::progress::Progress;
use clusters::setup::Setup;
use testkit::until::until;

/// See the module.
pub struct Stage {
    supplies: Arc<Supplies>,
    pub(super) plane: Plane,
    pub(super) skrs: [Skr; 2],
    pub(super) controller: Controller,
}

/// A change of the pull Secret, as a runtime saw it.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// The runtime.
    pub runtime: String,
    /// The registry that the Secret opens since.
    pub host: String,
    /// When the runtime held it, from when it was written on the control plane.
    pub arrived: Duration,
    /// When every replica of the webhook there decided by it, from the same moment.
    pub decided: Duration,
}

impl Stage {
    /// Starts everything, or takes what an earlier run kept.
    ///
    /// # Errors
    /// At the first part that does not come up.
    pub async fn start(progress: &Progress, setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let supplies = Arc::new(Supplies::gather(progress, setup, keep).await?);
        let image = images::product(progress, Role::Controller).await?;
        Box::pin(Self::with(progress, supplies, &image, "a")).await
    }

    /// The same with what other stages have as well; the letter tells its clusters from theirs.
    pub(super) async fn with(
        progress: &Progress,
        supplies: Arc<Supplies>,
        image: &ImageTar,
        letter: &str,
    ) -> anyhow::Result<Self> {
        let start = |name| {
            let options = ClusterOptions::new(&format!("{name}-{letter}"));
            Box::pin(supplies.cluster(options))
        };
        let clusters = async { tokio::try_join!(start("kcp"), start("skr-one"), start("skr-two")) };
        let (kcp, one, two) = progress.show("start three clusters", clusters).await?;
        kcp.load_image(image).await?;
        let binary = images::built_binary(images::Profile::E2e);
        let webhook = &supplies.webhook.reference;
        let stage = Self {
            controller: Controller::new(&binary, &image.reference, webhook),
            plane: Plane {
                dialogue: Dialogue::with(kcp.kubeconfig()).await?,
                cluster: kcp,
            },
            skrs: [Skr::of(one).await?, Skr::of(two).await?],
            supplies,
        };
        let installed = progress
            .show("install the controller", Box::pin(stage.install()))
            .await;
        if installed.is_err() {
            let evidence = Evidence::of("stage", "install the controller")?;
            stage.keep(&evidence).await;
        }
        installed.map(|()| stage)
    }

    async fn install(&self) -> anyhow::Result<()> {
        ControlPlane::prepare(self.plane.cluster.client(), None).await?;
        for source in Source::ALL {
            self.plane.renew(source).await?;
        }
        self.controller.install(&self.plane).await
    }

    /// Removes everything that is not kept; the registry goes with the last stage.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(self) -> anyhow::Result<()> {
        let [one, two] = self.skrs;
        for cluster in [self.plane.cluster, one.cluster, two.cluster] {
            cluster.stop().await?;
        }
        match Arc::into_inner(self.supplies) {
            Some(supplies) => supplies.remove().await,
            None => Ok(()),
        }
    }

    /// A runtime in direct mode that holds what the sources say.
    pub(super) async fn direct(&self, number: usize, wave: Option<u32>) -> anyhow::Result<Runtime> {
        let runtime = Runtime::resident(number);
        self.put_directly(&runtime, &runtime.object(Some(MODE_DIRECT), wave))
            .await?;
        self.is_settled(&runtime).await?;
        Ok(runtime)
    }

    /// Writes a Runtime in direct mode and what leads to its cluster.
    pub(super) async fn put_directly(
        &self,
        runtime: &Runtime,
        object: &Value,
    ) -> anyhow::Result<()> {
        self.plane.put_runtime(object).await?;
        let skr = &self.skrs[runtime.skr.context("it has no cluster")?];
        let kubeconfig = skr.kubeconfig.to_string();
        self.plane.put_kubeconfig(runtime, &kubeconfig).await
    }

    /// Stops the rollout as an operator does, or lets it go on.
    pub(super) async fn pause(&self, paused: bool) -> anyhow::Result<()> {
        let value = if paused { json!("true") } else { Value::Null };
        let change = json!({ "metadata": { "annotations": { (ROLLOUT_PAUSED): value } } });
        let path = named_config_map(KCP_NAMESPACE, ROLLOUT);
        self.plane.dialogue.patch(&path, &change).await.map(drop)
    }

    /// Waits until a runtime in direct mode is Ready and has every source.
    pub(super) async fn is_settled(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let skr = &self.skrs[runtime.skr.context("it has no cluster")?];
        self.plane
            .says(&runtime.name, ("Ready", "True"), &[])
            .await?;
        for source in Source::ALL {
            skr.has(source, &self.plane.source(source).await?).await?;
        }
        skr.is_of_one_version().await?;
        skr.is_registered().await?;
        self.plane.says(&runtime.name, ("Ready", "True"), &[]).await
    }

    /// Changes the pull Secret on the control plane, and times what becomes of it on a runtime in direct mode.
    ///
    /// # Errors
    /// When the runtime does not come up, or the change does not arrive.
    pub async fn rotate(&self) -> anyhow::Result<Rotation> {
        let runtime = self.direct(0, None).await?;
        let skr = &self.skrs[0];
        let source = Source::PullSecret;
        let object = source.fresh()?;
        let begin = Instant::now();
        self.plane.write(source, &object).await?;
        skr.has(source, &object).await?;
        let arrived = begin.elapsed();
        skr.decides_by(source, &object).await?;
        Ok(Rotation {
            runtime: runtime.name,
            host: source.probe(&object)?.0.replace("/x", ""),
            arrived,
            decided: begin.elapsed(),
        })
    }

    /// A runtime that is not in direct mode.
    pub(super) async fn signalled(&self, skr: Option<usize>) -> anyhow::Result<Runtime> {
        let runtime = Runtime::fresh(skr);
        self.plane.put_runtime(&runtime.object(None, None)).await?;
        Ok(runtime)
    }

    /// Removes a Runtime of a scenario. What it left on a cluster goes as well.
    pub(super) async fn remove(&self, runtime: &Runtime) -> anyhow::Result<()> {
        self.plane.remove(runtime).await?;
        match runtime.skr {
            Some(number) => {
                let installed = self.controller.webhook().await?;
                self.skrs[number].clear(&installed).await
            }
            None => Ok(()),
        }
    }

    /// Brings back what a scenario changed for all.
    pub(super) async fn put_back(&self, changed: Changed) -> anyhow::Result<()> {
        match changed {
            Changed::Source(source) => self.plane.renew(source).await,
            Changed::Controller => self.controller.install(&self.plane).await,
            Changed::Away(number) => self.admit(number).await,
            Changed::Obstacle(number) => self.clear_obstacles(number).await,
            Changed::Pause => self.pause(false).await,
            Changed::Webhook(number) => {
                let usual = json!({ "spec": { "webhook": null } });
                let name = Runtime::resident(number).name;
                self.plane.patch_bootstrapper(&name, &usual).await?;
                self.skrs[number].gives(PROGRESS_DEADLINE).await
            }
        }
    }

    /// Waits until the controller knows the sources as they are: what it does about a change is then no later
    /// scenario's surprise. The hashes of the resident's copies say what it should know.
    pub(super) async fn is_noticed(&self) -> anyhow::Result<()> {
        let resident = self.direct(0, None).await?;
        let skr = &self.skrs[resident.skr.context("it has no cluster")?];
        let record = named_config_map(KCP_NAMESPACE, RECORD);
        until("the controller knows the sources", PATIENCE, || async {
            let record = found(&self.plane.dialogue, &record).await?;
            let record = record.context("no record")?;
            for source in Source::ALL {
                let copy = skr.copy(source).await?;
                let there = &copy["metadata"]["annotations"][CONTENT_HASH];
                let known = &record["data"][source.in_record()];
                ensure!(known == there, "{source:?}: {known}, not {there}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Keeps all that explains a failure.
    pub(super) async fn keep(&self, evidence: &Evidence) {
        Controller::keep(&self.plane, evidence).await;
        let lists = [
            ("bootstrappers.json", super::plane::bootstrappers_path()),
            ("runtimes.json", super::plane::runtime_path("")),
        ];
        for (file, path) in lists {
            let listed = self.plane.dialogue.get(path.trim_end_matches('/')).await;
            let text = listed.map(|it| format!("{:#}", it.object));
            evidence.keep_result(file, text);
        }
        for skr in &self.skrs {
            for source in Source::ALL {
                let copy = skr.copy(source).await.map(|it| format!("{it:#}"));
                let file = format!("{}/{source:?}.json", skr.cluster.name());
                evidence.keep_result(&file, copy);
            }
        }
    }

    /// Waits until nothing of a signal is on a Runtime.
    pub(super) async fn is_unsignalled(&self, name: &str) -> anyhow::Result<()> {
        until("nothing of the signal is left", PATIENCE, || async {
            let runtime = self.plane.runtime(name).await?;
            ensure!(
                signals(&runtime) == json!([null, null]),
                "{}",
                runtime["metadata"]
            );
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }
}

/// The signal as label and as annotation.
pub(super) fn signals(runtime: &Value) -> Value {
    use api::runtimes::FORCE_RECONCILIATION;
    let metadata = &runtime["metadata"];
    json!([
        metadata["labels"][FORCE_RECONCILIATION],
        metadata["annotations"][FORCE_RECONCILIATION],
    ])
}

/// How long a Deployment may take by default.
const PROGRESS_DEADLINE: u32 = 600;
