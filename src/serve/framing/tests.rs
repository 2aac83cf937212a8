use rstest::rstest;
use testkit::growth::assert_proportional;

use super::*;

#[rstest]
#[case::one_length("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", true)]
#[case::chunked("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", true)]
#[case::no_body("POST / HTTP/1.1\r\nHost: a\r\n\r\n", true)]
#[case::a_name_that_only_contains_it(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nX-Content-Length: 2\r\nTransfer-Encodings-Of-Long-Names: a\r\n\r\n",
    true
)]
#[case::a_value_that_names_it(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nA: Content-Length:\r\n\r\n",
    true
)]
#[case::equal_lengths(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
    false
)]
#[case::length_then_chunked(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    false
)]
#[case::two_encodings(
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    false
)]
#[case::any_letter_case(
    "POST / HTTP/1.1\r\ncontent-length: 2\r\nTRANSFER-encoding: chunked\r\n\r\n",
    false
)]
#[case::bare_line_feeds(
    "POST / HTTP/1.1\nContent-Length: 2\nTransfer-Encoding: chunked\n\n",
    false
)]
#[case::blank_lines_before("\r\n\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", true)]
#[case::blank_lines_before_two_lengths(
    "\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
    false
)]
#[case::behind_the_header(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nContent-Length: 2\r\n",
    true
)]
#[case::incomplete("POST / HTTP/1.1\r\nContent-Length: 2\r\n", false)]
#[case::not_the_start_of_the_request("9\r\nContent-Length: 2\r\n\r\n", false)]
#[case::another_method("POSTS / HTTP/1.1\r\n\r\n", false)]
#[case::nothing("", false)]
fn a_header_is_judged_however_it_arrives(
    #[case] header: &str,
    #[case] expected: bool,
    #[values(1, 3, 4096)] step: usize,
) {
    let mut scanner = HeaderScanner::default();
    for part in header.as_bytes().chunks(step) {
        scanner.read(part);
    }
    assert_eq!(scanner.is_unambiguous("POST"), expected);
    assert!(scanner.line.capacity() <= 2 * LINE_START);
}

/// A client may send each byte of its header by itself.
#[rstest]
#[case::one_line("a")]
#[case::many_lines("A: b\r\n")]
fn the_time_of_a_scan_grows_with_the_size_of_the_header(#[case] repeated: &str) {
    let header = |size: usize| format!("POST / HTTP/1.1\r\nA: {}", repeated.repeat(size));
    let scan = |header: &String| {
        let mut scanner = HeaderScanner::default();
        for byte in header.as_bytes().chunks(1) {
            scanner.read(byte);
        }
        assert!(!scanner.is_unambiguous("POST"));
    };
    assert_proportional(1_000, header, scan);
}
