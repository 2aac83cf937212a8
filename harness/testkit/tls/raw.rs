//! HTTP/1.1 clients without a library, so that a test controls every byte that is sent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Default of [`RawClient::patience`]. With a correct server no test reaches this limit.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client that sends arbitrary bytes.
#[derive(Debug)]
pub struct RawClient<S> {
    stream: S,
    read: Vec<u8>,
    /// Time limit of one read. Tests with a paused clock need a longer limit.
    pub patience: Duration,
}

/// A client over TLS.
pub type RawTlsClient = RawClient<TlsStream<TcpStream>>;

/// The head of a request or response, and its body if the head announces a length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The status code; 0 for a request.
    pub status: u16,
    /// The first line and the header lines as they were sent, without the empty line.
    pub head: String,
    /// The body; empty if there is no `Content-Length`.
    pub body: String,
}

/// A response.
pub type RawResponse = Message;

impl RawClient<TcpStream> {
    /// Connects without TLS.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::new(TcpStream::connect(address).await?))
    }
}

impl RawTlsClient {
    /// Connects with TLS to a server with this name.
    pub async fn connect_tls(
        address: SocketAddr,
        name: &str,
        config: ClientConfig,
    ) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
        Ok(Self::new(timeout(PATIENCE, handshake).await??))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawClient<S> {
    /// Returns a client for an open connection.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            read: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// Returns the connection.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends these bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Reads the next response.
    pub async fn response(&mut self) -> io::Result<RawResponse> {
        let reading = read_message(&mut self.stream, &mut self.read, self.patience);
        let message = reading.await?;
        if message.status == 0 {
            return Err(invalid(&message.head));
        }
        Ok(message)
    }

    /// Sends these bytes and reads the next response.
    pub async fn ask(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<RawResponse> {
        self.send(bytes).await?;
        self.response().await
    }

    /// Waits until the server closes or resets the connection. Fails if the server sends more data.
    pub async fn closed(&mut self) -> io::Result<()> {
        let rest = self.rest().await?;
        if rest.is_empty() {
            return Ok(());
        }
        Err(invalid(&String::from_utf8_lossy(&rest)))
    }

    /// Returns all data until the server closes or resets the connection.
    pub async fn rest(&mut self) -> io::Result<Vec<u8>> {
        while matches!(
            timeout(self.patience, self.stream.read_buf(&mut self.read)).await?,
            Ok(1..)
        ) {}
        Ok(std::mem::take(&mut self.read))
    }
}

impl Message {
    /// Returns the first line.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// Returns the value of the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Whether the message announces the end of the connection.
    pub fn closes(&self) -> bool {
        let connection = self.header("connection");
        connection.is_some_and(|it| it.eq_ignore_ascii_case("close"))
    }
}

/// Reads the next message; `read` contains received bytes that belong to no earlier message.
pub async fn read_message(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    patience: Duration,
) -> io::Result<Message> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|it| it == b"\r\n\r\n") {
            break at;
        }
        more(stream, read, patience).await?;
    };
    let head = text(read.drain(..end + 4).take(end).collect())?;
    let length = match header(&head, "content-length") {
        Some(length) => length.parse().map_err(|_| invalid(&head))?,
        None => 0,
    };
    while read.len() < length {
        more(stream, read, patience).await?;
    }
    let body = text(read.drain(..length).collect())?;
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    Ok(Message {
        status: status.unwrap_or_default(),
        head,
        body,
    })
}

async fn more(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut Vec<u8>,
    patience: Duration,
) -> io::Result<()> {
    if timeout(patience, stream.read_buf(read)).await?? == 0 {
        let read = String::from_utf8_lossy(read);
        let error = format!("closed within a message: {read:?}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error));
    }
    Ok(())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
    Some(value.trim())
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected: {text:?}"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// Returns a client whose server has sent `bytes`, and the server.
    async fn receiving(bytes: &str) -> (RawClient<DuplexStream>, DuplexStream) {
        let (client, mut server) = duplex(4096);
        server.write_all(bytes.as_bytes()).await.unwrap();
        (RawClient::new(client), server)
    }

    #[tokio::test]
    async fn responses_are_read_one_after_the_other() {
        let two = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 503 \r\nConnection: close\r\n\r\n";
        let (mut client, mut server) = receiving(two).await;
        let first = client.ask("GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((first.status, first.body.as_str()), (200, "hello"));
        assert!(!first.closes());
        assert_eq!(first.line(), "HTTP/1.1 200 OK");
        let second = client.response().await.unwrap();
        assert_eq!((second.status, second.closes()), (503, true));
        let request = read_message(&mut server, &mut Vec::new(), PATIENCE).await;
        assert_eq!(request.unwrap().line(), "GET / HTTP/1.1");
        drop(server);
        client.closed().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_or_too_much_is_an_error() {
        let (mut client, server) =
            receiving("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel").await;
        let error = client.response().await.unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::TimedOut,
            "the rest of the body"
        );
        drop(server);
        let error = client.closed().await.unwrap_err();
        assert_eq!(error.to_string(), "unexpected: \"hel\"");
        let error = client.response().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let (mut client, _server) = receiving("SSH-2.0\r\n\r\n").await;
        assert!(client.response().await.is_err(), "not a status line");
    }
}
