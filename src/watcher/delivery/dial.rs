//! From KCP's address to a TLS session.
//!
//! Invariant: no proxy, no system roots, each step within its time. Deliberately absent: any memory of which address
//! worked, and judging the address: it is the operator's own setting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Timeouts;
use super::address::KcpAddress;
use super::error::{Broken, Phase};

/// Addresses of one name that are tried.
const ADDRESSES: usize = 8;

pub(super) async fn dial(
    address: &KcpAddress,
    config: Arc<ClientConfig>,
    timeouts: &Timeouts,
) -> Result<TlsStream<TcpStream>, Broken> {
    let stream = timeout(timeouts.connect, connect(address, timeouts.connect))
        .await
        .unwrap_or(Err(Broken::TimedOut(Phase::Connecting)))?;
    let handshake = TlsConnector::from(config).connect(address.server_name().clone(), stream);
    timeout(timeouts.handshake, handshake)
        .await
        .map_err(|_| Broken::TimedOut(Phase::Handshake))?
        .map_err(Broken::Session)
}

async fn connect(address: &KcpAddress, limit: Duration) -> Result<TcpStream, Broken> {
    let found = lookup_host(address.target()).await.map_err(Broken::Name)?;
    let found: Vec<SocketAddr> = found.take(ADDRESSES).collect();
    // Each has its share of the time, so that a dead first address does not use up the second's.
    let share = limit / u32::try_from(found.len()).unwrap_or(u32::MAX).max(1);
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in found {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and each waits for its answer: Nagle could only delay them.
                stream.set_nodelay(true).map_err(Broken::Connection)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Broken::Connection(failure))
}
