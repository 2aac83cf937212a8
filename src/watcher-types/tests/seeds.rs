//! Checks the seeds of fuzzing, and inputs that fuzzing has found, with a stable compiler.

extern crate runtime_watcher_types as watcher_types;

use rstest::rstest;

#[path = "../../../fuzz/properties/watch_event.rs"]
mod watch_event;

#[rstest]
fn what_was_read_is_read_again(
    #[files("../../fuzz/seeds/watch_event/*")]
    #[mode = bytes]
    body: &[u8],
) {
    watch_event::check(body);
}
