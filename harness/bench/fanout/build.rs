//! The programs that take part.

use std::path::PathBuf;

use anyhow::ensure;
use tokio::process::Command;

use clusters::progress::Progress;

/// The binaries that take part.
pub(super) struct Programs {
    pub(super) product: PathBuf,
    pub(super) harness: PathBuf,
}

impl Programs {
    /// The product as it ships, and the harness with the same flags: a simulator of a debug build would be measured
    /// itself.
    pub(super) async fn build(progress: &Progress) -> anyhow::Result<Self> {
        let product =
            clusters::images::binary(progress, clusters::images::Profile::Release).await?;
        let harness = crate::programs::harness(progress).await?;
        Ok(Self { product, harness })
    }

    /// Those of the last build; the fleet is this program's, so that both understand each other.
    pub(super) fn built() -> anyhow::Result<Self> {
        let product = crate::programs::Programs::built().product;
        let harness = std::env::current_exe()?;
        Ok(Self { product, harness })
    }

    /// With another product.
    pub(super) fn with_product(self, product: Option<PathBuf>) -> Self {
        Self {
            product: product.unwrap_or(self.product),
            ..self
        }
    }

    /// What the product says its own resources are.
    pub(super) async fn crds(&self) -> anyhow::Result<String> {
        let printed = Command::new(&self.product).arg("crds").output().await?;
        ensure!(
            printed.status.success(),
            "crds: {}",
            String::from_utf8_lossy(&printed.stderr)
        );
        Ok(String::from_utf8(printed.stdout)?)
    }
}
