//! Whether a request's header says more than once where its body ends.
//!
//! Two such statements are how requests are smuggled past a proxy. hyper resolves them as RFC 9112 §6.3 permits, before the
//! header map is seen: an equal second `Content-Length` is dropped, and `Transfer-Encoding` wins over `Content-Length`. With
//! [`Options::strict_framing`](crate::Options::strict_framing) both are refused, as the RFC prefers, and so is a request
//! whose header was not seen from its first byte: a pipelined one, which proxies do not send.

use memchr::memchr;

/// The names that say where a body ends.
const FRAMING_NAMES: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// As much of the beginning of a line as is kept: more than the longest framing name and its colon, or a method and a space.
const LINE_START: usize = 24;

/// Reads one header as it arrives. It keeps the beginning of one line, never the header.
#[derive(Debug, Default)]
pub(crate) struct HeaderScanner {
    line: Vec<u8>,
    /// The rest of the current line is of no interest.
    skipping: bool,
    /// The beginning of the request line.
    request_line: Option<Vec<u8>>,
    /// Fields that say where the body ends.
    framings: usize,
    complete: bool,
}

impl HeaderScanner {
    /// Takes the next bytes of the connection. What follows the blank line is ignored.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while !self.complete && !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.read_part(part);
            if end.is_some() {
                self.end_line();
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
    }

    /// Whether the header was read from its first byte to its blank line, is that of a request with `method`, and says at
    /// most once where the body ends.
    pub(crate) fn is_unambiguous(&self, method: &str) -> bool {
        let start = self.request_line.as_deref().unwrap_or_default();
        let method_matches = start
            .strip_prefix(method.as_bytes())
            .is_some_and(|rest| rest.starts_with(b" "));
        self.complete && method_matches && self.framings <= 1
    }

    fn read_part(&mut self, part: &[u8]) {
        if self.skipping {
            return;
        }
        let room = LINE_START - self.line.len();
        self.line.extend(part.iter().take(room));
        self.skipping = self.line.len() == LINE_START;
    }

    fn end_line(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if self.request_line.is_none() {
            // Blank lines before a request line end nothing.
            if !line.is_empty() {
                self.request_line = Some(line.to_vec());
            }
        } else if line.is_empty() {
            self.complete = true;
        } else {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            let is_framing = |framing: &&[u8]| name.eq_ignore_ascii_case(framing);
            self.framings += usize::from(FRAMING_NAMES.iter().any(is_framing));
        }
        self.line.clear();
        self.skipping = false;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

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
}
