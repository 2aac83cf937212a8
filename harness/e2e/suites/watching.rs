//! The watching suite: KCP with the gateway and managers, and a runtime with the watcher, which all scenarios share.

use std::process::ExitCode;

use e2e::runner::{self, Suite};
use e2e::watching;

const SUITE: Suite = Suite {
    name: "watching",
    folder: "watching",
    at_once: 4,
    selects: |_| true,
};

#[tokio::main]
async fn main() -> ExitCode {
    Box::pin(runner::main(SUITE, watching::start)).await
}
