//! HTTP/1.1 on a stream, as far as a bench needs it: whole messages with `Content-Length`, one after the other.
//!
//! A message without a length is an error. Chunked bodies, trailers and pipelining are not supported.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server, and how it is connected to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Without it, the connection is not encrypted.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// A new connection, with a whole TLS handshake.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Connection::new(tcp));
        };
        let name = ServerName::try_from(crate::pki::NAME)?;
        let stream = TlsConnector::from(Arc::clone(tls))
            .connect(name, tcp)
            .await?;
        Ok(Connection::new(stream))
    }
}

/// A byte stream of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream on which one message follows another.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    /// Received bytes of the next message.
    buffer: Vec<u8>,
}

/// A request or a response.
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// Where the body begins.
    body: usize,
}

impl Message {
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The status code of a response; 0 for a request.
    pub(crate) fn status(&self) -> u16 {
        let status = self.head().split(' ').nth(1);
        status.and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    /// Whether the connection ends after the message.
    pub(crate) fn closes(&self) -> bool {
        header(self.head(), "connection") == Some("close")
    }

    /// The request with another header line, which ends in CRLF.
    pub(crate) fn with_header(&self, line: &str) -> Vec<u8> {
        let end = self.head().find("\r\n").map_or(self.body, |end| end + 2);
        let (request_line, rest) = self.bytes.split_at(end);
        [request_line, line.as_bytes(), rest].concat()
    }

    fn head(&self) -> &str {
        str::from_utf8(&self.bytes[..self.body]).unwrap_or_default()
    }
}

impl Connection {
    pub(crate) fn new(stream: impl Stream + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            buffer: Vec::new(),
        }
    }

    /// The next message; `None` if the peer closed the connection after the last one.
    pub(crate) async fn read(&mut self) -> io::Result<Option<Message>> {
        loop {
            if let Some((body, end)) = bounds(&self.buffer)? {
                let rest = self.buffer.split_off(end);
                let bytes = std::mem::replace(&mut self.buffer, rest);
                return Ok(Some(Message { bytes, body }));
            }
            if self.buffer.len() > LONGEST {
                return Err(io::Error::other("a message of more than a mebibyte"));
            }
            self.buffer.reserve(PIECE);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let between = self.buffer.is_empty();
                return if between { Ok(None) } else { Err(cut_off()) };
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Sends a request and reads its response.
    pub(crate) async fn request(&mut self, request: &[u8]) -> io::Result<Message> {
        self.write(request).await?;
        self.read().await?.ok_or_else(cut_off)
    }
}

/// A POST request as a Go client writes it; each header line ends in CRLF.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: application/json\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Where the body of the first message begins and ends, once all of it is there.
fn bounds(bytes: &[u8]) -> io::Result<Option<(usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
    if header(head, "transfer-encoding").is_some() {
        return Err(io::Error::other("a chunked message"));
    }
    let length = header(head, "content-length").map_or(Ok(0), str::parse::<usize>);
    let body = end + 4;
    let end = body + length.map_err(io::Error::other)?;
    Ok((bytes.len() >= end).then_some((body, end)))
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
    async fn messages_are_separated_however_their_bytes_arrive() {
        let (near, far) = tokio::io::duplex(7);
        let sending = tokio::spawn(async move {
            let requests = [post("/a", "X: y\r\n", "one"), post("/b", "", "")];
            Connection::new(far).write(&requests.concat()).await
        });
        let mut connection = Connection::new(near);
        let first = connection.read().await.unwrap().unwrap();
        assert_eq!(header(first.head(), "x"), Some("y"));
        assert_eq!(first.body(), b"one");
        let changed = first.with_header("Z: 1\r\n");
        assert!(changed.starts_with(b"POST /a HTTP/1.1\r\nZ: 1\r\nHost"));
        let second = connection.read().await.unwrap().unwrap();
        assert!(second.bytes().starts_with(b"POST /b ") && second.body().is_empty());
        sending.await.unwrap().unwrap();
        assert!(connection.read().await.unwrap().is_none());
    }

    #[test]
    fn message_without_a_readable_length_is_an_error() {
        assert!(bounds(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(bounds(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n").is_err());
        let open = bounds(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1");
        assert!(open.unwrap().is_none());
    }
}
