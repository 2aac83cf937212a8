//! One connection, from its acceptance to its end.
//!
//! Invariant: a timeout or the client ends the connection. No other component has to track it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::io::{ConnectionIo, Stream};
use crate::limiter::ConnectionPermit;
use crate::metrics::Counter;
use crate::server::{Shared, Transport};
use crate::service::RequestService;
use crate::state::{ClosePhase, ConnectionState};

/// Minimum size of the buffer in hyper.
const LEAST_BUFFER: usize = 8 * 1024;

/// Reason why [`drive`] has to check a connection.
enum Wakeup {
    Ended(hyper::Result<()>),
    Due,
    Stop,
    Evicted,
}

/// Serves `tcp` until the connection ends.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    permit: ConnectionPermit,
    tcp: TcpStream,
    peer: SocketAddr,
) {
    let expires = shared.limits.draw_age().map(|age| Instant::now() + age);
    let service = RequestService {
        state: Arc::clone(&permit.state),
        peer,
        #[cfg(feature = "tls")]
        certificates: None,
        expires,
        shared: Arc::clone(&shared),
    };
    match &shared.transport {
        Transport::Plain => serve_requests(service, permit, tcp).await,
        #[cfg(feature = "tls")]
        Transport::Tls(tls) => {
            let handshake = crate::tls::accept(tls, &shared, tcp);
            let stream = tokio::select! {
                stream = handshake => stream,
                () = permit.state.evicted() => None,
            };
            let Some(stream) = stream else { return };
            let mut service = service;
            let certificates = stream.get_ref().1.peer_certificates();
            service.certificates = certificates.map(|it| crate::tls::PeerCertificates(it.into()));
            serve_requests(service, permit, stream).await;
        }
    }
}

/// Serves requests on `stream` until the connection ends.
async fn serve_requests<S: Stream + 'static>(
    service: RequestService,
    permit: ConnectionPermit,
    stream: S,
) {
    let (shared, state) = (Arc::clone(&service.shared), Arc::clone(&service.state));
    state.rest();
    let service = Arc::new(service);
    let io = ConnectionIo::new(stream, permit, shared.limits.answer);
    let connection = http1::Builder::new()
        // The header timeout of hyper also applies to an idle connection. The timeout of this module does not.
        .header_read_timeout(None)
        .max_buf_size(shared.limits.header_bytes.max(LEAST_BUFFER))
        .serve_connection(
            TokioIo::new(io),
            service_fn(move |request| service.call(request)),
        );
    drive(pin!(connection), &shared, &state).await;
}

/// Polls `connection`, and checks its timeout, the end of the server and its eviction.
async fn drive(
    mut connection: Pin<&mut impl GracefulConnection<Error = hyper::Error>>,
    shared: &Shared,
    state: &ConnectionState,
) {
    let mut close_phase = ClosePhase::Open;
    let mut alarm = pin!(sleep_until(Instant::now() + shared.limits.idle));
    loop {
        // The connection has priority: a received request is started before the connection is closed.
        let wakeup = tokio::select! {
            biased;
            wakeup = poll_fn(|context| match connection.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(Wakeup::Ended(result)),
                Poll::Pending => poll_alarm(alarm.as_mut(), state.due(&shared.limits, close_phase), context),
            }) => wakeup,
            () = shared.stopping.cancelled(), if close_phase == ClosePhase::Open => Wakeup::Stop,
            () = state.evicted(), if !matches!(close_phase, ClosePhase::Closing(_)) => Wakeup::Evicted,
        };
        match wakeup {
            Wakeup::Ended(result) => return conclude(shared, result),
            Wakeup::Stop => close_phase = ClosePhase::Stopping(Instant::now()),
            Wakeup::Due if state.header_since().is_some() => {
                return shared.statistics.add_one(Counter::HeaderTimeouts);
            }
            Wakeup::Due if matches!(close_phase, ClosePhase::Closing(_)) => return,
            // No response is possible, and the memory and the place of the connection are required now.
            Wakeup::Evicted if state.waits_for_its_peer() => return,
            Wakeup::Due | Wakeup::Evicted => {
                connection.as_mut().graceful_shutdown();
                close_phase = ClosePhase::Closing(Instant::now());
            }
        }
    }
}

/// Returns ready when `due` has passed. The timer is only reset to an earlier time, or after it has fired, so that the many
/// changes of `due` during a request have no cost.
fn poll_alarm(
    mut alarm: Pin<&mut Sleep>,
    due: Option<Instant>,
    context: &mut std::task::Context<'_>,
) -> Poll<Wakeup> {
    let Some(due) = due else { return Poll::Pending };
    if due < alarm.deadline() {
        alarm.as_mut().reset(due);
    }
    while alarm.as_mut().poll(context).is_ready() {
        if Instant::now() >= due {
            return Poll::Ready(Wakeup::Due);
        }
        alarm.as_mut().reset(due);
    }
    Poll::Pending
}

fn conclude(shared: &Shared, result: hyper::Result<()>) {
    let Err(error) = result else { return };
    if error.is_parse() {
        shared.statistics.add_one(Counter::BadRequests);
    }
    tracing::debug!(%error, "connection aborted");
}

#[cfg(test)]
mod tests;
