//! The hosts and the address of the gateway, from the Istio Gateways that use its Secret.

use std::sync::Arc;

use serde_json::{Value, json};

/// Returns the hosts of the servers of an Istio Gateway that use the Secret.
pub(super) fn hosts(gateway: &Value, secret: &str) -> Vec<String> {
    let servers = gateway.pointer("/spec/servers").and_then(Value::as_array);
    let of_secret = servers
        .into_iter()
        .flatten()
        .filter(|it| it["tls"]["credentialName"] == secret);
    let hosts = of_secret.filter_map(|it| it["hosts"].as_array()).flatten();
    let hosts = hosts.filter_map(Value::as_str);
    hosts
        .map(|it| it.rsplit_once('/').map_or(it, |(_, host)| host).to_owned())
        .collect()
}

/// Returns the first host without a wildcard of a server of an Istio Gateway that uses the Secret. The port is
/// appended unless it is 443.
pub(super) fn address(gateway: &Value, secret: &str) -> Option<Arc<str>> {
    let servers = gateway.pointer("/spec/servers")?.as_array()?;
    servers.iter().find_map(|server| {
        let one = json!({ "spec": { "servers": [server] } });
        let host = hosts(&one, secret)
            .into_iter()
            .find(|it| !it.starts_with('*'))?;
        let port = server.pointer("/port/number").and_then(Value::as_u64);
        let port = port.filter(|it| *it != 443);
        Some(
            port.map_or(host.clone(), |port| format!("{host}:{port}"))
                .into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECRET: &str = "klm-istio-gateway";

    /// Returns a server with a certificate.
    fn server(hosts: &[&str], port: u16) -> Value {
        json!({"hosts": hosts, "port": {"number": port}, "tls": {"credentialName": SECRET}})
    }

    /// Returns a server with the certificate of another Secret.
    fn other(host: &str) -> Value {
        json!({"hosts": [host], "port": {"number": 443}, "tls": {"credentialName": "other"}})
    }

    #[rstest]
    #[case::https(&[server(&["kcp.example"], 443)], Some("kcp.example"))]
    #[case::another_port(&[server(&["kcp.example"], 8443)], Some("kcp.example:8443"))]
    #[case::no_port(
        &[json!({"hosts": ["kcp.example"], "tls": {"credentialName": SECRET}})],
        Some("kcp.example"),
    )]
    #[case::several_hosts(&[server(&["one.example", "two.example"], 443)], Some("one.example"))]
    #[case::namespace_prefix(&[server(&["istio-system/kcp.example"], 443)], Some("kcp.example"))]
    #[case::prefixes_of_any_namespace(
        &[server(&["*/one.example", "./two.example"], 443)],
        Some("one.example"),
    )]
    #[case::wildcards_before_a_host(
        &[server(&["*", "*.kcp.example", "./*", "kcp.example"], 443)],
        Some("kcp.example"),
    )]
    #[case::wildcards_only(&[server(&["*", "istio-system/*.kcp.example"], 443)], None)]
    #[case::another_secret(&[other("other.example")], None)]
    #[case::no_tls(&[json!({"hosts": ["kcp.example"], "port": {"number": 80}})], None)]
    #[case::no_hosts(&[server(&[], 443)], None)]
    #[case::no_servers(&[], None)]
    #[case::port_of_the_server_of_the_host(
        &[other("other.example"), server(&["*"], 443), server(&["kcp.example"], 8443)],
        Some("kcp.example:8443"),
    )]
    #[case::the_first_of_several_servers(
        &[server(&["one.example"], 8443), server(&["two.example"], 443)],
        Some("one.example:8443"),
    )]
    fn the_address_is_the_first_host_of_a_server_with_the_secret(
        #[case] servers: &[Value],
        #[case] expected: Option<&str>,
    ) {
        let gateway = json!({"spec": {"servers": servers}});
        assert_eq!(address(&gateway, SECRET).as_deref(), expected);
    }
}
