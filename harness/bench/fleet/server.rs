//! The connections and requests of simulated runtimes.
//!
//! Half of a round trip passes before a request is executed and half after it, without a lock. A reset is a TCP reset (RST).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::kcp::{OWNER_CONFIG_MAP, OWNER_RUNTIME_ID};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use testkit::apiserver::respond::{Call, fault};
use testkit::apiserver::{Asked, Body};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Conditions, Fault, Runtime, Shared};

/// Serves until `closing` is canceled.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener, closing: CancellationToken) {
    while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
        // An accept can fail without free descriptors, or if a client has closed its connection. Then the loop accepts the next
        // one.
        let Ok((tcp, peer)) = accepted else { continue };
        if peer.ip().is_loopback() {
            let (served, closing) = (connection(Arc::clone(&shared), tcp), closing.clone());
            // The error is not relevant, because the counters include failed connections.
            tokio::spawn(async move { closing.run_until_cancelled(Box::pin(served)).await });
        }
    }
}

/// One connection after its handshake.
struct Session {
    shared: Arc<Shared>,
    number: usize,
    certificate: Option<CertificateDer<'static>>,
    /// Token that resets the connection.
    reset: CancellationToken,
}

async fn connection(shared: Arc<Shared>, mut tcp: TcpStream) -> anyhow::Result<()> {
    tcp.set_nodelay(true)?;
    let number = super::identity::number_of(tcp.local_addr()?.ip());
    let Some((number, runtime)) = number.and_then(|it| Some((it, shared.runtimes.get(it)?))) else {
        return Ok(());
    };
    let conditions = runtime.conditions();
    if conditions.silent {
        tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await?;
        return Ok(());
    }
    // One round trip for the TCP handshake, which is immediate on loopback, and one for the TLS handshake.
    wait(conditions.latency * 2).await;
    let config = runtime.identity.server(conditions.expired)?;
    let mut stream = TlsAcceptor::from(config).accept(tcp).await?;
    shared.counts().handshakes += 1;
    let chain = stream.get_ref().1.peer_certificates();
    let certificate = chain.and_then(<[_]>::first);
    let reset = CancellationToken::new();
    let session = Arc::new(Session {
        number,
        certificate: certificate.map(|leaf| leaf.clone().into_owned()),
        reset: reset.clone(),
        shared: Arc::clone(&shared),
    });
    let service = service_fn(move |request| {
        let session = Arc::clone(&session);
        async move { Ok::<_, Infallible>(session.respond(request).await) }
    });
    let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(&mut stream);
    let responses = async {
        // The client determines the result of the connection, so it is ignored.
        let _ = if is_h2 {
            let builder = http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(io, service).await
        } else {
            http1::Builder::new().serve_connection(io, service).await
        };
    };
    if reset.run_until_cancelled(responses).await.is_none() {
        stream.get_ref().0.set_zero_linger()?;
    }
    Ok(())
}

/// Counts a request without a response. The count also decreases when the request is canceled.
struct InFlight<'a>(&'a Shared);

impl<'a> InFlight<'a> {
    fn new(shared: &'a Shared) -> Self {
        let mut counts = shared.counts();
        counts.in_flight += 1;
        counts.most_in_flight = counts.most_in_flight.max(counts.in_flight);
        Self(shared)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counts().in_flight -= 1;
    }
}

impl Session {
    fn runtime(&self) -> &Runtime {
        &self.shared.runtimes[self.number]
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let _in_flight = InFlight::new(&self.shared);
        let runtime = self.runtime();
        let conditions = runtime.conditions();
        let number = runtime.requests.fetch_add(1, Ordering::Relaxed);
        let (injected, takes) = conditions.draw(&runtime.identity.id, number);
        self.shared.counts().faults += u64::from(injected.is_some());
        let (head, body) = request.into_parts();
        let body = Limited::new(body, LARGEST_BODY).collect().await;
        wait(takes / 2).await;
        match injected {
            Some(Fault::Stalled) => std::future::pending().await,
            Some(Fault::ResetBefore) => self.reset().await,
            _ => {}
        }
        let response = match body {
            Ok(body) => {
                let call = Call {
                    method: &head.method,
                    uri: &head.uri,
                    headers: &head.headers,
                    body: &body.to_bytes(),
                };
                self.carry_out(&call, injected, &conditions)
            }
            Err(_) => fault(413, None),
        };
        if injected == Some(Fault::ResetAfter) {
            self.reset().await;
        }
        wait(takes / 2).await;
        in_pieces(response, conditions.drip)
    }

    async fn reset(&self) -> ! {
        self.reset.cancel();
        std::future::pending().await
    }

    fn carry_out(
        &self,
        call: &Call<'_>,
        injected: Option<Fault>,
        conditions: &Conditions,
    ) -> Response<Body> {
        let runtime = self.runtime();
        let authorization = call.headers.get(AUTHORIZATION);
        let token = authorization.and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
        let certificate = self.certificate.as_ref();
        if !runtime.state().accepted.admits(token, certificate) {
            self.shared.counts().unauthorized += 1;
            return fault(401, None);
        }
        match injected {
            Some(Fault::Throttled(seconds)) => return fault(429, Some(seconds)),
            Some(Fault::Failing) => return fault(500, None),
            _ => {}
        }
        let asked = runtime.store.asked(call);
        let is_object = !asked.verb.is_empty() && !asked.resource.starts_with("selfsubject");
        let is_write = is_object && !matches!(*call.method, Method::GET | Method::HEAD);
        self.shared.counts().reads += u64::from(!is_write);
        if is_write && injected == Some(Fault::Conflicting) {
            return runtime.store.conflict(call);
        }
        let (response, changed) = runtime.store.respond(call);
        if changed {
            let is_foreign = conditions.identity.is_some() || marks_other(runtime, &asked, call);
            let mut counts = self.shared.counts();
            counts.writes += 1;
            counts.foreign_writes += u64::from(is_foreign);
        }
        response
    }
}

/// Whether a write is an owner marker with the ID of another runtime.
fn marks_other(runtime: &Runtime, asked: &Asked, call: &Call<'_>) -> bool {
    let is_marker = asked.resource == "configmaps" && asked.name == OWNER_CONFIG_MAP;
    let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
    is_marker && asked.verb != "delete" && body["data"][OWNER_RUNTIME_ID] != *runtime.identity.id
}

/// Returns the response with delays between small pieces of its body.
fn in_pieces(response: Response<Body>, pause: Duration) -> Response<Body> {
    if pause.is_zero() {
        return response;
    }
    response.map(|body| {
        let pieces = body.into_data_stream().flat_map(move |bytes| {
            let bytes = bytes.unwrap_or_default();
            let pieces: Vec<Bytes> = bytes.chunks(PIECE).map(Bytes::copy_from_slice).collect();
            stream::iter(pieces).then(move |piece| async move {
                wait(pause).await;
                Ok(Frame::data(piece))
            })
        });
        StreamBody::new(pieces).boxed_unsync()
    })
}

/// Simulates network latency; this is not a wait for a state.
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
    }
}

const PIECE: usize = 64;
/// Largest body of a request, which is the limit of an API server.
const LARGEST_BODY: usize = 3 << 20;
