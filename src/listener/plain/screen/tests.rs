//! What counts as one framing; reading and time are tested over sockets (`component::tests::framing`).

use rstest::rstest;

use super::*;

#[rstest]
#[case::one_length("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", true)]
#[case::chunked("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", true)]
#[case::no_body("POST / HTTP/1.1\r\nHost: a\r\n\r\n", true)]
#[case::a_name_that_contains_it(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nX-Content-Length: 2\r\n\r\n",
    true
)]
#[case::a_value_that_names_it(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nA: Content-Length:\r\n\r\n",
    true
)]
#[case::blank_lines_before("\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", true)]
#[case::equal_lengths(
    "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
    false
)]
#[case::both(
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 2\r\n\r\n",
    false
)]
#[case::bare_line_feeds(
    "POST / HTTP/1.1\nContent-Length: 2\ntransfer-ENCODING: chunked\n\n",
    false
)]
#[case::not_the_start("2\r\nContent-Length: 2\r\n\r\n", false)]
#[case::another_method("GET / HTTP/1.1\r\n\r\n", false)]
fn a_header_is_believed_with_one_framing(#[case] header: &str, #[case] expected: bool) {
    assert_eq!(has_one_framing(header.as_bytes(), "POST"), expected);
    let screen = Screen::default();
    screen.received(header.as_bytes());
    assert_eq!(screen.begin("POST"), expected);
}

#[test]
fn however_it_arrives_a_header_is_kept_whole_and_its_body_not() {
    let header = b"\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n";
    for size in 1..=header.len() {
        let screen = Screen::default();
        header.chunks(size).for_each(|piece| screen.received(piece));
        screen.received(b"Content-Length: 2\r\n\r\n");
        assert_eq!(
            screen.state().header.trim_ascii_start(),
            header.trim_ascii_start()
        );
        assert!(screen.begin("POST"), "in pieces of {size}");
    }
}

#[test]
fn a_header_that_was_not_seen_is_not_believed() {
    let screen = Screen::default();
    assert!(!screen.begin("POST"));
    screen.received(b"POST / HTTP/1.1\r\n\r\n");
    screen.rest();
    assert!(
        !screen.begin("POST"),
        "it came as the body of another request"
    );
}
