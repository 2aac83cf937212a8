//! The flow suite: a Runtime from its creation to running modules, with doubles of KEB, KIM and KLM.

use std::process::ExitCode;

use e2e::flow;
use e2e::runner::{self, Suite};

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite::new("flow", 2);
    Box::pin(runner::main(suite, flow::start)).await
}
