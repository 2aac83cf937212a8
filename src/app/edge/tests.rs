use rstest::rstest;

use super::printable;

#[rstest]
#[case::plain("Größe → 1", "Größe → 1")]
#[case::colour("\u{1b}[31mred", "\\u{1b}[31mred")]
#[case::line("a\nb", "a\\nb")]
#[case::csi("\u{9b}2J", "\\u{9b}2J")]
fn control_characters_are_escaped(#[case] text: &str, #[case] shown: &str) {
    assert_eq!(printable(text), shown);
}
