//! Tests of the subcommand `preview` as a process: input files, output text and exit code.
#![cfg(test)]

#[path = "preview/errors.rs"]
mod errors;
#[path = "preview/forms.rs"]
mod forms;
#[path = "preview/inputs.rs"]
mod inputs;
#[path = "preview/near_misses.rs"]
mod near_misses;
#[path = "preview/refusals.rs"]
mod refusals;
#[path = "preview/runner.rs"]
mod runner;
