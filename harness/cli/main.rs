//! The workshop's command: sets a machine up, runs clusters, verifies the product.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(harness::cli::run()).await
}
