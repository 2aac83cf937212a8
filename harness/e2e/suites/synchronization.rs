//! The synchronization suite: every scenario has exclusive use of a control plane and two runtime clusters.

use std::process::ExitCode;

use e2e::runner::{self, Suite};
use e2e::synchronization::ClustersPool;

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite::new("synchronization", ClustersPool::SIZE);
    Box::pin(runner::main(suite, ClustersPool::start)).await
}
