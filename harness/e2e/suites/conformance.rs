//! The conformance suite: clusters that are checked against scenario files by a process that has only their kubeconfigs.

use std::process::ExitCode;

use e2e::conformance;
use e2e::runner::{self, Suite};

const SUITE: Suite = Suite {
    name: "conformance",
    folder: "conformance",
    // Scenarios choose the landscape of the runtime.
    at_once: 1,
    selects: |_| true,
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, conformance::start)).await
}
