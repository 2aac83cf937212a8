//! What fuzzing begins with, and what it has found: the property of `fuzz` on a stable compiler.

use rstest::rstest;

#[path = "../../../fuzz/properties/partial_json.rs"]
mod property;

#[rstest]
fn a_document_is_read_as_serde_json_reads_it(
    #[files("../../fuzz/seeds/partial_json/*")]
    #[mode = bytes]
    text: &[u8],
) {
    property::check(text);
}
