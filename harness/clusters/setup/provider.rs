//! Which of the two cluster images it shall be.
//!
//! Invariant: k3s wherever its image is or can be pulled *and* may run privileged, our own elsewhere. This is decided
//! once and kept until the image is gone; `--cluster` is valid for its own command and is never kept.

use std::time::Duration;

use tokio::process::Command;

use super::{Setup, SetupError, builds};
use crate::cluster::{K3S_IMAGE, Provider, ProviderChoice};
use crate::docker::{self, Docker};
use crate::progress::Progress;

pub(super) async fn choose(
    progress: &Progress,
    docker: &Docker,
    choice: Option<ProviderChoice>,
    before: Option<&Setup>,
) -> Result<Provider, SetupError> {
    match (choice, before) {
        // Built after this, so its name may not be known yet.
        (Some(ProviderChoice::Kube), _) => return Ok(Provider::Kube(String::new())),
        (Some(ProviderChoice::K3s), _) => return Ok(Provider::K3s(K3S_IMAGE.to_owned())),
        (None, Some(before)) if stands(docker, &before.provider).await? => {
            return Ok(before.provider.clone());
        }
        _ => {}
    }
    if k3s_is_there(progress, docker).await? && may_be_privileged(progress).await {
        progress.say(&format!("clusters run on {K3S_IMAGE}"));
        return Ok(Provider::K3s(K3S_IMAGE.to_owned()));
    }
    progress.say(
        "clusters run on our own image: rancher/k3s cannot be pulled or not run privileged here",
    );
    Ok(Provider::Kube(String::new()))
}

pub(super) fn chosen(choice: ProviderChoice) -> Result<Provider, SetupError> {
    Ok(match choice {
        ProviderChoice::K3s => Provider::K3s(K3S_IMAGE.to_owned()),
        ProviderChoice::Kube => Provider::Kube(builds::KUBE.image()?),
    })
}

/// An image of ours is built again when it is gone; one from outside may not come back.
async fn stands(docker: &Docker, provider: &Provider) -> Result<bool, SetupError> {
    match provider {
        Provider::Kube(_) => Ok(true),
        Provider::K3s(image) => Ok(docker
            .image_id(image)
            .await
            .map_err(SetupError::Docker)?
            .is_some()),
    }
}

async fn k3s_is_there(progress: &Progress, docker: &Docker) -> Result<bool, SetupError> {
    if docker
        .image_id(K3S_IMAGE)
        .await
        .map_err(SetupError::Docker)?
        .is_some()
    {
        return Ok(true);
    }
    progress.say(&format!(
        "trying to pull {K3S_IMAGE}, for up to {} s",
        PULL.as_secs()
    ));
    let mut pull = Command::new(docker::program());
    pull.args(["pull", "--quiet", K3S_IMAGE]);
    let pulled = tokio::time::timeout(PULL, progress.run("pull k3s", &mut pull)).await;
    Ok(matches!(pulled, Ok(Ok(()))))
}

/// Some machines cannot grant all capabilities; only a try tells.
async fn may_be_privileged(progress: &Progress) -> bool {
    let mut run = Command::new(docker::program());
    run.args([
        "run",
        "--rm",
        "--privileged",
        "--userns=host",
        K3S_IMAGE,
        "--version",
    ]);
    progress
        .run("try a privileged container", &mut run)
        .await
        .is_ok()
}

const PULL: Duration = Duration::from_mins(1);
