use rstest::rstest;

use super::*;

#[rstest]
#[case::said(Some("timeout=10s"), 9_500)]
#[case::among_others(Some("a=b&timeout=3s"), 2_500)]
#[case::not_said(None, 10_000)]
#[case::empty(Some(""), 10_000)]
#[case::no_number(Some("timeout=soon"), 10_000)]
#[case::most_that_an_api_server_says(Some("timeout=30s"), 10_000)]
#[case::too_long(Some("timeout=3600s"), 10_000)]
#[case::none(Some("timeout=0s"), 0)]
fn answer_timeout_is_the_api_servers_and_ten_seconds_at_most(
    #[case] query: Option<&str>,
    #[case] millis: u64,
) {
    assert_eq!(answer_timeout(query), Duration::from_millis(millis));
}
