//! Configuration of Envoy, as Istio generates it for a Gateway of mode `MUTUAL` and one VirtualService per manager.

use api::runtimes::KCP_NAMESPACE;
use serde_json::{Value, json};

/// Port of TLS in the Pod.
pub(super) const PORT: u16 = 8443;
/// Port of the admin pages.
pub(super) const ADMIN_PORT: u16 = 9901;
/// The folder of the ConfigMap.
pub(super) const FOLDER: &str = "/etc/gateway";
/// The folder of the Secret.
pub(super) const CERTIFICATES: &str = "/etc/gateway-tls";
/// Port of listeners: that of the public lifecycle manager.
pub(super) const EVENTS_PORT: u16 = 8082;

/// Seconds by which requests are delayed.
pub(super) const DELAY_SECONDS: u32 = 5;
/// Runtime key of Envoy: the percentage of requests that are delayed.
pub(super) const DELAYED: &str = "fault.http.delay.fixed_delay_percent";

/// The configuration.
pub(super) fn bootstrap(managers: &[&str]) -> Value {
    json!({
        // Without a node, Envoy does not load Secrets.
        "node": { "id": super::NAME, "cluster": super::NAME },
        "admin": { "address": address("0.0.0.0", ADMIN_PORT) },
        "layered_runtime": { "layers": [{ "name": "admin", "admin_layer": {} }] },
        "static_resources": {
            "listeners": [{
                "name": "watchers",
                "address": address("0.0.0.0", PORT),
                "filter_chains": [{
                    "transport_socket": {
                        "name": "envoy.transport_sockets.tls",
                        "typed_config": downstream_tls(),
                    },
                    "filters": [{
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": connection_manager(managers),
                    }],
                }],
            }],
            "clusters": managers.iter().map(|manager| cluster(manager)).collect::<Vec<_>>(),
        },
    })
}

/// Secrets that Envoy reads from files, again whenever their folder changes.
pub(super) fn secrets() -> [(&'static str, Value); 2] {
    let folder = json!({ "path": CERTIFICATES });
    let file = |name: &str| json!({ "filename": format!("{CERTIFICATES}/{name}") });
    let server = json!({
        "name": "server",
        "tls_certificate": {
            "certificate_chain": file("tls.crt"), "private_key": file("tls.key"),
            "watched_directory": folder,
        },
    });
    let authorities = json!({
        "name": "authorities",
        "validation_context": { "trusted_ca": file("ca.crt"), "watched_directory": folder },
    });
    [
        ("server.json", resource(server)),
        ("authorities.json", resource(authorities)),
    ]
}

fn resource(mut secret: Value) -> Value {
    secret["@type"] = json!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");
    json!({ "resources": [secret] })
}

fn downstream_tls() -> Value {
    let from = |name: &str| {
        let path = format!("{FOLDER}/{name}.json");
        json!({
            "name": name,
            "sds_config": {
                "path_config_source": { "path": path }, "resource_api_version": "V3",
            },
        })
    };
    json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": true,
        "common_tls_context": {
            "tls_params": { "tls_minimum_protocol_version": "TLSv1_3" },
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_certificate_sds_secret_configs": [from("server")],
            "validation_context_sds_secret_config": from("authorities"),
        },
    })
}

fn connection_manager(managers: &[&str]) -> Value {
    let routes: Vec<Value> = managers.iter().map(|manager| route(manager)).collect();
    json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "watchers",
        "forward_client_cert_details": "SANITIZE_SET",
        "set_current_client_cert_details": { "subject": true, "cert": true, "dns": true, "uri": true },
        "normalize_path": true,
        "use_remote_address": true,
        "route_config": {
            "name": "managers",
            "virtual_hosts": [{ "name": "kcp", "domains": ["*"], "routes": routes }],
        },
        // As Istio generates it for a VirtualService with `fault.delay`; no request until the runtime key is set.
        "http_filters": [{
            "name": "envoy.filters.http.fault",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
                "delay": { "fixed_delay": format!("{DELAY_SECONDS}s"), "percentage": { "numerator": 0 } },
            },
        }, {
            "name": "envoy.filters.http.router",
            "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
        }],
    })
}

fn route(manager: &str) -> Value {
    json!({
        "name": manager,
        "match": { "prefix": format!("/v2/{manager}/event") },
        "route": { "cluster": manager },
    })
}

fn cluster(manager: &str) -> Value {
    let host = format!("{}.{KCP_NAMESPACE}.svc.cluster.local", service(manager));
    json!({
        "name": manager,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_ONLY",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": manager,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(&host, EVENTS_PORT) } }] }],
        },
    })
}

/// The Service of a manager's listener.
pub(super) fn service(manager: &str) -> String {
    format!("{manager}-events")
}

fn address(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}
