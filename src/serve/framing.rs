//! Detection of headers that specify the end of the body more than once.
//!
//! Such headers allow request smuggling past a proxy. hyper resolves them as RFC 9112 §6.3 permits, before the header map
//! is available: it drops an equal second `Content-Length`, and `Transfer-Encoding` has priority over `Content-Length`.
//! With [`Options::strict_framing`](crate::Options::strict_framing) both are rejected, as the RFC recommends. A request
//! whose header was not scanned from its first byte is rejected, too: it is pipelined, which proxies do not do.

use memchr::memchr;

/// Names of headers that specify the end of the body.
const FRAMING_NAMES: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// Number of stored bytes at the start of a line: more than the longest of these names with its colon, or a method and a space.
const LINE_START: usize = 24;

/// Scans one header as it arrives. It stores only the start of one line, and never the header.
#[derive(Debug, Default)]
pub(crate) struct HeaderScanner {
    line: Vec<u8>,
    /// Whether the rest of the current line is ignored.
    skipping: bool,
    /// Start of the request line.
    request_line: Option<Vec<u8>>,
    /// Number of fields that specify the end of the body.
    framings: usize,
    complete: bool,
}

impl HeaderScanner {
    /// Scans the next bytes of the connection. Bytes after the blank line are ignored.
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

    /// Returns whether the header was scanned from its first byte to its blank line, is of a request with `method`, and
    /// specifies the end of the body at most once.
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
            // Blank lines before a request line do not end the header.
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
