//! From a kubeconfig's server to a TLS session.
//!
//! Invariant: no proxy, no system roots, no second look at the name between judging and connecting. Deliberately
//! absent: the time limit, which the caller sets over all of it, and any memory of which address worked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::kubeconfig::Server;
use http::HeaderValue;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address;
use super::error::{Broken, CallError};
use super::metrics::FleetMetrics;
use super::tls::HTTP_2;

/// One API server and how it knows us.
pub(super) struct Target {
    pub(super) server: Server,
    pub(super) server_name: ServerName<'static>,
    pub(super) configuration: Arc<ClientConfig>,
    /// The bearer token, marked as sensitive: neither shown by `Debug` nor kept in an HTTP/2 header table.
    pub(super) authorization: Option<HeaderValue>,
}

/// What dialling must know beside the target.
pub(super) struct Limits {
    pub(super) allow_loopback: bool,
    /// The caller's limit for all of it; with several addresses each gets its share.
    pub(super) timeout: Duration,
}

/// A session, over the first address that answers.
pub(super) async fn dial(
    target: &Target,
    limits: Limits,
    metrics: &FleetMetrics,
) -> Result<TlsStream<TcpStream>, CallError> {
    let addresses = address::resolve(&target.server, limits.allow_loopback).await?;
    let stream = connect(&addresses, limits.timeout)
        .await
        .map_err(|error| CallError::Unreachable(Broken::Connection(error)))?;
    let stream = TlsConnector::from(target.configuration.clone())
        .connect(target.server_name.clone(), stream)
        .await
        .map_err(CallError::of_handshake)?;
    let session = stream.get_ref().1;
    let multiplexed = session.alpn_protocol() == Some(HTTP_2);
    metrics.handshake(
        if multiplexed { "h2" } else { "http/1.1" },
        session.handshake_kind() == Some(HandshakeKind::Resumed),
    );
    Ok(stream)
}

async fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let share = timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for (left, address) in (0..addresses.len()).rev().zip(addresses) {
        // The last has what is left of the caller's time, so that the caller is the one to say that time is up.
        let limit = if left == 0 { Duration::MAX } else { share };
        match tokio::time::timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and each waits for its answer: Nagle could only delay them.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}
