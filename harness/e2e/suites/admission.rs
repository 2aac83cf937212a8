//! The admission suite on a cluster: scenarios that need a node, the API server or time, and a sample of the others.

use std::process::ExitCode;

use e2e::admission;
use e2e::runner::{self, Suite};

const SUITE: Suite = Suite {
    name: "admission",
    folder: "admission",
    at_once: 4,
    selects: |tags| {
        ["cluster", "node", "sample"]
            .iter()
            .any(|tag| tags.contains(*tag))
    },
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, admission::start)).await
}
