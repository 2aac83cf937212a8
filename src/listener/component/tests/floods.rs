//! Tests with many clients that occupy connections or memory and never complete a request.

use rstest::rstest;

use super::gateway::Mesh;
use crate::Options;
use crate::fixture::{EVENT, GATEWAY, Running, disabled, options, post};

const CONNECTIONS: usize = 64;
const EVICTED: &str =
    r#"watcher_listener_server_connections_evicted_total{server_name="listener",manager="kyma"}"#;

#[rstest]
#[case::silent("")]
#[case::half_a_header("POST /v2/kyma/event HTTP/1.1\r\nA: ")]
#[case::half_a_body("POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\nContent-Length: 100\r\n\r\n{")]
#[tokio::test]
async fn requests_of_the_gateway_are_answered_during_a_flood(#[case] sent: &str) {
    let listener = Running::with(Options {
        connections: CONNECTIONS,
        ..options(disabled())
    })
    .await;
    let mut kept_alive = listener.connect().await;
    assert_eq!(kept_alive.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    let mut hostile = Vec::new();
    for _ in 0..4 * CONNECTIONS {
        let mut client = listener.connect().await;
        client.send(sent).await.unwrap();
        hostile.push(client);
    }
    assert_eq!(kept_alive.ask(&post(&[], EVENT)).await.unwrap().status, 200);
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 200);
    let evicted = listener.metric(EVICTED);
    assert!(evicted.unwrap() >= 3.0 * 64.0, "{evicted:?}");
}

/// Start of a TLS record of 512 bytes with a `ClientHello`.
const HALF_A_HELLO: &str = "\x16\x03\x01\x02\x00\x01";

#[rstest]
#[case::silent("")]
#[case::half_a_hello(HALF_A_HELLO)]
#[tokio::test]
async fn gateway_with_tls_is_answered_during_a_flood_of_clients_without_a_handshake(
    #[case] sent: &str,
) {
    let mesh = Mesh::with(|options| options.connections = CONNECTIONS).await;
    let flood = async || {
        let mut hostile = Vec::new();
        for _ in 0..4 * CONNECTIONS {
            let mut client = mesh.listener.connect().await;
            client.send(sent).await.unwrap();
            hostile.push(client);
        }
        hostile
    };
    is_answered_during(&mesh, flood).await;
    assert_evicted(&mesh);
}

/// Another workload of the mesh has a certificate of the same CA. Its header is rejected, and its body is not awaited.
#[rstest]
#[case::silent("", true)]
#[case::half_a_header("POST /v2/kyma/event HTTP/1.1\r\nA: ", true)]
#[case::half_a_body(
    "POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\nContent-Length: 100\r\n\r\n{",
    false
)]
#[tokio::test]
async fn gateway_with_tls_is_answered_during_a_flood_of_another_workload(
    #[case] sent: &str,
    #[case] stays: bool,
) {
    let mesh = Mesh::with(|options| options.connections = CONNECTIONS).await;
    let neighbour = mesh.config(&mesh.workload("spiffe://cluster.local/ns/shop/sa/shop"));
    let flood = async || {
        let mut hostile = Vec::new();
        for _ in 0..4 * CONNECTIONS {
            let mut client = mesh.connect(neighbour.clone()).await.unwrap();
            client.send(sent).await.unwrap();
            hostile.push(client);
        }
        hostile
    };
    is_answered_during(&mesh, flood).await;
    if stays {
        assert_evicted(&mesh);
    }
}

async fn is_answered_during<T>(mesh: &Mesh, flood: impl AsyncFnOnce() -> T) {
    let gateway = mesh.config(&mesh.workload(GATEWAY));
    let mut kept_alive = mesh.connect(gateway.clone()).await.unwrap();
    let request = mesh.request();
    assert_eq!(kept_alive.ask(&request).await.unwrap().status, 200);
    let _hostile = flood().await;
    assert_eq!(kept_alive.ask(&request).await.unwrap().status, 200);
    let mut connected = mesh.connect(gateway).await.unwrap();
    assert_eq!(connected.ask(&request).await.unwrap().status, 200);
}

fn assert_evicted(mesh: &Mesh) {
    // On a busy machine the time limit of a header ends some of the clients before they are evicted.
    let evicted = mesh.listener.metric(EVICTED);
    assert!(evicted > Some(0.0), "{evicted:?}");
}
