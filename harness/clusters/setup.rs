//! Setting a machine up: what clusters need is installed, started and built, once.
//!
//! Invariant: it says what it is about to do and why before it does it, changes nothing when nothing is missing (and
//! is then done in under two seconds), and leaves one file, [`Setup`], which says what the harness runs on. It installs
//! on a root Debian machine only; elsewhere it names what to install. Deliberately absent: any question to the user.

mod images;
mod machine;

pub(crate) use images::{ENVOY_VERSION, Pulled, ensure_envoy};

use std::path::PathBuf;

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::cluster::{Provider, ProviderChoice};
use crate::docker::DockerError;
use crate::images::{self as product, ImageError};
use crate::progress::{Progress, StepError};
use crate::workspace;
use testkit::until::TooLate;

/// What the harness runs on; chosen once, kept in `target/harness/setup.json`, printed in every report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// What runs clusters.
    pub provider: Provider,
    /// The image of the private registry.
    pub registry_image: String,
}

impl Setup {
    /// What an earlier set-up chose; [`CLUSTER`] in the environment replaces the provider.
    ///
    /// # Errors
    /// [`SetupError::Missing`] when there was none: tests show it, because it names the command. Also when the variable
    /// is set to something else than a value of `--cluster`.
    pub fn load() -> Result<Self, SetupError> {
        if let Some(value) = std::env::var_os(CLUSTER) {
            let choice = value
                .to_str()
                .and_then(|value| ProviderChoice::from_str(value, false).ok());
            return images::chosen(choice.ok_or(SetupError::Cluster { value })?);
        }
        let text = std::fs::read(file()).map_err(|_| SetupError::Missing)?;
        serde_json::from_slice(&text).map_err(|_| SetupError::Missing)
    }

    /// The same on another provider, for one run; for [`ProviderChoice::Kube`] an earlier set-up must have built it.
    ///
    /// # Errors
    /// When our own image was never built.
    pub fn with_choice(self, choice: Option<ProviderChoice>) -> Result<Self, SetupError> {
        choice.map_or(Ok(self), images::chosen)
    }

    fn save(&self) -> Result<(), SetupError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        std::fs::create_dir_all(workspace::state())
            .and_then(|()| std::fs::write(file(), text))
            .map_err(SetupError::file(file()))
    }
}

/// Makes the machine ready and says what the clusters run on. A `choice` is valid for this call: it is not saved.
///
/// # Errors
/// When something cannot be installed, started or built; the text says what to do or shows the end of the log.
pub async fn run(progress: &Progress, choice: Option<ProviderChoice>) -> Result<Setup, SetupError> {
    let before = Setup::load().ok();
    machine::ensure_inotify(progress)?;
    let docker = machine::ensure_docker(progress).await?;
    let provider = images::choose(progress, &docker, choice, before.as_ref()).await?;
    let setup = images::ensure(progress, &docker, &provider).await?;
    if choice.is_none() && before.as_ref() != Some(&setup) {
        setup.save()?;
    }
    Ok(setup)
}

/// The same, and builds the product's binary at the same time: the two wait for different things most of the time
/// (disk, network, one last link).
///
/// # Errors
/// As [`run`], or when the product does not compile.
pub async fn run_with_product(
    progress: &Progress,
    choice: Option<ProviderChoice>,
) -> Result<Setup, SetupError> {
    let (setup, binary) = tokio::join!(
        run(progress, choice),
        product::binary(progress, product::Profile::E2e)
    );
    let setup = setup?;
    binary.map_err(SetupError::Product)?;
    Ok(setup)
}

fn file() -> PathBuf {
    workspace::state().join("setup.json")
}

/// Environment variable with a value of `--cluster`: how `cargo verify --cluster` reaches the tests that it starts.
pub const CLUSTER: &str = "HARNESS_CLUSTER";

/// The machine is not ready.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No set-up ran here.
    #[error("this machine is not set up for clusters; run: cargo run -p harness -- setup")]
    Missing,
    /// The environment names a cluster image that does not exist.
    #[error("{CLUSTER}: {}: expected k3s or kube", value.display())]
    Cluster {
        /// Value of the variable.
        value: std::ffi::OsString,
    },
    /// Something must be installed by hand.
    #[error("{program} is missing ({why}); install {package} and run this again")]
    Install {
        /// What is missing.
        program: String,
        /// What it is needed for.
        why: &'static str,
        /// What brings it.
        package: &'static str,
    },
    /// A program that installs or builds failed.
    #[error("the set-up stopped")]
    Step(#[source] StepError),
    /// Docker does not do its part.
    #[error("the set-up stopped at Docker")]
    Docker(#[source] DockerError),
    /// The daemon was started and does not answer.
    #[error("dockerd was started, see {}", log.display())]
    Daemon {
        /// Its log.
        log: PathBuf,
        /// What was seen last.
        source: TooLate,
    },
    /// The product does not compile.
    #[error("the product's binary could not be built")]
    Product(#[source] ImageError),
    /// A file of ours cannot be read or written.
    #[error("{}: cannot be read or written", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl SetupError {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
