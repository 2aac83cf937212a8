//! The program `harness`, which `cargo harness` runs.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(harness::cli::run()).await
}
