//! The conformance suite: a process that has only kubeconfigs checks clusters against scenario files.

use std::process::ExitCode;

use e2e::conformance;
use e2e::runner::{self, Suite};

#[tokio::main]
async fn main() -> ExitCode {
    // The suite is sequential, because scenarios select the landscape of the runtime.
    let suite = Suite::new("conformance", 1);
    Box::pin(runner::main(suite, conformance::start)).await
}
