//! The flow suite: a Runtime from its creation to running modules, with doubles of KEB, KIM and KLM.

use std::process::ExitCode;

use e2e::flow;
use e2e::runner::{self, Suite};

const SUITE: Suite = Suite {
    name: "flow",
    folder: "flow",
    at_once: 2,
    selects: |_| true,
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, flow::start)).await
}
