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
        let free = LINE_START - self.line.len();
        self.line.extend(part.iter().take(free));
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
mod tests;
