//! A run of the harness: its network, its labels, and the removal of objects that earlier runs left.
//!
//! Every container and network that the harness creates has the label `RUN` or the labels of kept objects (`kept`). A sweep
//! removes the objects of runs that have ended (`id`).

mod id;
mod kept;

use std::collections::HashMap;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::docker::{self, Labelled};
use crate::images::digest;
use crate::progress;
use id::RunId;
use kept::{KEPT, Owner};

/// Label with the ID of the run that created the object; the process of the run removes it.
const RUN: &str = "kyma.harness.run";

/// One run. Create it before any container, and call [`Run::end`] last.
#[derive(Debug, Clone)]
pub struct Run {
    id: RunId,
    network: String,
    keep: bool,
}

/// Name and labels of a container of a run, and whether the container stays after the run.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) labels: HashMap<String, String>,
    /// Whether an earlier run created the container and kept it.
    pub(crate) exists: bool,
    pub(crate) stays: bool,
}

impl Run {
    /// Sweeps, then joins the kept network if it exists, and otherwise creates a network for the run.
    ///
    /// With `keep`, containers of this run stay after it, and the next run uses them again.
    pub async fn begin(keep: bool) -> anyhow::Result<Self> {
        sweep(RunId::is_gone).await?;
        let id = RunId::next();
        let kept = kept::network(&Owner::this(), keep).await?;
        let own = kept.is_none().then(|| id.prefix());
        if let Some(own) = &own {
            docker::create_network(own, None, &id.labels()).await?;
        }
        Ok(Self {
            network: kept.or(own).unwrap_or_default(),
            id,
            keep,
        })
    }

    /// Returns the same run without `keep`: containers that it starts do not stay.
    pub fn without_keep(&self) -> Self {
        Self {
            keep: false,
            ..self.clone()
        }
    }

    /// Removes the remaining objects of the run: its network, and containers whose handles were lost.
    pub async fn end(self) -> anyhow::Result<()> {
        for found in self.own().await? {
            docker::remove(&found).await?;
        }
        Ok(())
    }

    /// Returns the existing containers and networks of the run, without kept ones.
    pub(crate) async fn own(&self) -> anyhow::Result<Vec<Labelled>> {
        let id = self.id.to_string();
        let mut found = docker::labelled(RUN).await?;
        found.retain(|found| found.labels.get(RUN) == Some(&id));
        Ok(found)
    }

    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    /// Returns the slot of a container with this name, image and shape: of a kept container that runs, or of a new one.
    ///
    /// A kept container that stopped or has another shape is removed in two cases: the new container is kept under the same
    /// name, or `only_one` may exist in the network.
    pub(crate) async fn slot(
        &self,
        name: &str,
        (image, shape): (&str, &str),
        only_one: bool,
    ) -> anyhow::Result<Slot> {
        let owner = Owner::this();
        let image = docker::image_id(image).await?.unwrap_or_default();
        let labels = owner.labels(&digest(format!("{image} {shape}").as_bytes()));
        let kept_name = format!("{}-{name}", owner.prefix());
        let found = owner.own(docker::labelled(KEPT).await?);
        let found = found.into_iter().find(|found| found.name == kept_name);
        let is_same = |it: &Labelled| it.labels.get(KEPT) == labels.get(KEPT);
        let fits = |it: &Labelled| it.running == Some(true) && is_same(it);
        let exists = found.as_ref().is_some_and(fits);
        if let Some(found) = found.filter(|_| !exists && (self.keep || only_one)) {
            docker::remove(&found).await?;
        }
        let stays = self.keep || exists;
        let own_name = format!("{}-{name}", self.id.prefix());
        Ok(Slot {
            name: if stays { kept_name } else { own_name },
            labels: if stays { labels } else { self.id.labels() },
            exists,
            stays,
        })
    }
}

/// Removes the objects that are kept for this checkout on this host, and sweeps. Returns the names of the kept objects.
pub async fn forget_kept() -> anyhow::Result<Vec<String>> {
    sweep(RunId::is_gone).await?;
    kept::forget(&Owner::this()).await
}

/// Removes the objects of all runs for which `gone` returns true. An ID that cannot be parsed belongs to a harness of another
/// version, which may be running.
async fn sweep(gone: impl Fn(&RunId) -> bool) -> anyhow::Result<()> {
    for found in docker::labelled(RUN).await? {
        let run = found.labels.get(RUN).and_then(|id| RunId::parse(id));
        if run.as_ref().is_some_and(&gone) {
            docker::remove(&found).await?;
        }
    }
    Ok(())
}

/// Runs `work`. SIGINT or SIGTERM ends it early and removes the objects that this process created.
///
/// It is for the `main` function of a program that starts clusters. Objects that are kept on request stay.
pub async fn interruptible(
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> anyhow::Result<ExitCode> {
    tokio::select! {
        done = work => return done,
        () = interrupted() => {}
    }
    // The next run sweeps objects that cannot be removed now.
    let _ = sweep(RunId::is_own).await;
    progress::say("interrupted; what this run made is removed");
    Ok(ExitCode::from(INTERRUPTED))
}

/// Returns at SIGINT or SIGTERM.
pub async fn interrupted() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

/// Exit code after an interrupt: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn a_sweep_removes_what_a_dead_process_left_and_nothing_of_another_pid_namespace() {
        let [dead, foreign] = id::dead_and_foreign().map(|it| it.to_string());
        let another_version = "4242-17-1".to_owned();
        let runs = [dead, foreign, another_version];
        let name = |run: &str| format!("kyma-test-{run}");
        for run in &runs {
            let labels = HashMap::from([(RUN.to_owned(), run.clone())]);
            let created = docker::create_network(&name(run), None, &labels).await;
            created.unwrap();
        }
        let swept = sweep(RunId::is_gone).await;
        let mut left = docker::labelled(RUN).await.unwrap();
        left.retain(|it| runs.iter().any(|run| it.name == name(run)));
        for found in &left {
            docker::remove(found).await.unwrap();
        }
        swept.unwrap();
        let left: BTreeSet<_> = left.iter().map(|it| it.labels[RUN].as_str()).collect();
        assert_eq!(left, runs[1..].iter().map(String::as_str).collect());
    }
}
