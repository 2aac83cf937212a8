use rstest::rstest;

use super::*;

/// The address is `host` or `host:port`, without a scheme.
#[rstest]
#[case::a_name("kcp.example")]
#[case::with_a_port("kcp.example:8443")]
#[case::one_label("gateway")]
#[case::v4("192.0.2.1:9443")]
#[case::v6("[2001:db8::1]:9443")]
#[case::v6_without_port("[2001:db8::1]")]
fn an_address(#[case] text: &str) {
    let address = KcpAddress::parse(text).unwrap();
    assert_eq!(address.to_string(), text);
}

#[rstest]
#[case::nothing("")]
#[case::a_scheme("https://kcp.example")]
#[case::a_path("kcp.example/v2")]
#[case::a_user("me@kcp.example")]
#[case::no_host(":443")]
#[case::no_port("kcp.example:")]
#[case::port_zero("kcp.example:0")]
#[case::too_large_a_port("kcp.example:65536")]
#[case::a_word_for_a_port("kcp.example:https")]
#[case::a_space("kcp example")]
#[case::a_line_break("kcp.example\r\nx: y")]
#[case::bare_v6("2001:db8::1")]
#[case::no_host_name("-")]
fn no_address(#[case] text: &str) {
    assert_eq!(KcpAddress::parse(text), Err(KcpAddressError));
}
