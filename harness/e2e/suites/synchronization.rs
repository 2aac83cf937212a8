//! The synchronization suite: every scenario has a control plane and two runtime clusters alone.

use std::process::ExitCode;

use e2e::runner::{self, Suite};
use e2e::synchronization::ClustersPool;

const SUITE: Suite = Suite {
    name: "synchronization",
    folder: "synchronization",
    at_once: ClustersPool::SIZE,
    selects: |_| true,
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, ClustersPool::start)).await
}
