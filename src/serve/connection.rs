//! The life of one connection: greeting, handshake, requests, farewell.
//!
//! Invariant: a connection ends by its own clock or its peer's; nothing else has to remember it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::crowd::Seat;
use crate::exchange::{Exchange, PeerCertificates};
use crate::limits;
use crate::pulse::{Course, Pulse, Stage};
use crate::server::Shared;
use crate::wire::Wire;

/// What Go's server says to plain HTTP on its TLS port; a person with `curl http://` should see why.
const PLAIN_HTTP_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\nThis port speaks HTTPS only.\n";

/// hyper takes no smaller buffer.
const LEAST_BUFFER: usize = 8 * 1024;

/// How a greeting ended without TLS.
enum NoTls {
    PeerLeft,
    PlainHttp,
    Failed(io::Error),
}

/// What happened to a connection that is being attended.
enum Turn {
    Ended(hyper::Result<()>),
    Due,
    Stop,
    Displaced,
}

/// Serves `tcp` until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, seat: Seat, tcp: TcpStream, peer: SocketAddr) {
    let pulse = &seat.pulse;
    let opened = Instant::now();
    let stream = tokio::select! {
        stream = handshake(&shared, tcp) => stream,
        () = pulse.displaced() => None,
    };
    let Some(stream) = stream else { return };
    pulse.rest();

    let certificates = stream.get_ref().1.peer_certificates();
    let exchange = Exchange {
        pulse: Arc::clone(pulse),
        peer,
        certificates: certificates.map(|chain| PeerCertificates(chain.into())),
        expires: (shared.limits.age)
            .map(|longest| opened + limits::age(longest, shared.seed, seat.number)),
        shared,
    };
    converse(exchange, stream).await;
}

/// Serves requests on `stream` until it ends.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(exchange: Exchange, stream: S) {
    let (shared, pulse) = (Arc::clone(&exchange.shared), Arc::clone(&exchange.pulse));
    let exchange = Arc::new(exchange);
    let wire = Wire::new(stream, Arc::clone(&pulse), shared.limits.answer);
    let connection = http1::Builder::new()
        // hyper's own header clock also runs while a connection is idle; ours does not.
        .header_read_timeout(None)
        .max_buf_size(shared.limits.header_bytes.max(LEAST_BUFFER))
        .serve_connection(
            TokioIo::new(wire),
            service_fn(move |request| exchange.call(request)),
        );
    attend(pin!(connection), &shared, &pulse).await;
}

async fn handshake(shared: &Shared, tcp: TcpStream) -> Option<TlsStream<TcpStream>> {
    let counters = shared.statistics.counters();
    let Some(config) = shared.tls.current() else {
        counters.without_certificate.add_one();
        return None;
    };
    match timeout(shared.limits.handshake, greet(tcp, config)).await {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(NoTls::PeerLeft)) => counters.closed_before_handshake.add_one(),
        Ok(Err(NoTls::PlainHttp)) => counters.plain_http.add_one(),
        Ok(Err(NoTls::Failed(error))) => {
            tracing::debug!(%error, "TLS handshake failed");
            counters.handshake_failures.add_one();
        }
        Err(_elapsed) => counters.handshake_timeouts.add_one(),
    }
    None
}

async fn greet(
    mut tcp: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<TcpStream>, NoTls> {
    let mut first = [0];
    match tcp.peek(&mut first).await {
        Ok(0) => return Err(NoTls::PeerLeft),
        Ok(_) if first[0].is_ascii_uppercase() => {
            // A method's first letter; TLS begins with 0x16. Best effort: this peer is owed nothing.
            let _ = answer_plain_http(&mut tcp).await;
            return Err(NoTls::PlainHttp);
        }
        Ok(_) => {}
        Err(_reset) => return Err(NoTls::PeerLeft),
    }
    TlsAcceptor::from(config)
        .accept(tcp)
        .await
        .map_err(NoTls::Failed)
}

async fn answer_plain_http(tcp: &mut TcpStream) -> io::Result<()> {
    // What has come is taken, or closing would reset the connection and the answer with it.
    let _ = tcp.read(&mut [0; 4096]).await?;
    tcp.write_all(PLAIN_HTTP_ANSWER).await?;
    tcp.shutdown().await
}

/// Drives `connection` and watches its clock, the end of the server and the cap.
async fn attend<C: Graceful>(mut connection: Pin<&mut C>, shared: &Shared, pulse: &Pulse) {
    let mut course = Course::Serving;
    let mut alarm = pin!(sleep_until(Instant::now() + shared.limits.idle));
    loop {
        // The connection comes first: a request that is there is begun before anything is closed.
        let turn = tokio::select! {
            biased;
            turn = poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Turn::Ended(result)),
                Poll::Pending => poll_alarm(alarm.as_mut(), pulse.due(&shared.limits, course), context),
            }) => turn,
            () = shared.stopping.cancelled(), if course == Course::Serving => Turn::Stop,
            () = pulse.displaced(), if !matches!(course, Course::Leaving(_)) => Turn::Displaced,
        };
        match turn {
            Turn::Ended(result) => return conclude(shared, result),
            Turn::Stop => course = Course::Stopping(Instant::now()),
            Turn::Due if pulse.stage() == Stage::Header => {
                return shared.statistics.counters().header_timeouts.add_one();
            }
            Turn::Due if matches!(course, Course::Leaving(_)) => return,
            // No answer could be given, and memory and place are needed now.
            Turn::Displaced if pulse.waits_for_its_peer() => return,
            Turn::Due | Turn::Displaced => {
                connection.as_mut().graceful_shutdown();
                course = Course::Leaving(Instant::now());
            }
        }
    }
}

/// Ready when `due` has passed. The alarm is only ever set earlier, or anew once it has gone off, so that the
/// many changes of `due` within a request cost nothing.
fn poll_alarm(
    mut alarm: Pin<&mut Sleep>,
    due: Option<Instant>,
    context: &mut std::task::Context<'_>,
) -> Poll<Turn> {
    let Some(due) = due else { return Poll::Pending };
    if due < alarm.deadline() {
        alarm.as_mut().reset(due);
    }
    while alarm.as_mut().poll(context).is_ready() {
        if Instant::now() >= due {
            return Poll::Ready(Turn::Due);
        }
        alarm.as_mut().reset(due);
    }
    Poll::Pending
}

fn conclude(shared: &Shared, result: hyper::Result<()>) {
    let Err(error) = result else { return };
    if error.is_parse() {
        shared.statistics.counters().bad_requests.add_one();
    }
    tracing::debug!(%error, "connection aborted");
}

/// hyper's connection, without its type parameters.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, S, B> Graceful for http1::Connection<I, S>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        // The inherent method, which precedes this trait's.
        Self::graceful_shutdown(self);
    }
}

#[cfg(test)]
mod tests;
