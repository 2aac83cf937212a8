//! The images of other programs: the probe, the gateway, cert-manager, istiod, the example operator and the KLM double.
//!
//! The probe is a program without dependencies, without libc at run time and without a shell. One call of `rustc` builds it in
//! about a second from `harness/images/probe/main.rs`. The image of a built gateway contains only Envoy and the libraries of
//! this machine that it is linked against. The same applies to the example operator and the KLM double. Their names change with
//! the content.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tokio::process::Command;

use super::{Image, content_tag, context};
use crate::cluster::Provider;
use crate::progress;
use crate::setup::{CERT_MANAGER, ISTIOD, Part, Setup, ensure_envoy, pull, pulled_gateway};
use crate::workspace;

/// Name of the probe's image on nodes.
pub const PROBE: &str = "localhost/probe:1";

/// Builds the probe's image.
pub async fn probe() -> anyhow::Result<Image> {
    build_probe(PROBE, &[]).await
}

/// Builds the probe's image with another ID, for the private registry only. A kubelet stores the IDs of images that were pulled
/// with credentials. It then rejects such an image for Pods without credentials, even if the image was loaded into the node.
pub async fn private_probe() -> anyhow::Result<Image> {
    let label = ["--label", "from=the private registry"];
    build_probe("localhost/private-probe:1", &label).await
}

async fn build_probe(reference: &str, options: &[&str]) -> anyhow::Result<Image> {
    let sources = workspace::root().join("harness/images/probe");
    let source = sources.join("main.rs");
    let name = format!("images/probe-{}", content_tag([source.as_path()])?);
    let folder = workspace::state().join(name);
    compile_probe(&source, &folder).await?;
    let dockerfile = sources.join("Dockerfile");
    Image::build(reference, (&dockerfile, &folder), options).await
}

/// Compiles the program into the folder, unless it exists. Concurrent suites compile in separate folders and then move the
/// finished program.
async fn compile_probe(source: &Path, folder: &Path) -> anyhow::Result<()> {
    let program = folder.join("probe");
    if program.exists() {
        return Ok(());
    }
    let own = context()?;
    let compiled = own.path().join("probe");
    let mut rustc = Command::new("rustc");
    rustc
        .args(["--edition=2024", "--crate-name=probe", "--target"])
        .args([&super::target(), "-O", "-Cpanic=abort"])
        .args(["-Cstrip=symbols", "-Ctarget-feature=+crt-static", "-o"])
        .args([&compiled, source]);
    progress::run("build the probe", &mut rustc).await?;
    std::fs::create_dir_all(folder)?;
    Ok(std::fs::rename(compiled, program)?)
}

/// Returns the gateway's image, which was pulled or is built, depending on the set-up.
pub async fn gateway(setup: &Setup) -> anyhow::Result<Image> {
    if matches!(setup.provider, Provider::K3s(_)) {
        let found = Image::find(&pulled_gateway()).await?;
        return found.context("the set-up has not pulled the gateway");
    }
    linked("envoy", &ensure_envoy().await?).await
}

/// Returns the image of cert-manager: that of `HARNESS_CERT_MANAGER_IMAGE`, or one built from its Go module.
pub async fn cert_manager() -> anyhow::Result<Image> {
    pulled_or_built(CERT_MANAGER_IMAGE, CERT_MANAGER).await
}

/// Returns the image of istiod: that of `HARNESS_ISTIOD_IMAGE`, or one built from its Go module.
pub async fn istiod() -> anyhow::Result<Image> {
    pulled_or_built(ISTIOD_IMAGE, ISTIOD).await
}

/// Environment variable with the image of cert-manager's controller, which is pulled unless Docker has it.
const CERT_MANAGER_IMAGE: &str = "HARNESS_CERT_MANAGER_IMAGE";
/// Environment variable with the image of istiod, which is pulled unless Docker has it.
const ISTIOD_IMAGE: &str = "HARNESS_ISTIOD_IMAGE";

async fn pulled_or_built(variable: &str, part: Part) -> anyhow::Result<Image> {
    let reference = match std::env::var(variable) {
        Ok(image) if !image.is_empty() => {
            pull(&image).await.with_context(|| variable.to_owned())?;
            image
        }
        _ => part.ensure().await?,
    };
    let found = Image::find(&reference).await?;
    found.with_context(|| format!("Docker lacks {reference}, which was pulled or built"))
}

/// Returns the image of the example operator of the listener's crate, built as by the workspace's tests.
pub async fn operator() -> anyhow::Result<Image> {
    built("--example", "operator", "debug/examples/operator").await
}

/// Returns the image of the KLM double, built as by the workspace's tests.
pub async fn klm() -> anyhow::Result<Image> {
    built("--bin", "klm-double", "debug/klm-double").await
}

async fn built(kind: &str, name: &str, file: &str) -> anyhow::Result<Image> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace::root())
        .args(["build", "--locked", "--workspace"])
        // The features of the tests; otherwise cargo would build all dependencies again.
        .args(["--features", "e2e/clusters", kind, name]);
    progress::run(&format!("build {name}"), &mut cargo).await?;
    linked(name, &workspace::target().join(file)).await
}

/// Returns the image of a program and its shared libraries, and builds it if the daemon does not have it.
async fn linked(name: &str, program: &Path) -> anyhow::Result<Image> {
    let libraries = libraries(program).await?;
    let dockerfile = workspace::root().join("harness/images/linked/Dockerfile");
    let files = [program, &dockerfile].into_iter();
    let tag = content_tag(files.chain(libraries.iter().map(PathBuf::as_path)))?;
    let reference = format!("localhost/{name}:{tag}");
    if let Some(image) = Image::find(&reference).await? {
        return Ok(image);
    }
    let folder = context()?;
    let copy = folder.path().join("program");
    std::fs::copy(program, &copy)?;
    // A downloaded file is not executable.
    std::fs::set_permissions(&copy, Permissions::from_mode(0o755))?;
    for library in &libraries {
        let copy = folder.path().join(library.strip_prefix("/")?);
        std::fs::create_dir_all(copy.parent().unwrap_or(folder.path()))?;
        std::fs::copy(library, copy)?;
    }
    Image::build(&reference, (&dockerfile, folder.path()), &[]).await
}

/// Returns the paths of the program's shared libraries, including the dynamic linker.
async fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("ldd").arg(program).output().await;
    let listed = listed.context("run ldd")?.stdout;
    Ok(paths(&String::from_utf8_lossy(&listed))
        .map(PathBuf::from)
        .collect())
}

/// Returns the paths in the output of `ldd`: `name => path (address)`, and `path (address)` for the linker itself.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn probe_is_compiled_by_several_suites_at_once() {
        let folder = context().unwrap();
        let source = workspace::root().join("harness/images/probe/main.rs");
        let suites = [(); 4].map(|()| compile_probe(&source, folder.path()));
        for compiled in futures::future::join_all(suites).await {
            compiled.unwrap();
        }
        let program = folder.path().join("probe");
        let usage = Command::new(program).arg("--help").output().await.unwrap();
        assert!(!usage.stderr.is_empty() || !usage.stdout.is_empty());
    }

    #[test]
    fn libraries_are_where_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007f5f)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f5f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f5f)\n";
        let paths: Vec<&str> = paths(text).collect();
        assert_eq!(paths, ["/lib/x/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
