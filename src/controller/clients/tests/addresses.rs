//! Tests of the addresses that are refused.

use rstest::rstest;

use super::*;
use crate::clients::address::{check, resolve};

fn options(allow_loopback: bool, control_plane: Option<&str>) -> ClientOptions {
    ClientOptions {
        allow_loopback,
        control_plane: control_plane.map(str::to_owned),
        ..ClientOptions::default()
    }
}

fn judge(address: &str, options: &ClientOptions) -> Result<(), AddressError> {
    check(address.parse().unwrap(), options)
}

#[rstest]
#[case::public("203.0.113.7")]
#[case::private_a("10.96.0.1")]
#[case::private_b("172.17.0.2")]
#[case::private_c("192.168.1.1")]
#[case::public_6("2001:db8::7")]
#[case::private_6("fd12:3456::1")]
#[case::mapped_public("::ffff:203.0.113.7")]
#[case::local_nat64_public("64:ff9b:1::203.0.113.7")]
#[case::teredo_public("2001:0:cb00:7107:0:0:34ff:8ef8")]
fn allowed(#[case] address: &str) {
    assert_eq!(judge(address, &options(false, None)), Ok(()));
}

#[rstest]
#[case::loopback("127.0.0.1")]
#[case::loopback_elsewhere("127.8.9.1")]
#[case::loopback_6("::1")]
#[case::loopback_mapped("::ffff:127.0.0.1")]
fn allowed_by_option(#[case] address: &str) {
    let refused = Err(AddressError::Special);
    assert_eq!(judge(address, &options(false, None)), refused);
    assert_eq!(judge(address, &options(true, None)), Ok(()));
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
#[case::metadata_local_nat64("64:ff9b:1::169.254.169.254")]
#[case::metadata_local_nat64_of_a_subnet("64:ff9b:1:aa:bb:cc:169.254.169.254")]
#[case::metadata_local_nat64_48("64:ff9b:1:a9fe:a9:fe00::")]
#[case::metadata_local_nat64_56("64:ff9b:1:a9:fe:a9fe::")]
#[case::metadata_local_nat64_64("64:ff9b:1:0:a9:fea9:fe00:0")]
#[case::metadata_translated("::ffff:0:169.254.169.254")]
#[case::metadata_teredo("2001:0:cb00:7107:0:0:5601:5601")]
#[case::metadata_teredo_server("2001:0:a9fe:a9fe:0:0:34ff:8ef8")]
fn never_allowed(#[case] address: &str) {
    assert_eq!(
        judge(address, &options(true, None)),
        Err(AddressError::Special)
    );
}

#[rstest]
#[case::itself("10.96.0.1", "10.96.0.1", false)]
#[case::mapped("10.96.0.1", "::ffff:10.96.0.1", false)]
#[case::translated("10.96.0.1", "64:ff9b::10.96.0.1", false)]
#[case::over_ipv6("fd12:3456::1", "fd12:3456::1", false)]
#[case::neighbor("10.96.0.1", "10.96.0.2", true)]
#[case::known_by_name_only("api.kcp.example", "10.96.0.1", true)]
fn the_address_of_the_control_plane_is_refused(
    #[case] control_plane: &str,
    #[case] address: &str,
    #[case] allowed: bool,
) {
    let expected = if allowed {
        Ok(())
    } else {
        Err(AddressError::ControlPlane)
    };
    assert_eq!(
        judge(address, &options(false, Some(control_plane))),
        expected
    );
    assert_eq!(judge(address, &options(false, None)), Ok(()));
}

#[rstest]
#[case::itself("https://api.kcp.example")]
#[case::in_capitals("https://API.kcp.example:443")]
#[case::absolute("https://api.kcp.example.:443")]
#[tokio::test]
async fn the_name_of_the_control_plane_is_refused(#[case] server: &str) {
    let options = options(false, Some("api.kcp.example"));
    let resolver = Resolver::new(options.connect_timeout);
    let refused = resolve(&server.parse().unwrap(), &options, &resolver).await;
    assert!(
        matches!(
            refused,
            Err(CallError::AddressRefused(AddressError::ControlPlane))
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_name_is_judged_by_its_addresses() {
    let server = "https://localhost:6443".parse().unwrap();
    let resolver = Resolver::new(Duration::from_secs(5));
    let refused = resolve(&server, &options(false, None), &resolver).await;
    assert!(
        matches!(
            refused,
            Err(CallError::AddressRefused(AddressError::Special))
        ),
        "{refused:?}"
    );
    let addresses = resolve(&server, &options(true, None), &resolver).await;
    assert!(addresses.unwrap().iter().all(|it| it.port() == 6443));
}
