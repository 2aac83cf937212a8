//! Where a runtime's API server may be.
//!
//! Invariant: the addresses that were judged are the addresses that are connected to; a name is resolved once a
//! connection. A name with one refused address is refused whole: no API server has such a name, an attacker may.
//! Private networks are allowed, since that is where API servers are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::kubeconfig::Server;

use super::error::{Broken, CallError};

/// The addresses of a server, as many as are worth trying.
pub(super) async fn resolve(
    server: &Server,
    allow_loopback: bool,
) -> Result<Vec<SocketAddr>, CallError> {
    let unresolved = |error| CallError::Unreachable(Broken::Name(error));
    let addresses: Vec<_> = match server.host().parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, server.port())],
        Err(_) => tokio::net::lookup_host((server.host(), server.port()))
            .await
            .map_err(unresolved)?
            .collect(),
    };
    if addresses.is_empty() {
        return Err(unresolved(std::io::ErrorKind::NotFound.into()));
    }
    if !addresses
        .iter()
        .all(|it| permitted(it.ip(), allow_loopback))
    {
        return Err(CallError::AddressRefused);
    }
    Ok(addresses.into_iter().take(MOST_TRIED).collect())
}

fn permitted(address: IpAddr, allow_loopback: bool) -> bool {
    match address {
        IpAddr::V4(address) => permitted_4(address, allow_loopback),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => permitted_4(inner, allow_loopback),
            None => permitted_6(address, allow_loopback),
        },
    }
}

fn permitted_4(address: Ipv4Addr, allow_loopback: bool) -> bool {
    if address.is_loopback() {
        return allow_loopback;
    }
    // 0/8 is "this host" to Linux; metadata services of AWS, Azure, GCP and most others are link-local.
    let nowhere = address.octets()[0] == 0 || address.is_broadcast() || address.is_multicast();
    !nowhere && !address.is_link_local() && !METADATA_4.contains(&address)
}

fn permitted_6(address: Ipv6Addr, allow_loopback: bool) -> bool {
    if address.is_loopback() {
        return allow_loopback;
    }
    let nowhere = address.is_unspecified() || address.is_multicast();
    !nowhere && !address.is_unicast_link_local() && !METADATA_6.contains(&address)
}

/// The IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64 and 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low] = address.segments();
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0, 0, 1..=0xffff, _]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))
}

/// Trying more than these would only divide the time for connecting into useless pieces.
const MOST_TRIED: usize = 4;

/// Services for the machine we run on that are not link-local: Azure, Alibaba, Oracle.
const METADATA_4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The same over IPv6: AWS, GCP.
const METADATA_6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::public("203.0.113.7")]
    #[case::private_a("10.96.0.1")]
    #[case::private_b("172.17.0.2")]
    #[case::private_c("192.168.1.1")]
    #[case::public_6("2001:db8::7")]
    #[case::private_6("fd12:3456::1")]
    #[case::mapped_public("::ffff:203.0.113.7")]
    fn allowed(#[case] address: &str) {
        assert!(permitted(address.parse().unwrap(), false));
    }

    #[rstest]
    #[case::loopback("127.0.0.1")]
    #[case::loopback_elsewhere("127.8.9.1")]
    #[case::loopback_6("::1")]
    #[case::loopback_mapped("::ffff:127.0.0.1")]
    fn allowed_by_option(#[case] address: &str) {
        let address = address.parse().unwrap();
        assert!(!permitted(address, false));
        assert!(permitted(address, true));
    }

    #[rstest]
    #[case::this_host("0.0.0.0")]
    #[case::this_network("0.1.2.3")]
    #[case::link_local("169.254.1.1")]
    #[case::metadata("169.254.169.254")]
    #[case::metadata_azure("168.63.129.16")]
    #[case::metadata_alibaba("100.100.100.200")]
    #[case::metadata_aws_6("fd00:ec2::254")]
    #[case::metadata_gcp_6("fd20:ce::254")]
    #[case::broadcast("255.255.255.255")]
    #[case::multicast("224.0.0.1")]
    #[case::unspecified_6("::")]
    #[case::link_local_6("fe80::1")]
    #[case::multicast_6("ff02::1")]
    #[case::metadata_mapped("::ffff:169.254.169.254")]
    #[case::metadata_compatible("::169.254.169.254")]
    #[case::metadata_nat64("64:ff9b::169.254.169.254")]
    #[case::metadata_6to4("2002:a9fe:a9fe::1")]
    fn never_allowed(#[case] address: &str) {
        assert!(!permitted(address.parse().unwrap(), true));
    }

    #[tokio::test]
    async fn a_name_is_judged_by_where_it_leads() {
        let server: Server = "https://localhost:6443".parse().unwrap();
        let refused = resolve(&server, false).await.unwrap_err();
        assert!(matches!(refused, CallError::AddressRefused), "{refused:?}");
        assert!(!resolve(&server, true).await.unwrap().is_empty());
    }
}
