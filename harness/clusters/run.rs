//! A run of the harness: its ID, its network, its labels, and the removal of what earlier runs left behind.
//!
//! Every container and network that the harness makes carries [`RUN`] or a label of what is kept. A sweep removes what a run left
//! whose process is known to be gone. Several machines, or several containers of one CI machine, can share one Docker
//! socket; whether a process of another PID namespace lives cannot be seen, so what such a run made is removed only
//! when the run began more than 24 hours ago.
//!
//! What was kept on request stays until `harness cluster down`. It belongs to one checkout on one host: names and labels
//! carry a hash of both, so that neither another checkout nor another host with the same Docker socket uses or removes it.

mod kept;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{SignalKind, signal};

use crate::docker::{Docker, DockerError, Labelled};
use crate::images::digest;
use crate::workspace;

/// Label: the run that made it; its process removes it.
pub const RUN: &str = "kyma.harness.run";
/// Label: kept on request; the value is a digest of everything that shaped it.
const KEPT: &str = "kyma.harness.kept";
/// Label: the checkout and the host that something is kept for.
const OWNER: &str = "kyma.harness.owner";

/// One run. Make it first, [`Run::end`] it last.
#[derive(Debug, Clone)]
pub struct Run {
    id: RunId,
    docker: Docker,
    network: String,
    owns_network: bool,
    keep: bool,
}

impl Run {
    /// Sweeps, then joins the kept network if there is one, else makes a network of its own.
    ///
    /// With `keep`, what is started in this run stays when it ends, and the next run uses it again.
    ///
    /// # Errors
    /// When Docker does not answer.
    pub async fn begin(keep: bool) -> Result<Self, DockerError> {
        let docker = Docker::connect().await?;
        sweep(&docker).await?;
        let id = RunId::next();
        let run = |network: String, owns_network| Self {
            id: id.clone(),
            docker: docker.clone(),
            network,
            owns_network,
            keep,
        };
        if let Some(kept) = kept::network(&docker, &Owner::this().prefix(), keep).await? {
            return Ok(run(kept, false));
        }
        let own = run(id.prefix(), true);
        let labels = HashMap::from([(RUN.to_owned(), id.to_string())]);
        docker.create_network(&own.network, labels).await?;
        Ok(own)
    }

    /// Removes what is the run's own and is still there: the network, and containers whose handles were lost.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn end(self) -> Result<(), DockerError> {
        for container in self.own(self.docker.containers(RUN).await?) {
            self.docker.remove_container(&container.id).await?;
        }
        if self.owns_network {
            self.docker.remove_network(&self.network).await?;
        }
        Ok(())
    }

    /// The names of all containers and networks that the run made and that are still there; kept ones are none.
    ///
    /// # Errors
    /// When Docker does not answer.
    pub async fn leftovers(&self) -> Result<Vec<String>, DockerError> {
        let mut found = self.docker.containers(RUN).await?;
        found.extend(self.docker.networks(RUN).await?);
        Ok(self.own(found).map(|found| found.name).collect())
    }

    fn own(&self, found: Vec<Labelled>) -> impl Iterator<Item = Labelled> {
        let own = self.id.to_string();
        found
            .into_iter()
            .filter(move |found| found.labels.get(RUN) == Some(&own))
    }

    /// The network that all containers of the run share.
    #[must_use]
    pub fn network(&self) -> &str {
        &self.network
    }

    /// Whether what is started now stays when the run ends.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// The daemon.
    #[must_use]
    pub fn docker(&self) -> &Docker {
        &self.docker
    }

    /// A name for a container that no other run uses.
    #[must_use]
    pub fn container_name(&self, name: &str) -> String {
        if self.keep {
            Owner::this().container_name(name)
        } else {
            format!("{}-{name}", self.id.prefix())
        }
    }

    /// The labels of a thing that `digest` shapes.
    #[must_use]
    pub fn labels(&self, digest: &str) -> HashMap<String, String> {
        if self.keep {
            Owner::this().labels(digest)
        } else {
            HashMap::from([(RUN.to_owned(), self.id.to_string())])
        }
    }

    /// A running container that an earlier run kept and that is of the same shape.
    ///
    /// A kept one of the same name but another shape, or one that stopped, is removed if it is in the way: of a new
    /// kept one of that name, or because there may be only one in the network.
    ///
    /// # Errors
    /// When Docker does not answer.
    pub async fn kept(
        &self,
        name: &str,
        digest: &str,
        only_one: bool,
    ) -> Result<Option<Labelled>, DockerError> {
        let owner = Owner::this();
        let name = owner.container_name(name);
        let found = owner.own(self.docker.containers(KEPT).await?);
        let Some(found) = found.into_iter().find(|found| found.name == name) else {
            return Ok(None);
        };
        if found.running && found.labels.get(KEPT).is_some_and(|kept| kept == digest) {
            return Ok(Some(found));
        }
        if self.keep || only_one {
            self.docker.remove_container(&found.id).await?;
        }
        Ok(None)
    }
}

/// The label by which a kept container is found again.
#[must_use]
pub(crate) fn kept_label(kept: &Labelled) -> HashMap<String, String> {
    let digest = kept.labels.get(KEPT).map_or("", String::as_str);
    Owner::this().labels(digest)
}

/// Containers that were kept for this checkout on this host.
///
/// # Errors
/// When Docker does not answer.
pub async fn kept_containers(docker: &Docker) -> Result<Vec<Labelled>, DockerError> {
    Ok(Owner::this().own(docker.containers(KEPT).await?))
}

/// Removes what runs left behind whose process is gone.
///
/// # Errors
/// When Docker does not answer.
pub async fn sweep(docker: &Docker) -> Result<(), DockerError> {
    sweep_if(docker, RunId::is_gone).await
}

async fn sweep_if(docker: &Docker, gone: impl Fn(&RunId) -> bool) -> Result<(), DockerError> {
    // An ID that this version cannot read belongs to a harness of another version, which may be running.
    let is_orphan = |found: &Labelled| {
        let run = found.labels.get(RUN).and_then(|id| RunId::parse(id));
        run.as_ref().is_some_and(&gone)
    };
    for container in docker
        .containers(RUN)
        .await?
        .iter()
        .filter(|found| is_orphan(found))
    {
        docker.remove_container(&container.id).await?;
    }
    for network in docker
        .networks(RUN)
        .await?
        .iter()
        .filter(|found| is_orphan(found))
    {
        docker.remove_network(&network.id).await?;
    }
    Ok(())
}

/// Runs `work`; SIGINT or SIGTERM ends it early, and what this process made is removed then.
///
/// For the `main` of a program that starts clusters. What was kept on request stays.
///
/// # Errors
/// [`Interrupted`] when a signal came.
pub async fn interruptible<T>(work: impl Future<Output = T>) -> Result<T, Interrupted> {
    let mut terminate = signal(SignalKind::terminate()).map_err(|_| Interrupted)?;
    tokio::select! {
        done = work => return Ok(done),
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    // What cannot be removed now is swept by the next run.
    if let Ok(docker) = Docker::connect().await {
        let _ = sweep_if(&docker, RunId::is_own).await;
    }
    Err(Interrupted)
}

/// A signal ended the run.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; what this run made is removed")]
pub struct Interrupted;

/// Removes what was kept for this checkout on this host, and what a sweep removes. Gives the names of what was kept.
///
/// # Errors
/// When Docker does not answer.
pub async fn forget_kept(docker: &Docker) -> Result<Vec<String>, DockerError> {
    sweep(docker).await?;
    forget_kept_of(docker, &Owner::this()).await
}

async fn forget_kept_of(docker: &Docker, owner: &Owner) -> Result<Vec<String>, DockerError> {
    let mut removed = Vec::new();
    for container in owner.own(docker.containers(KEPT).await?) {
        docker.remove_container(&container.id).await?;
        removed.push(container.name);
    }
    for network in owner.own(docker.networks(KEPT).await?) {
        docker.remove_network(&network.id).await?;
        removed.push(network.name);
    }
    Ok(removed)
}

/// Whom something is kept for: a checkout on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner(String);

impl Owner {
    /// The owner on whose behalf this process runs. The host name is the container's own where the harness runs in one.
    fn this() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self(format!("{}:{}", host.trim(), workspace::root().display()))
    }

    /// Name of the network of what is kept, and what the names of kept containers begin with.
    fn prefix(&self) -> String {
        format!("kyma-kept-{}", short_hash(&self.0))
    }

    fn container_name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix())
    }

    fn labels(&self, digest: &str) -> HashMap<String, String> {
        let labels = [(KEPT, digest), (OWNER, self.0.as_str())];
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn own(&self, mut found: Vec<Labelled>) -> Vec<Labelled> {
        found.retain(|found| found.labels.get(OWNER) == Some(&self.0));
        found
    }
}

/// The first 32 bits of a SHA-256 hash.
fn short_hash(text: &str) -> String {
    let digest = digest(text.as_bytes());
    digest
        .trim_start_matches("sha256:")
        .chars()
        .take(8)
        .collect()
}

/// Identifies a run: the PID namespace it is in, when it began, its process, and which of the process's runs it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunId {
    /// Digest of the kernel's boot ID and the PID namespace: process numbers mean something within one of them only.
    namespace: String,
    /// Unix time in seconds.
    began: u64,
    process: u32,
    /// Start time of the process in clock ticks, because numbers are used again.
    started: String,
    number: u32,
}

impl RunId {
    /// The ID of a new run of this process.
    fn next() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let process = std::process::id();
        Self {
            namespace: pid_namespace(),
            began: unix_seconds(),
            process,
            started: start_time(process).unwrap_or_default(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        Some(Self {
            namespace: parts.next()?.to_owned(),
            began: parts.next()?.parse().ok()?,
            process: parts.next()?.parse().ok()?,
            started: parts.next()?.to_owned(),
            number: parts.next()?.parse().ok()?,
        })
    }

    /// What the names of the run's network and containers begin with.
    fn prefix(&self) -> String {
        let Self {
            namespace,
            process,
            started,
            number,
            ..
        } = self;
        format!("kyma-{namespace}-{process}-{started}-{number}")
    }

    /// Whether the run has ended: its process is gone, or, where that cannot be seen, it is older than [`EXPIRY`].
    fn is_gone(&self) -> bool {
        if self.namespace == pid_namespace() {
            return start_time(self.process).is_none_or(|started| started != self.started);
        }
        let age = Duration::from_secs(unix_seconds().saturating_sub(self.began));
        age > EXPIRY
    }

    /// Whether this process made it.
    fn is_own(&self) -> bool {
        let is_this_process = self.process == std::process::id();
        is_this_process && self.namespace == pid_namespace() && !self.is_gone()
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            namespace,
            began,
            process,
            started,
            number,
        } = self;
        write!(f, "{namespace}-{began}-{process}-{started}-{number}")
    }
}

/// The boot ID differs between machines and boots, the namespace's inode between the containers of one machine.
fn pid_namespace() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    short_hash(&format!("{} {}", boot.trim(), namespace.display()))
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Age at which a run of another PID namespace counts as ended. No run takes a day.
const EXPIRY: Duration = Duration::from_hours(24);

/// Field 22 of `/proc/PID/stat`, of a process that still runs; one that only waits to be reaped has none.
fn start_time(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name before it may itself contain blanks and brackets.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_knows_whether_its_process_lives() {
        let own = RunId::next();
        assert!(!own.is_gone() && own.is_own());
        assert_eq!(RunId::parse(&own.to_string()), Some(own.clone()));
        let reused = RunId {
            started: "1".to_owned(),
            ..own
        };
        assert!(reused.is_gone(), "the number alone is not the process");
        assert!(!reused.is_own());
    }

    #[test]
    fn a_run_of_another_pid_namespace_is_gone_only_after_a_day() {
        let dead_here = RunId {
            namespace: "00000000".to_owned(),
            process: u32::MAX,
            ..RunId::next()
        };
        assert!(!dead_here.is_gone(), "its process cannot be seen from here");
        assert!(!dead_here.is_own());
        let old = RunId {
            began: dead_here.began - EXPIRY.as_secs() - 1,
            ..dead_here
        };
        assert!(old.is_gone());
    }

    #[tokio::test]
    async fn a_sweep_removes_what_a_dead_process_left_and_nothing_of_another_pid_namespace() {
        let docker = Docker::connect().await.unwrap();
        let dead = RunId {
            started: "1".to_owned(),
            ..RunId::next()
        };
        let foreign = RunId {
            namespace: "00000000".to_owned(),
            ..dead.clone()
        };
        let another_version = "4242-17-1";
        for run in [&dead.to_string(), &foreign.to_string(), another_version] {
            let labels = HashMap::from([(RUN.to_owned(), run.to_owned())]);
            let name = format!("kyma-test-{run}");
            docker.create_network(&name, labels).await.unwrap();
        }
        let swept = sweep(&docker).await;
        let left = docker.networks(RUN).await.unwrap();
        let is_left = |run: &str| {
            let name = format!("kyma-test-{run}");
            left.iter().any(|network| network.name == name)
        };
        let seen = [
            is_left(&dead.to_string()),
            is_left(&foreign.to_string()),
            is_left(another_version),
        ];
        for run in [&foreign.to_string(), another_version] {
            let name = format!("kyma-test-{run}");
            docker.remove_network(&name).await.unwrap();
        }
        swept.unwrap();
        assert_eq!(seen, [false, true, true]);
    }

    #[tokio::test]
    async fn what_is_kept_for_another_checkout_is_neither_listed_nor_removed() {
        let docker = Docker::connect().await.unwrap();
        let owners = ["host:/own", "other-host:/own", "host:/other"].map(|owner| {
            // Unique, because test runs of several checkouts may overlap.
            Owner(format!("{owner}-{}", RunId::next()))
        });
        for owner in &owners {
            let labels = owner.labels("digest");
            docker
                .create_network(&owner.prefix(), labels)
                .await
                .unwrap();
        }
        let removed = forget_kept_of(&docker, &owners[0]).await;
        let left = docker.networks(KEPT).await.unwrap();
        let left = owners.clone().map(|owner| owner.own(left.clone()).len());
        for owner in &owners[1..] {
            docker.remove_network(&owner.prefix()).await.unwrap();
        }
        assert_eq!(removed.unwrap(), [owners[0].prefix()]);
        assert_eq!(left, [0, 1, 1]);
    }

    #[test]
    fn two_runs_of_a_process_do_not_meet() {
        assert_ne!(RunId::next(), RunId::next());
    }

    #[test]
    fn a_process_that_waits_to_be_reaped_is_gone() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let id = child.id();
        assert!(start_time(id).is_some());
        child.kill().unwrap();
        // Dead, not yet waited for: the kernel keeps its entry until then.
        while start_time(id).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
