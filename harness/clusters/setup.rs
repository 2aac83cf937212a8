//! Setting a machine up: what clusters need is installed, started and built, once.
//!
//! It says what it is about to do and why before it does it, changes nothing when nothing is missing (and is then done in
//! under two seconds), and leaves one file, [`Setup`], which says what the harness runs on. It installs on a root Debian
//! machine only; elsewhere it names what to install. It asks the user nothing.

mod images;
mod machine;

pub(crate) use images::{ensure_envoy, pulled_gateway};

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::cluster::{Provider, ProviderChoice};
use crate::images as product;
use crate::workspace;

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

/// Makes the machine ready and says what the clusters run on. A `choice` is valid for this call: it is not saved.
pub async fn run(choice: Option<ProviderChoice>) -> anyhow::Result<Setup> {
    let before = Setup::load().ok();
    machine::ensure_inotify()?;
    machine::ensure_docker().await?;
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

/// The same, and builds the product's binary at the same time: the two wait for different things most of the time
/// (disk, network, one last link).
pub async fn run_with_product(choice: Option<ProviderChoice>) -> anyhow::Result<Setup> {
    let (setup, binary) = tokio::join!(run(choice), product::binary(product::Profile::E2e));
    let setup = setup?;
    binary?;
    Ok(setup)
}

fn file() -> PathBuf {
    workspace::state().join("setup.json")
}

/// Environment variable with a value of `--cluster`: how `cargo verify --cluster` reaches the tests that it starts.
pub const CLUSTER: &str = "HARNESS_CLUSTER";

/// Shown where no set-up ran.
const MISSING: &str = "this machine is not set up for clusters; run: cargo harness setup";
