//! The headers that fuzzing begins with, and those that it has found: the property of `fuzz` on a stable compiler.

use rstest::rstest;

#[path = "../../../../fuzz/properties/xfcc.rs"]
mod property;

#[rstest]
fn a_header_has_one_reading_or_none(
    #[files("../../fuzz/seeds/xfcc/*")]
    #[mode = bytes]
    header: &[u8],
) {
    property::check(header);
}
