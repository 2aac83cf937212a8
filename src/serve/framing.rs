//! One question about a request's raw header: does it say twice where its body ends?
//!
//! Two framings are how requests are smuggled past a proxy in front. hyper resolves them as RFC 9112
//! §6.3 permits, before we see the header map: an equal second `Content-Length` is dropped, and
//! `Transfer-Encoding` wins over `Content-Length`. We refuse both, as the RFC prefers.
//!
//! Invariant: only a header seen whole, from its first byte, is judged. A pipelined request is left to hyper's
//! rules; no client of ours pipelines.

/// Where the header ends in `bytes`: the offset behind its blank line.
pub(crate) fn header_end(bytes: &[u8]) -> Option<usize> {
    let line_ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
    for (at, _) in line_ends {
        match bytes.get(at + 1..) {
            Some([b'\n', ..]) => return Some(at + 2),
            Some([b'\r', b'\n', ..]) => return Some(at + 3),
            _ => {}
        }
    }
    None
}

/// Whether `header`, which must begin with `method`, has two framings.
pub(crate) fn is_framed_twice(header: &[u8], method: &str) -> bool {
    let start = header
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))
        .unwrap_or(0);
    let header = header.get(start..).unwrap_or_default();
    let Some(rest) = header.strip_prefix(method.as_bytes()) else {
        return false;
    };
    if !rest.starts_with(b" ") {
        return false;
    }
    let (mut lengths, mut encodings) = (0, 0);
    for line in rest.split(|&byte| byte == b'\n').skip(1) {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        lengths += usize::from(name.eq_ignore_ascii_case(b"content-length"));
        encodings += usize::from(name.eq_ignore_ascii_case(b"transfer-encoding"));
    }
    lengths > 1 || (lengths > 0 && encodings > 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one_length("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n", false)]
    #[case::chunked("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", false)]
    #[case::no_body("POST / HTTP/1.1\r\nHost: a\r\n\r\n", false)]
    #[case::a_name_that_only_contains_it(
        "POST / HTTP/1.1\r\nContent-Length: 2\r\nX-Content-Length: 2\r\n\r\n",
        false
    )]
    #[case::a_value_that_names_it(
        "POST / HTTP/1.1\r\nContent-Length: 2\r\nA: Content-Length:\r\n\r\n",
        false
    )]
    #[case::equal_lengths(
        "POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        true
    )]
    #[case::length_then_chunked(
        "POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        true
    )]
    #[case::chunked_then_length(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        true
    )]
    #[case::any_letter_case(
        "POST / HTTP/1.1\r\ncontent-length: 2\r\nTRANSFER-encoding: chunked\r\n\r\n",
        true
    )]
    #[case::bare_line_feeds(
        "POST / HTTP/1.1\nContent-Length: 2\nTransfer-Encoding: chunked\n\n",
        true
    )]
    #[case::blank_lines_before(
        "\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        true
    )]
    #[case::not_the_start_of_the_request(
        "9\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        false
    )]
    fn two_framings_are_seen(#[case] header: &str, #[case] expected: bool) {
        assert_eq!(is_framed_twice(header.as_bytes(), "POST"), expected);
    }

    #[rstest]
    #[case("GET / HTTP/1.1\r\n\r\nbody", Some(18))]
    #[case("GET / HTTP/1.1\n\nbody", Some(16))]
    #[case("GET / HTTP/1.1\r\nA: b\r\n", None)]
    #[case("", None)]
    fn a_header_ends_at_its_blank_line(#[case] bytes: &str, #[case] expected: Option<usize>) {
        assert_eq!(header_end(bytes.as_bytes()), expected);
    }
}
