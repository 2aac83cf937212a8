//! Listening sockets for IPv4 and IPv6.
//!
//! `[::]` accepts both families, independent of the system default for such sockets. If the kernel has no IPv6, `0.0.0.0`
//! is bound instead, with a log message. Other addresses are bound unchanged.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use serve::{BoundServer, Options, Server};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Maximum number of connections that the kernel queues until they are accepted, as in tokio.
const BACKLOG: i32 = 1024;

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address} for {purpose}")]
pub struct ListenError {
    /// The address.
    address: SocketAddr,
    /// The purpose of the socket, such as `metrics`.
    purpose: &'static str,
    /// The error of the operating system.
    source: io::Error,
}

/// Returns the unspecified address, which accepts IPv4 and IPv6.
#[must_use]
pub fn unspecified_address(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

/// Binds a server; `purpose` appears in the error.
///
/// # Errors
/// The address is in use, does not belong to this host, or is not permitted.
pub fn bind_server(
    address: SocketAddr,
    purpose: &'static str,
    options: Options,
) -> Result<BoundServer, ListenError> {
    let bound = listen_with(address, open).and_then(|it| Server::on(it, options));
    bound.map_err(|source| ListenError {
        address,
        purpose,
        source,
    })
}

fn listen_with(
    address: SocketAddr,
    open: impl Fn(SocketAddr) -> io::Result<TcpListener>,
) -> io::Result<TcpListener> {
    match open(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && lacks_ipv6(&error) => {
            let instead = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            tracing::warn!(%address, %instead, "IPv6 not available");
            open(instead)
        }
        outcome => outcome,
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    let lacking = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| lacking.contains(&code))
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    // A restarted process can bind the port while connections of the previous process are in state TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Mutex;

    use rstest::rstest;
    use tokio::net::TcpStream;

    use super::*;

    /// Returns whether the kernel of this host has IPv6, without using the tested function.
    fn has_ipv6() -> bool {
        std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
    }

    async fn accepts(listener: &TcpListener, from: IpAddr) -> bool {
        let port = listener.local_addr().unwrap().port();
        let Ok(_stream) = TcpStream::connect((from, port)).await else {
            return false;
        };
        listener.accept().await.is_ok()
    }

    #[tokio::test]
    async fn unspecified_ipv6_address_accepts_both_families() {
        let listener = listen_with(unspecified_address(0), open).unwrap();
        assert!(accepts(&listener, Ipv4Addr::LOCALHOST.into()).await);
        let address = listener.local_addr().unwrap();
        // Without IPv6 in the kernel the fallback is expected.
        assert_eq!(address.is_ipv6(), has_ipv6(), "{address}");
        assert_eq!(
            accepts(&listener, Ipv6Addr::LOCALHOST.into()).await,
            has_ipv6()
        );
    }

    #[tokio::test]
    async fn unspecified_ipv4_address_accepts_ipv4_alone() {
        let address = (Ipv4Addr::UNSPECIFIED, 0).into();
        let listener = listen_with(address, open).unwrap();
        assert!(accepts(&listener, Ipv4Addr::LOCALHOST.into()).await);
        assert!(!accepts(&listener, Ipv6Addr::LOCALHOST.into()).await);
    }

    /// Simulates a kernel without IPv6 (`ipv6.disable=1`).
    fn open_without_ipv6(code: Errno, address: SocketAddr) -> io::Result<TcpListener> {
        match address {
            SocketAddr::V4(_) => open(address),
            SocketAddr::V6(_) => Err(code.into()),
        }
    }

    #[rstest]
    #[case::no_family(Errno::AFNOSUPPORT)]
    #[case::no_address(Errno::ADDRNOTAVAIL)]
    #[tokio::test]
    async fn without_ipv6_all_addresses_are_those_of_ipv4(#[case] code: Errno) {
        let listener =
            listen_with(unspecified_address(0), |it| open_without_ipv6(code, it)).unwrap();
        assert!(listener.local_addr().unwrap().is_ipv4());
        assert!(accepts(&listener, Ipv4Addr::LOCALHOST.into()).await);
    }

    #[rstest]
    #[case::one_address((Ipv6Addr::LOCALHOST, 0).into(), Errno::AFNOSUPPORT)]
    #[case::in_use(unspecified_address(0), Errno::ADDRINUSE)]
    #[case::not_permitted(unspecified_address(0), Errno::ACCESS)]
    fn other_failures_are_reported(#[case] address: SocketAddr, #[case] code: Errno) {
        let asked = Mutex::new(Vec::new());
        let refused = listen_with(address, |it| {
            asked.lock().unwrap().push(it);
            Err(code.into())
        });
        assert_eq!(
            refused.unwrap_err().raw_os_error(),
            Some(code.raw_os_error())
        );
        assert_eq!(asked.into_inner().unwrap(), [address]);
    }
}
