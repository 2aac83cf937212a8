//! Test with clients that occupy memory or connections and send no complete request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use testkit::apiserver::kinds::CERTIFICATES;
use testkit::flood::{Target, assert_withstands};
use testkit::metrics::Samples;
use testkit::pki::{Authority, Leaf};
use testkit::tls::RawClient;
use testkit::until::until;

use super::ports::{get, local};
use super::{Env, PATIENCE};

const PATH: &str = "/v2/runtime-bootstrapper/event/heartbeat";

/// Returns a certificate that cert-manager issues.
fn leaf(authority: &Authority, name: &str) -> Leaf {
    authority
        .leaf_with(name, |it| it.use_authority_key_identifier_extension = true)
        .unwrap()
}

fn secret(name: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "istio-system"},
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)},
    })
}

/// Returns a heartbeat of a runtime, in the format in which the gateway forwards it.
fn heartbeat(authority: &Authority) -> String {
    let certificate = leaf(authority, "id-one").pem;
    let certificate = utf8_percent_encode(&certificate, NON_ALPHANUMERIC);
    let body = json!({
        "bootId": "boot-1", "sequence": 0, "spoolDepth": 0, "oldestAgeSeconds": 0, "version": "1",
    });
    let body = body.to_string();
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: kcp\r\nX-Forwarded-Client-Cert: Cert=\"{certificate}\"\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Starts a leader that receives heartbeats of runtimes with a certificate of the returned CA.
async fn receiving() -> (Env, Authority) {
    let env = Env::start_with("watchers", &[&CERTIFICATES]).await;
    let authority = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    let gateway = leaf(&authority, "gateway");
    env.kcp.put(&secret("klm-watcher", authority.pem(), ""));
    let gateway = secret("klm-watcher-gateway", &gateway.pem, &gateway.key_pem());
    env.kcp.put(&gateway);
    env.lead();
    let request = heartbeat(&authority);
    let received = async || {
        let mut client = RawClient::connect(local(env.heartbeats)).await?;
        client.ask(&request).await.map(|it| it.status == 200)
    };
    let first = async || received().await.is_ok_and(|it| it);
    until("the first heartbeat", PATIENCE, first).await.unwrap();
    (env, authority)
}

/// All kinds of clients at once, on all three ports: many times their limits of connections.
#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_probes_and_scrapes_are_answered_during_a_flood_of_all_ports() {
    let (env, authority) = receiving().await;
    let targets = [
        Target {
            header_bytes: 70_000,
            request: format!("POST {PATH}"),
            ..Target::plain(local(env.heartbeats), "")
        },
        Target::plain(local(env.health), "/healthz"),
        Target::plain(local(env.metrics), "/metrics"),
    ];
    let request = heartbeat(&authority);
    let connect = || RawClient::connect(local(env.heartbeats));
    let (mut kept, mut sent) = (connect().await.unwrap(), 0);
    let beat = async || {
        if sent % 4 == 0 {
            kept = connect().await.unwrap();
        }
        sent += 1;
        let answer = kept.ask(&request).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let flood = assert_withstands(env.child.id(), targets, beat).await;
    let _flood = flood.unwrap();
    let answer = get(env.health, "/healthz").await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = get(env.metrics, "/metrics").await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let samples = Samples::parse(&answer.body);
    let evicted = samples.exact(
        r#"watcher_listener_server_connections_evicted_total{server_name="listener",manager="runtime-bootstrapper"}"#,
    );
    assert!(evicted > Some(0.0), "{evicted:?}");
}
