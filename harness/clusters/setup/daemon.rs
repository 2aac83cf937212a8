//! The Docker daemon: used where it runs, else installed and started.
//!
//! Invariant: a daemon that answers is never touched. One that is started here outlives the harness.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::SetupError;
use super::packages::{self, DOCKER};
use crate::docker::Docker;
use crate::progress::Progress;
use crate::workspace;
use testkit::until::until;

pub(super) async fn ensure(progress: &Progress) -> Result<Docker, SetupError> {
    if let Ok(docker) = Docker::connect().await {
        return Ok(docker);
    }
    packages::ensure(progress, &[DOCKER]).await?;
    if !packages::is_root() {
        return Err(SetupError::Install {
            program: "a running Docker daemon".to_owned(),
            why: DOCKER.why,
            package: "and start Docker",
        });
    }
    let log = workspace::logs().join("dockerd.log");
    progress.say("starting the Docker daemon, because none answers");
    start(progress, &log).await?;
    let answered = progress
        .show(
            "the Docker daemon starts",
            until("dockerd answers", PATIENCE, connect),
        )
        .await;
    answered.map_err(|source| SetupError::Daemon { log, source })
}

async fn start(progress: &Progress, log: &Path) -> Result<(), SetupError> {
    if Path::new("/run/systemd/system").exists() {
        let mut start = Command::new("systemctl");
        return progress
            .run("start docker", start.args(["start", "docker"]))
            .await
            .map_err(SetupError::Step);
    }
    let daemon = packages::find(DOCKER.program).ok_or_else(|| packages::by_hand(&DOCKER))?;
    // A session of its own: it shall not end with the terminal.
    let script = format!(
        "exec setsid --fork '{}' >>'{}' 2>&1",
        daemon.display(),
        log.display()
    );
    let mut detached = Command::new("sh");
    detached
        .args(["-c", &script])
        .env("PATH", packages::search_path());
    progress
        .run("start dockerd", &mut detached)
        .await
        .map_err(SetupError::Step)
}

async fn connect() -> Result<Docker, String> {
    Docker::connect()
        .await
        .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

const PATIENCE: Duration = Duration::from_mins(1);
