//! Tests of the equality of two values in the spec of an object: from the bytes to the event.

use rstest::rstest;

use super::case::update;
use crate::change::*;

fn spec(value: &str) -> String {
    format!(
        r#"{{"apiVersion":"x/v1","kind":"X","metadata":{{"name":"a"}},"spec":{{"a":{value}}}}}"#
    )
}

// The public watcher compares doubles.
#[rstest]
#[case("1", "1.0", false)]
#[case("1", "1e0", false)]
#[case("1", "10e-1", false)]
#[case("100", "1E+2", false)]
#[case("0.001", "1e-3", false)]
#[case("-0.50", "-5e-1", false)]
#[case("0.10203", "10203e-5", false)]
#[case("1020.30", "1.0203e3", false)]
#[case("0", "-0", false)]
#[case("0", "0.000e99999999999999999999", false)]
#[case("1e400", "10e399", false)]
#[case("1e0000000000000000000000000002", "100", false)]
#[case("1", "2", true)]
#[case("1", "-1", true)]
#[case("1", "10", true)]
#[case("1", "0.1", true)]
#[case("1.02", "10.2", true)]
#[case("0", "1", true)]
#[case("1e400", "1e401", true)]
#[case("1e400", "-1e400", true)]
#[case("1e-400", "0", true)]
#[case::two_to_the_53("9007199254740992", "9007199254740993", true)]
#[case::two_to_the_64("18446744073709551617", "18446744073709551616", true)]
#[case("0.1", "0.1000000000000000000000000000000000000001", true)]
#[case::in_doubt("1e99999999999999999999", "10e99999999999999999998", true)]
#[case::at_the_edge("1e9223372036854775807", "10e9223372036854775807", true)]
#[case("1", "\"1\"", true)]
fn numbers_are_compared_exactly(#[case] one: &str, #[case] other: &str, #[case] sent: bool) {
    assert_sent(one, other, sent);
}

#[rstest]
#[case::order_of_keys(
    r#"{"a":1,"b":[{"c":2,"d":3}]}"#,
    r#"{"b":[{"d":3,"c":2}],"a":1}"#,
    false
)]
#[case::white_space(r#"{"a":[1,{"b":2}]}"#, "{ \"a\" :\n[ 1,\t{\"b\" : 2 } ] }", false)]
#[case::escapes(r#"{"ä":"/\n"}"#, r#"{"\u00e4":"\/\u000A"}"#, false)]
#[case::order_in_a_list("[1,2]", "[2,1]", true)]
#[case::longer_list("[1,2]", "[1,2,2]", true)]
#[case::empty("{}", "[]", true)]
#[case::null_and_absent("{}", r#"{"b":null}"#, true)]
#[case::null_and_empty("null", "{}", true)]
#[case::truth("true", "false", true)]
#[case::truth_and_text("true", "\"true\"", true)]
#[case::case_of_keys(r#"{"b":1}"#, r#"{"B":1}"#, true)]
#[case::another_key(r#"{"b":1,"c":1}"#, r#"{"b":1,"d":1}"#, true)]
#[case::space_within_a_text("\"a b\"", "\"a  b\"", true)]
#[case::composed_and_decomposed("\"\u{e4}\"", "\"a\u{308}\"", true)]
#[case::in_doubt_no_unicode(r#""\ud800""#, r#""\uD800""#, true)]
#[case::in_doubt_a_key_that_is_no_unicode(r#"{"\ud800":1}"#, r#"{"\uD800":1}"#, true)]
fn values_are_compared_by_meaning(#[case] one: &str, #[case] other: &str, #[case] sent: bool) {
    assert_sent(one, other, sent);
}

#[rstest]
#[case::a_small_value_to_the_end(100, 0, false)]
#[case::a_large_one(4, 100_000, false)]
#[case::a_large_one_that_is_deep(12, 100_000, true)]
#[case::a_very_deep_one(1_000, 0, true)]
fn respelled_nesting_is_followed_for_so_long(
    #[case] levels: usize,
    #[case] width: usize,
    #[case] sent: bool,
) {
    let deep = |leaf: &str| {
        let (open, close) = ("{\"a\":".repeat(levels), "}".repeat(levels));
        format!("{open}[{leaf},\"{}\"]{close}", "x".repeat(width))
    };
    assert_sent(&deep("1"), &deep("1.0"), sent);
    assert_sent(&deep("1"), &deep("1"), false);
    assert_sent(&deep("1"), &deep("2"), true);
}

fn assert_sent(one: &str, other: &str, sent: bool) {
    for (one, other) in [(one, other), (other, one)] {
        let outcome = update(&spec(one), &spec(other));
        assert_eq!(matches!(outcome, Outcome::Send(_)), sent, "{one} {other}");
    }
}
