//! Why: what the product's own `preview` says about the same Deployment in the same landscape, without a cluster.
//!
//! Invariant: asked through its public output (`--output json`), as any user could.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tokio::process::Command;

use super::stage::Stage;
use clusters::workspace;
use e2e::landscape::{Scenario, Workload, placed, shown};

/// What `preview` answered.
#[derive(Debug)]
pub(super) struct Preview {
    /// How it was called, for a reader to do it again.
    pub(super) command: String,
    pub(super) reasons: Vec<Reason>,
}

/// Why something was changed, or was not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Reason {
    pub(super) feature: String,
    pub(super) applied: bool,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
struct Report {
    pods: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    reasons: Vec<Reason>,
}

pub(super) async fn ask(
    stage: &Stage,
    scenario: &Scenario,
    workload: &Workload,
) -> anyhow::Result<Preview> {
    let document = placed(&scenario.landscape.config, &stage.host);
    let config = keep("config.json", &format!("{document:#}\n"))?;
    let secret = keep("pull-secret.json", stage.place().docker_config)?;
    let manifest = scenario.manifest_file(workload);
    let mut preview = Command::new(&stage.binary);
    preview
        .arg("preview")
        .arg("--config")
        .arg(&config)
        .arg("--pull-secret")
        .arg(&secret)
        .args(["--output", "json"])
        .arg(&manifest);
    let printed = preview.output().await.context("preview cannot be run")?;
    ensure!(
        printed.status.success(),
        "preview ended with {}: {}",
        printed.status,
        String::from_utf8_lossy(&printed.stderr)
    );
    Ok(Preview {
        command: format!(
            "{} preview --config {} \\\n  --pull-secret {} {}",
            shown(&stage.binary),
            shown(&config),
            shown(&secret),
            shown(&manifest)
        ),
        reasons: reasons(&printed.stdout)?,
    })
}

fn reasons(printed: &[u8]) -> anyhow::Result<Vec<Reason>> {
    let report: Report =
        serde_json::from_slice(printed).context("preview printed something else")?;
    let entries = report.pods.into_iter();
    let mut reasons: Vec<Reason> = entries.flat_map(|entry| entry.reasons).collect();
    for reason in &mut reasons {
        // The part that people say.
        if let Some((_, name)) = reason.feature.rsplit_once('/') {
            reason.feature = name.to_owned();
        }
    }
    Ok(reasons)
}

fn keep(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join("demo");
    let file = folder.join(name);
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, text))
        .with_context(|| file.display().to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_from_the_public_shape() {
        let printed = serde_json::json!({ "pods": [{
            "source": { "kind": "Deployment", "namespace": "default", "name": "x" },
            "changed": true, "pod": {}, "patch": [],
            "reasons": [{
                "feature": "rt-cfg.kyma-project.io/set-fips-mode", "applied": true,
                "reason": "added", "message": "m",
            }],
        }] });
        let expected = Reason {
            feature: "set-fips-mode".to_owned(),
            applied: true,
            message: "m".to_owned(),
        };
        assert_eq!(reasons(printed.to_string().as_bytes()).unwrap(), [expected]);
        assert!(reasons(b"not json").is_err());
    }
}
