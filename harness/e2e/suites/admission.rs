//! The admission suite on a cluster: scenarios that need a node, the API server or time, and a sample of the others.

use std::process::ExitCode;

use e2e::admission;
use e2e::runner::{self, Suite};

const TAGS: [&str; 3] = ["cluster", "node", "sample"];
const SUITE: Suite = Suite {
    name: "admission",
    folder: "admission",
    at_once: 4,
    selects: |tags| tags.iter().any(|tag| TAGS.contains(&tag.as_str())),
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, admission::start)).await
}
