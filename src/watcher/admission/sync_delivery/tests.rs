use rstest::rstest;

use super::*;

#[rstest]
#[case::said(Some("timeout=10s"), 9_500)]
#[case::among_others(Some("a=b&timeout=3s"), 2_500)]
#[case::not_said(None, 14_500)]
#[case::empty(Some(""), 14_500)]
#[case::no_number(Some("timeout=soon"), 14_500)]
#[case::too_long(Some("timeout=3600s"), 29_500)]
#[case::none(Some("timeout=0s"), 0)]
fn the_api_server_says_when_it_gives_up(#[case] query: Option<&str>, #[case] millis: u64) {
    assert_eq!(answer_timeout(query), Duration::from_millis(millis));
}
