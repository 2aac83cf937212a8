//! The conformance suite: clusters that are checked against scenario files by a process that has only their kubeconfigs.

use std::process::ExitCode;

use e2e::conformance;
use e2e::runner::{self, Suite};

#[tokio::main]
async fn main() -> ExitCode {
    // Scenarios choose the landscape of the runtime.
    let suite = Suite::new("conformance", 1);
    Box::pin(runner::main(suite, conformance::start)).await
}
