//! Addresses that the API server of a runtime may have.
//!
//! Invariant: connections are opened only to the addresses that were checked; a name is resolved at most once per
//! connection. A name with one forbidden address is rejected: the name of an API server has no such address, the name
//! of an attacker may have one. Private networks are allowed, since API servers are in them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::kubeconfig::Server;

use super::ClientOptions;
use super::error::{AddressError, CallError, TransportError};
use super::resolver::Resolver;

/// Resolves a server to at most [`MAX_ADDRESSES`] permitted addresses.
pub(super) async fn resolve(
    server: &Server,
    options: &ClientOptions,
    resolver: &Resolver,
) -> Result<Vec<SocketAddr>, CallError> {
    check_name(server.host(), options).map_err(CallError::AddressRefused)?;
    let addresses = match server.host().parse::<IpAddr>() {
        Ok(address) => vec![address],
        Err(_) => resolver
            .resolve(server.host())
            .await
            .map_err(|error| CallError::Unreachable(TransportError::Name(error)))?,
    };
    for address in &addresses {
        check(*address, options).map_err(CallError::AddressRefused)?;
    }
    Ok(addresses
        .into_iter()
        .take(MAX_ADDRESSES)
        .map(|it| SocketAddr::new(it, server.port()))
        .collect())
}

/// Rejects the host name of KCP. Its addresses are not compared: the load balancers of Gardener serve many clusters at
/// one address, by name.
fn check_name(host: &str, options: &ClientOptions) -> Result<(), AddressError> {
    let host = host.trim_end_matches('.');
    let is_control_plane = |it: &str| it.eq_ignore_ascii_case(host);
    if options
        .control_plane
        .as_deref()
        .is_some_and(is_control_plane)
    {
        return Err(AddressError::ControlPlane);
    }
    Ok(())
}

pub(super) fn check(address: IpAddr, options: &ClientOptions) -> Result<(), AddressError> {
    let control_plane = options.control_plane.as_deref();
    let control_plane = control_plane.and_then(|it| it.parse::<IpAddr>().ok());
    for target in targets(address) {
        let is_permitted = match target {
            _ if target.is_loopback() => options.allow_loopback,
            IpAddr::V4(target) => permits_4(target),
            IpAddr::V6(target) => permits_6(target),
        };
        if !is_permitted {
            return Err(AddressError::Special);
        }
        if control_plane == Some(target) {
            return Err(AddressError::ControlPlane);
        }
    }
    Ok(())
}

fn permits_4(address: Ipv4Addr) -> bool {
    // 0/8 is "this host" in Linux; the metadata services of AWS, Azure, GCP and most other providers are link-local.
    let is_unroutable = is_zero(address) || address.is_broadcast() || address.is_multicast();
    !is_unroutable && !address.is_link_local() && !METADATA_4.contains(&address)
}

fn permits_6(address: Ipv6Addr) -> bool {
    let is_unroutable = address.is_unspecified() || address.is_multicast();
    !is_unroutable && !address.is_unicast_link_local() && !METADATA_6.contains(&address)
}

fn is_zero(address: Ipv4Addr) -> bool {
    address.octets()[0] == 0
}

/// Returns the addresses to which packets may be sent: the address itself, or the IPv4 addresses that translators and
/// tunnels derive from an IPv6 address.
fn targets(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(address) = address else {
        return vec![address];
    };
    let octets = address.octets();
    let at = |indexes: [usize; 4]| Ipv4Addr::from(indexes.map(|it| octets[it]));
    let found = match address.segments() {
        // Prefixes of mapped, translated, compatible and NAT64 addresses.
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0, 0, 0, 0, 0, 0, 1..=0xffff, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![at(NAT64_96)],
        // NAT64 for local use. Each network uses one of these forms, so all of them are checked. Bytes that another
        // form does not use are 0/8.
        [0x64, 0xff9b, 1, ..] => {
            let forms = [NAT64_48, NAT64_56, NAT64_64, NAT64_96].map(at);
            let found: Vec<_> = forms.into_iter().filter(|it| !is_zero(*it)).collect();
            if found.is_empty() {
                vec![Ipv4Addr::UNSPECIFIED]
            } else {
                found
            }
        }
        // 6to4.
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // Teredo: the server, and the client with inverted bits.
        [0x2001, 0, ..] => vec![
            at([4, 5, 6, 7]),
            Ipv4Addr::from_bits(!at(NAT64_96).to_bits()),
        ],
        _ => return vec![address.into()],
    };
    found.into_iter().map(IpAddr::V4).collect()
}

/// Maximum number of addresses. With more addresses the time per address would be too short for connecting.
const MAX_ADDRESSES: usize = 4;

/// Indexes of the bytes of an IPv4 address after a prefix of this number of bits (RFC 6052, 2.2).
const NAT64_48: [usize; 4] = [6, 7, 9, 10];
const NAT64_56: [usize; 4] = [7, 9, 10, 11];
const NAT64_64: [usize; 4] = [9, 10, 11, 12];
const NAT64_96: [usize; 4] = [12, 13, 14, 15];

/// Metadata services that are not link-local, over IPv4: Azure, Alibaba, Oracle.
const METADATA_4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Metadata services that are not link-local, over IPv6: AWS, GCP.
const METADATA_6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];
