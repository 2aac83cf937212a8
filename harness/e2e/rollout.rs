//! When a Deployment is rolled out: all its replicas are of the newest shape and available, and no others are left.
//!
//! Deliberately absent: processes that drain. They have left the counts and may still answer.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;

use crate::world::Dialogue;

/// How many replicas one that is rolled out has.
///
/// # Errors
/// When it is not rolled out, with what is missing.
pub fn replicas(deployment: &Deployment) -> anyhow::Result<i32> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let status = deployment.status.as_ref().context("no status yet")?;
    ensure!(
        status.observed_generation == deployment.metadata.generation,
        "not looked at yet"
    );
    // A count of zero is left out.
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ]
    .map(Option::unwrap_or_default);
    ensure!(counts == [wanted; 3], "{counts:?} of {wanted}");
    Ok(wanted)
}

/// The same of the Deployment at a path.
///
/// # Errors
/// The same, and when the API server does not show it.
pub async fn replicas_at(dialogue: &Dialogue, path: &str) -> anyhow::Result<i32> {
    let live = dialogue.get(path).await?;
    replicas(&serde_json::from_value(live.object)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::all_there([2, 2, 2], 3, true)]
    #[case::one_of_the_old_shape([3, 2, 2], 3, false)]
    #[case::one_not_available([2, 2, 1], 3, false)]
    #[case::not_looked_at([2, 2, 2], 2, false)]
    fn rolled_out_means_every_count_of_the_newest_generation(
        #[case] counts: [i32; 3],
        #[case] observed: i64,
        #[case] expected: bool,
    ) {
        let [all, updated, available] = counts;
        let deployment = json!({
            "metadata": { "generation": 3 },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": {
                "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
                "observedGeneration": observed,
            },
        });
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        assert_eq!(replicas(&deployment).is_ok(), expected);
    }
}
