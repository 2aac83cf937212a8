//! A run of the harness: its network, its labels, and the removal of what earlier runs left behind.
//!
//! Every container and network that the harness makes carries `RUN` or the labels of what is kept (`kept`). A sweep
//! removes what a run left that has ended (`id`).

mod id;
mod kept;

use std::collections::HashMap;

use anyhow::bail;
use testcontainers::ReuseDirective;
use tokio::signal::unix::{SignalKind, signal};

use crate::docker::{Docker, Labelled};
use crate::images::digest;
use id::RunId;
use kept::{KEPT, Owner};

/// Label: the run that made it; its process removes it.
const RUN: &str = "kyma.harness.run";

/// One run. Make it first, [`Run::end`] it last.
#[derive(Debug, Clone)]
pub struct Run {
    id: RunId,
    docker: Docker,
    network: String,
    owns_network: bool,
    keep: bool,
}

/// How a container of a run is named and labelled, and whether it stays when the run ends.
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) labels: HashMap<String, String>,
    /// Whether an earlier run kept it.
    pub(crate) exists: bool,
    pub(crate) stays: bool,
}

impl Run {
    /// Sweeps, then joins the kept network if there is one, else makes a network of its own.
    ///
    /// With `keep`, what is started in this run stays when it ends, and the next run uses it again.
    pub async fn begin(keep: bool) -> anyhow::Result<Self> {
        let docker = Docker::connect().await?;
        sweep(&docker, RunId::is_gone).await?;
        let id = RunId::next();
        let kept = kept::network(&docker, &Owner::this(), keep).await?;
        let run = Self {
            owns_network: kept.is_none(),
            network: kept.unwrap_or_else(|| id.prefix()),
            id,
            docker,
            keep,
        };
        if run.owns_network {
            let labels = run.id.labels();
            run.docker
                .create_network(&run.network, None, labels)
                .await?;
        }
        Ok(run)
    }

    /// Removes what is the run's own and is still there: the network, and containers whose handles were lost.
    pub async fn end(self) -> anyhow::Result<()> {
        for container in self.own(self.docker.containers(RUN).await?) {
            self.docker.remove_container(&container.id).await?;
        }
        if self.owns_network {
            self.docker.remove_network(&self.network).await?;
        }
        Ok(())
    }

    /// The names of all containers and networks that the run made and that are still there; kept ones are none.
    pub(crate) async fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let mut found = self.docker.containers(RUN).await?;
        found.extend(self.docker.networks(RUN).await?);
        Ok(self.own(found).map(|found| found.name).collect())
    }

    fn own(&self, found: Vec<Labelled>) -> impl Iterator<Item = Labelled> {
        let own = self.id.labels();
        let own = move |it: &Labelled| it.labels.get(RUN) == own.get(RUN);
        found.into_iter().filter(own)
    }

    /// The network that all containers of the run share.
    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    /// Whether what is started now stays when the run ends.
    pub(crate) fn keeps(&self) -> bool {
        self.keep
    }

    /// The daemon.
    pub(crate) fn docker(&self) -> &Docker {
        &self.docker
    }

    /// A container of that name, image and shape: a kept one that runs, or a new one.
    ///
    /// A kept one of another shape, or one that stopped, is removed if it is in the way: of a new kept one of that name, or
    /// because there may be only one in the network.
    pub(crate) async fn slot(
        &self,
        name: &str,
        (image, shape): (&str, &str),
        only_one: bool,
    ) -> anyhow::Result<Slot> {
        let owner = Owner::this();
        let image = self.docker.image_id(image).await?.unwrap_or_default();
        let labels = owner.labels(&digest(format!("{image} {shape}").as_bytes()));
        let kept_name = owner.container_name(name);
        let found = owner.own(self.docker.containers(KEPT).await?);
        let found = found.into_iter().find(|found| found.name == kept_name);
        let fits = |it: &Labelled| it.running && it.labels.get(KEPT) == labels.get(KEPT);
        let exists = found.as_ref().is_some_and(fits);
        if let Some(found) = found.filter(|_| !exists && (self.keep || only_one)) {
            self.docker.remove_container(&found.id).await?;
        }
        let stays = self.keep || exists;
        Ok(Slot {
            name: if stays {
                kept_name
            } else {
                format!("{}-{name}", self.id.prefix())
            },
            labels: if stays { labels } else { self.id.labels() },
            exists,
            stays,
        })
    }
}

impl Slot {
    pub(crate) fn reuse(&self) -> ReuseDirective {
        if self.stays {
            ReuseDirective::Always
        } else {
            ReuseDirective::Never
        }
    }
}

/// Containers that were kept for this checkout on this host.
pub async fn kept_containers() -> anyhow::Result<Vec<Labelled>> {
    Ok(Owner::this().own(Docker::connect().await?.containers(KEPT).await?))
}

/// Removes what was kept for this checkout on this host, and what a sweep removes. Returns the names of what was kept.
pub async fn forget_kept() -> anyhow::Result<Vec<String>> {
    let docker = Docker::connect().await?;
    sweep(&docker, RunId::is_gone).await?;
    kept::forget(&docker, &Owner::this()).await
}

/// Removes what runs made that `gone` names. An ID that this version cannot read belongs to a harness of another version,
/// which may be running.
async fn sweep(docker: &Docker, gone: impl Fn(&RunId) -> bool) -> anyhow::Result<()> {
    let is_orphan = |found: &Labelled| {
        let run = found.labels.get(RUN).and_then(|id| RunId::parse(id));
        run.as_ref().is_some_and(&gone)
    };
    for container in docker
        .containers(RUN)
        .await?
        .iter()
        .filter(|it| is_orphan(it))
    {
        docker.remove_container(&container.id).await?;
    }
    for network in docker
        .networks(RUN)
        .await?
        .iter()
        .filter(|it| is_orphan(it))
    {
        docker.remove_network(&network.id).await?;
    }
    Ok(())
}

/// Runs `work`; SIGINT or SIGTERM ends it early, and what this process made is removed then.
///
/// For the `main` of a program that starts clusters. What was kept on request stays.
pub async fn interruptible<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => return Ok(done),
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    // What cannot be removed now is swept by the next run.
    if let Ok(docker) = Docker::connect().await {
        let _ = sweep(&docker, RunId::is_own).await;
    }
    bail!("interrupted; what this run made is removed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sweep_removes_what_a_dead_process_left_and_nothing_of_another_pid_namespace() {
        let docker = Docker::connect().await.unwrap();
        let [dead, foreign] = id::dead_and_foreign().map(|it| it.to_string());
        let another_version = "4242-17-1".to_owned();
        let runs = [dead, foreign, another_version];
        let name = |run: &str| format!("kyma-test-{run}");
        for run in &runs {
            let labels = HashMap::from([(RUN.to_owned(), run.clone())]);
            docker
                .create_network(&name(run), None, labels)
                .await
                .unwrap();
        }
        let swept = sweep(&docker, RunId::is_gone).await;
        let left = docker.networks(RUN).await.unwrap();
        let seen = runs
            .each_ref()
            .map(|run| left.iter().any(|it| it.name == name(run)));
        for run in &runs[1..] {
            docker.remove_network(&name(run)).await.unwrap();
        }
        swept.unwrap();
        assert_eq!(seen, [false, true, true]);
    }
}
