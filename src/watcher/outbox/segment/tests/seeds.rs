//! The files that fuzzing begins with, and those that it has found: the property of `fuzz` on a stable compiler.

use rstest::rstest;

#[path = "../../../../../fuzz/properties/spool.rs"]
mod property;

#[rstest]
fn a_file_is_read_to_its_end(
    #[files("../../fuzz/seeds/spool/*")]
    #[mode = bytes]
    file: &[u8],
) {
    property::check(file);
}
