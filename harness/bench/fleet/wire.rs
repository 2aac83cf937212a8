//! The one port: TLS by server name, HTTP/2 or HTTP/1.1 as the client wants.
//!
//! Invariant: what a runtime is like is looked up when a connection comes and again for every request, so conditions
//! that change hold at once. A reset is a real one (RST).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::HandshakeKind;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::answer::{Session, answer, wait};
use super::conditions::{Certificate, Reach};
use super::identity::runtime_number;
use super::{Shared, digest};

/// Serves until the fleet closes.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let closing = shared.closing.clone();
    let accepting = async {
        loop {
            // Out of descriptors, or the client has gone already: the next one may be luckier.
            if let Ok((tcp, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let closing = shared.closing.clone();
                    // How a connection ends is the client's business; what matters was counted.
                    let _ = closing
                        .run_until_cancelled(Box::pin(connection(shared, tcp)))
                        .await;
                });
            }
        }
    };
    closing.run_until_cancelled(accepting).await;
}

async fn connection(shared: Arc<Shared>, tcp: TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let reset = Arc::new(AtomicBool::new(false));
    let socket = Socket {
        tcp,
        reset: Arc::clone(&reset),
    };
    let start = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
    let number = start.client_hello().server_name().and_then(runtime_number);
    let Some((number, runtime)) = number.and_then(|it| Some((it, shared.runtimes.get(it)?))) else {
        // No runtime has that name.
        return Ok(());
    };
    let conditions = Arc::clone(&runtime.inner().conditions);
    match conditions.reach {
        Reach::Up => {}
        Reach::Refusing => {
            reset.store(true, Ordering::Relaxed);
            return Ok(());
        }
        Reach::Silent => {
            let mut socket = start.io;
            return tokio::io::copy(&mut socket, &mut tokio::io::sink())
                .await
                .map(|_| ());
        }
    }
    // One round trip for TCP's handshake, which loopback does not have, and one for TLS.
    wait(conditions.latency * 2).await;
    let config = match conditions.certificate {
        Certificate::Valid => &shared.authority.valid,
        Certificate::Expired => &shared.authority.expired,
    };
    let stream = start.into_stream(Arc::clone(config)).await?;
    let (_, tls) = stream.get_ref();
    {
        let mut inner = runtime.inner();
        inner.counts.handshakes += 1;
        inner.counts.resumed += u64::from(tls.handshake_kind() == Some(HandshakeKind::Resumed));
    }
    let leaf = tls.peer_certificates().and_then(<[_]>::first);
    let session = Arc::new(Session {
        number,
        certificate: leaf.map(|leaf| digest(leaf)),
        cut: CancellationToken::new(),
        shared: Arc::clone(&shared),
    });
    let _counted = shared.connect();
    let cut = session.cut.clone();
    if cut
        .run_until_cancelled(speak(stream, session))
        .await
        .is_none()
    {
        reset.store(true, Ordering::Relaxed);
    }
    Ok(())
}

async fn speak(stream: TlsStream<Socket>, session: Arc<Session>) {
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| answer(Arc::clone(&session), request));
    // A connection that ends badly ends.
    if h2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .serve_connection(io, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(io, service)
            .await;
    }
}

/// A socket that can be told to end with a reset.
#[derive(Debug)]
struct Socket {
    tcp: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // Without it the connection ends politely, which is the worst that can happen.
            let _ = self.tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
