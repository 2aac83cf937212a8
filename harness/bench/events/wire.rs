//! HTTP/1.1 on a stream, as little of it as a bench needs: whole messages, whose length is announced.
//!
//! Invariant: a message is believed as it came; one without an end that can be told is an error. Deliberately absent:
//! chunks, trailers, pipelining.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A stream on which one message follows another.
pub(super) struct Wire<S> {
    stream: S,
    /// What came and was not given out.
    buffer: Vec<u8>,
}

/// A request or an answer.
pub(super) struct Message {
    bytes: Vec<u8>,
    /// Where the body begins.
    body: usize,
}

impl Message {
    /// With its blank line.
    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[..self.body]
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Of an answer; 0 if it is none.
    pub(super) fn status(&self) -> u16 {
        let text = str::from_utf8(self.head()).unwrap_or_default();
        let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
        status.unwrap_or_default()
    }

    /// The value of a header, if it is there.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(str::from_utf8(self.head()).ok()?, name)
    }

    /// Whether the connection ends with it.
    pub(super) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}

impl Wire<TcpStream> {
    /// A new connection, without encryption.
    pub(super) async fn plain(address: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        Ok(Self::new(tcp))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next message; `None` if the peer ended after the one before.
    pub(super) async fn read(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some(length) = length(&self.buffer)? {
                let rest = self.buffer.split_off(length.body + length.announced);
                let bytes = std::mem::replace(&mut self.buffer, rest);
                let body = length.body;
                return Ok(Some(Message { bytes, body }));
            }
            if self.buffer.len() > LONGEST {
                return Err(io::Error::other("a message that is too long"));
            }
            self.buffer.reserve(PIECE);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let whole = self.buffer.is_empty();
                return if whole { Ok(None) } else { Err(cut_off()) };
            }
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends a request and takes its answer.
    pub(super) async fn ask(&mut self, request: &[u8]) -> io::Result<Message> {
        self.write(request).await?;
        self.read().await?.ok_or_else(cut_off)
    }
}

/// A POST, as clients of Go write it.
pub(super) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\n{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

struct Length {
    body: usize,
    announced: usize,
}

/// Of the message at the beginning, if all of it is there.
fn length(bytes: &[u8]) -> io::Result<Option<Length>> {
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
    if header(head, "transfer-encoding").is_some() {
        return Err(io::Error::other("a message in chunks"));
    }
    let announced = header(head, "content-length").map_or(Ok(0), str::parse);
    let length = Length {
        body: end + 4,
        announced: announced.map_err(io::Error::other)?,
    };
    let whole = bytes.len() >= length.body + length.announced;
    Ok(whole.then_some(length))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

fn cut_off() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

const PIECE: usize = 16 << 10;
const LONGEST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_told_apart_however_they_come() {
        let (ours, theirs) = tokio::io::duplex(7);
        let sending = tokio::spawn(async move {
            let mut wire = Wire::new(theirs);
            let first = post("/a", "X: y\r\n", "one");
            wire.write(&[first, post("/b", "", "")].concat()).await
        });
        let mut wire = Wire::new(ours);
        let first = wire.read().await.unwrap().unwrap();
        assert_eq!((first.header("x"), first.body()), (Some("y"), &b"one"[..]));
        let second = wire.read().await.unwrap().unwrap();
        assert!(second.head().starts_with(b"POST /b ") && second.body().is_empty());
        sending.await.unwrap().unwrap();
        assert!(wire.read().await.unwrap().is_none());
    }

    #[test]
    fn an_end_that_cannot_be_told_is_an_error() {
        assert!(length(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(length(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err());
        let open = length(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1");
        assert!(open.unwrap().is_none());
    }
}
