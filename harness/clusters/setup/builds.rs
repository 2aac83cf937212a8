//! The images that are built from Go modules: our cluster image and the registry.
//!
//! Invariant: a part is built by its own `build.sh`, which knows whether its sources changed, is done in a moment if
//! not, and leaves the image's name in a file under `target/kube`.

use std::path::PathBuf;

use tokio::process::Command;

use super::packages::{self, DEBOOTSTRAP, GO};
use super::{Setup, SetupError};
use crate::cluster::Provider;
use crate::progress::Progress;
use crate::workspace;

/// Something with a `build.sh`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    title: &'static str,
    folder: &'static str,
    name_file: &'static str,
}

/// Kubernetes in one image.
pub(super) const KUBE: Part = Part {
    title: "build our cluster image",
    folder: "harness/images/kube",
    name_file: "image",
};

/// The private registry.
pub(super) const REGISTRY: Part = Part {
    title: "build the registry's image",
    folder: "harness/images/registry",
    name_file: "registry-image",
};

/// Builds what is missing for the provider. One after the other: each uses all cores.
pub(super) async fn ensure(progress: &Progress, provider: &Provider) -> Result<Setup, SetupError> {
    if packages::find(GO.program).is_none() {
        return Err(packages::by_hand(&GO));
    }
    let provider = match provider {
        Provider::Kube(_) => {
            packages::ensure(progress, &[DEBOOTSTRAP]).await?;
            Provider::Kube(KUBE.build(progress).await?)
        }
        Provider::K3s(image) => Provider::K3s(image.clone()),
    };
    let registry_image = REGISTRY.build(progress).await?;
    Ok(Setup {
        provider,
        registry_image,
    })
}

impl Part {
    /// The image that the last build left.
    pub(super) fn image(self) -> Result<String, SetupError> {
        let file = workspace::target().join("kube").join(self.name_file);
        let name = std::fs::read_to_string(&file).map_err(|_| SetupError::Missing)?;
        Ok(name.trim().to_owned())
    }

    async fn build(self, progress: &Progress) -> Result<String, SetupError> {
        let script: PathBuf = workspace::root().join(self.folder).join("build.sh");
        let mut build = Command::new("bash");
        build
            .arg(script)
            .current_dir(workspace::root())
            .env("PATH", packages::search_path());
        progress
            .run(self.title, &mut build)
            .await
            .map_err(SetupError::Step)?;
        self.image()
    }
}
