//! Ports of loopback, and requests to them.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use testkit::tls::{RawClient, RawResponse};

/// Returns the response to a GET without TLS.
pub(crate) async fn get(port: u16, path: &str) -> io::Result<RawResponse> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    RawClient::connect(local(port)).await?.ask(request).await
}

pub(crate) fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

/// Returns a port that no process uses. A process that chooses a port itself does not report it, and the watcher cannot choose
/// one (like in the public watcher, 0 is not valid), so another process could take the port before. The port is below the
/// range from which the kernel assigns ports to clients and for port 0, so only a process that requests this exact port could
/// take it.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = std::iter::repeat_with(|| {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        20_000 + (first + tried) % 10_000
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).is_ok();
    ports.by_ref().take(10_000).find(is_free).unwrap()
}
