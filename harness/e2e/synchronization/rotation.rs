//! The demonstration: a change of the pull Secret on KCP, timed until the webhook on a runtime uses it.

use std::time::{Duration, Instant};

use super::clusters::Clusters;
use super::source::Source;

/// A change of the pull Secret as a runtime received it.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// Name of the Runtime.
    pub runtime: String,
    /// Registry for which the Secret has credentials since.
    pub host: String,
    /// Time from the write on KCP until the runtime had the Secret.
    pub arrived: Duration,
    /// Time from the write on KCP until every replica of the webhook used it.
    pub decided: Duration,
}

impl Clusters {
    /// Changes the pull Secret on KCP and times the synchronization to a runtime in mode direct.
    ///
    /// # Errors
    /// When the runtime does not become ready, or is not synchronized.
    pub async fn rotate(&self) -> anyhow::Result<Rotation> {
        let runtime = self.direct(0, None).await?;
        let cluster = self.cluster_of(&runtime)?;
        let source = Source::PullSecret;
        let object = source.fresh()?;
        let begin = Instant::now();
        self.kcp.write(source, &object).await?;
        cluster.has(source, &object).await?;
        let arrived = begin.elapsed();
        cluster.uses(source, &object).await?;
        Ok(Rotation {
            runtime: runtime.name,
            host: source.probe(&object)?.0.replace("/x", ""),
            arrived,
            decided: begin.elapsed(),
        })
    }
}
