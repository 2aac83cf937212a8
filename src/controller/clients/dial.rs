//! Opens TLS sessions to API servers.
//!
//! Invariant: no proxy, no system roots, no second lookup of the name between the check of an address and its use.
//! Not in here: the time limit, which the caller sets, and a cache of addresses that were reachable.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::kubeconfig::Server;
use http::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{CallError, TransportError};
use super::tls::HTTP_2;
use super::{Shared, address};

/// An API server, and the credentials of the client.
pub(super) struct Target {
    pub(super) server: Server,
    pub(super) server_name: ServerName<'static>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) authorization: Option<HeaderValue>,
}

/// Opens a TLS session, over the first address that accepts a connection.
pub(super) async fn dial(
    target: &Target,
    shared: &Shared,
) -> Result<TlsStream<TcpStream>, CallError> {
    let options = &shared.options;
    let addresses = address::resolve(&target.server, options, &shared.resolver).await?;
    let stream = connect(&addresses, options.connect_timeout)
        .await
        .map_err(|error| CallError::Unreachable(TransportError::Connection(error)))?;
    let stream = TlsConnector::from(target.tls.clone())
        .connect(target.server_name.clone(), stream)
        .await
        .map_err(CallError::of_handshake)?;
    let multiplexed = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
    let protocol = if multiplexed { "h2" } else { "http/1.1" };
    shared.metrics.handshake(protocol);
    Ok(stream)
}

/// Connects to the first address that accepts a connection. `timeout` is the caller's limit for all addresses. Each
/// address gets an equal share.
async fn connect(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let share = timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for (left, address) in (0..addresses.len()).rev().zip(addresses) {
        // The last address gets the rest of the time, so that the caller reports the timeout.
        let limit = if left == 0 { Duration::MAX } else { share };
        match tokio::time::timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and each waits for its response, so Nagle's algorithm would only delay them.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}
