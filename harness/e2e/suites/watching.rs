//! The watching suite: KCP with the gateway and managers, and a runtime with the watcher, which all scenarios share.

use std::process::ExitCode;

use e2e::runner::{self, Suite};
use e2e::watching;

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite::new("watching", 4);
    Box::pin(runner::main(suite, watching::start)).await
}
