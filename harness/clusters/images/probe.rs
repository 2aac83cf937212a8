//! The probe: a tiny image of our own that a test can start anywhere and ask from inside.
//!
//! Invariant: no dependency, no libc at run time, no shell; built by one call of `rustc` in about a second. Its
//! program is `harness/images/probe/main.rs`.

use std::path::Path;

use tokio::process::Command;

use super::{ImageError, ImageTar, folder};
use crate::progress::Progress;
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
