//! The admission suite on a cluster: scenarios that need a node, the API server or time, and a sample of the others.

use std::process::ExitCode;

use e2e::admission;
use e2e::runner::{self, Suite};

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        selects: |tags| {
            ["cluster", "node", "sample"]
                .iter()
                .any(|it| tags.contains(*it))
        },
        ..Suite::new("admission", 4)
    };
    Box::pin(runner::main(suite, admission::start)).await
}
