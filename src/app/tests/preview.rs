//! Role `preview`, judged from outside: files in, text and exit code out.
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
