//! The images of the harness's own programs: the probe, and the gateway.
//!
//! The probe is a program without dependencies, without libc at run time and without a shell; it is built by one call of
//! `rustc` in about a second, from `harness/images/probe/main.rs`. A built gateway is Envoy with the C library of this
//! machine that it is linked against, and nothing else; its name changes with both.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use tokio::process::Command;

use super::{ImageError, ImageTar, folder};
use crate::progress::Progress;
use crate::setup::{ENVOY_VERSION, Pulled, Setup, ensure_envoy};
use crate::workspace;

/// The name under which nodes know the probe.
pub const PROBE: &str = "localhost/probe:1";

/// Builds the probe's image, if its source changed.
///
/// # Errors
/// When it does not compile.
pub async fn probe(progress: &Progress) -> Result<ImageTar, ImageError> {
    let source = workspace::root().join("harness/images/probe/main.rs");
    let program = folder().join("probe");
    if is_older(&program, &source) {
        std::fs::create_dir_all(folder()).map_err(ImageError::file(folder()))?;
        let mut rustc = Command::new("rustc");
        rustc
            .args([
                "--edition",
                "2024",
                "--crate-name",
                "probe",
                "--target",
                super::product::TARGET,
            ])
            .args([
                "-O",
                "-C",
                "panic=abort",
                "-C",
                "strip=symbols",
                "-C",
                "target-feature=+crt-static",
                "-o",
            ])
            .arg(&program)
            .arg(&source);
        progress
            .run("build the probe", &mut rustc)
            .await
            .map_err(ImageError::Build)?;
    }
    let bytes = std::fs::read(&program).map_err(ImageError::file(&program))?;
    let settings = serde_json::json!({
        "User": "65532:65532",
        "Entrypoint": ["/probe"],
        "Env": ["PATH=/"],
        // A first process without a handler ignores SIGTERM, and a handler needs unsafe code or a dependency.
        "StopSignal": "SIGKILL",
    });
    ImageTar::write(
        &folder().join("probe.tar"),
        PROBE,
        ("probe", &bytes),
        &settings,
    )
}

fn is_older(made: &Path, from: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    match (time(made), time(from)) {
        (Some(made), Some(from)) => made < from,
        _ => true,
    }
}

/// The gateway's image: pulled or built, as the set-up chose, if the folder of images lacks it.
///
/// # Errors
/// When Envoy cannot be had, or the image cannot be written.
pub async fn gateway(progress: &Progress, setup: &Setup) -> Result<ImageTar, ImageError> {
    if let Some(pulled) = Pulled::of(&setup.provider) {
        let archive = folder().join(format!("gateway-{ENVOY_VERSION}-pulled.tar"));
        return match ImageTar::open(&archive) {
            Ok(image) => Ok(image),
            Err(_) => super::product::save(progress, &pulled.gateway, &archive).await,
        };
    }
    let program = ensure_envoy(progress)
        .await
        .map_err(|error| ImageError::Setup(Box::new(error)))?;
    let libraries = libraries(&program).await?;
    let mut hash = Sha256::new();
    for (_, bytes) in &libraries {
        hash.update(bytes);
    }
    let mut tag = format!("{}-{:x}", ENVOY_VERSION, hash.finalize());
    tag.truncate(ENVOY_VERSION.len() + 13);
    let archive = folder().join(format!("gateway-{tag}.tar"));
    if let Ok(image) = ImageTar::open(&archive) {
        return Ok(image);
    }
    let bytes = std::fs::read(&program).map_err(ImageError::file(&program))?;
    let settings = serde_json::json!({
        "User": "65532:65532", "Entrypoint": ["/envoy"], "Env": ["PATH=/"],
    });
    let files = libraries
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let files = files.chain([("envoy", bytes.as_slice())]);
    let partial = archive.with_extension("partial");
    let reference = format!("localhost/gateway:{tag}");
    ImageTar::write_files(&partial, &reference, files, &settings)?;
    std::fs::rename(&partial, &archive).map_err(ImageError::file(&archive))?;
    ImageTar::open(&archive)
}

/// What the program is linked against, by the paths where the dynamic linker looks, which is one of them.
async fn libraries(program: &Path) -> Result<Vec<(String, Vec<u8>)>, ImageError> {
    let listed = Command::new("ldd").arg(program).output().await;
    let listed = listed.map_err(ImageError::file("ldd"))?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    paths(&text)
        .map(|path| {
            let bytes = std::fs::read(path).map_err(ImageError::file(path))?;
            Ok((path.trim_start_matches('/').to_owned(), bytes))
        })
        .collect()
}

/// The paths in what `ldd` says: `name => path (address)`, and `path (address)` of the linker itself.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_are_where_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007f5f)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x00007f5f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f5f)\n";
        let paths: Vec<&str> = super::paths(text).collect();
        assert_eq!(paths, ["/lib/x/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
