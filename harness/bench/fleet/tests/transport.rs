//! Connections with several requests, and a fleet in another process.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::*;
use crate::fleet::control::FleetControl;

/// One connection by HTTP/2, as the product's own client makes it.
async fn h2(fleet: &Fleet, paths: &[&str]) -> Vec<StatusCode> {
    let mut roots = rustls::RootCertStore::empty();
    let pem = fleet.shared.authority.pem().as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", fleet.port()))
        .await
        .unwrap();
    let name = identity::server_name(&runtime_id(0)).try_into().unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let token = identity::token(&fleet.shared.secret, &runtime_id(0), 0);
    let calls = paths.iter().map(|path| {
        let request = Request::get(format!("https://runtime{path}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap().status() }
    });
    futures::future::join_all(calls).await
}

#[tokio::test]
async fn one_connection_carries_several_requests_at_once() {
    let conditions = Conditions {
        latency: Duration::from_millis(50),
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let statuses = h2(
        &fleet,
        &["/version", "/apis", "/api/v1/namespaces/kube-system"],
    )
    .await;
    assert_eq!(statuses, [StatusCode::OK; 3]);
    let totals = fleet.totals();
    assert_eq!((totals.counts.handshakes, totals.most_in_flight), (1, 3));
}

#[tokio::test]
async fn it_can_be_controlled_from_another_process() {
    let fleet = Arc::new(fleet(2, Conditions::default()).await);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let control = FleetControl::new(listener.local_addr().unwrap().port());
    tokio::spawn(super::control::serve(Arc::clone(&fleet), listener));

    assert_eq!(
        control.kubeconfig(1).await.unwrap(),
        fleet.kubeconfig(1).unwrap()
    );
    assert!(control.kubeconfig(2).await.is_err());
    let client = client(&fleet, 1).await;
    call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(
        control.entries(&secret_place()).await.unwrap(),
        fleet.entries(&secret_place())
    );
    let object = control.object(1, &secret_place()).await.unwrap();
    assert_eq!(object["data"]["password"], "eA==");
    assert_eq!(
        control.totals().await.unwrap().counts,
        fleet.totals().counts
    );

    let dead = Conditions {
        reach: Reach::Refusing,
        ..Conditions::default()
    };
    control
        .set(Selection::Numbers(vec![1]), dead)
        .await
        .unwrap();
    call(&client, get("/version")).await.unwrap_err();
    control
        .set(Selection::All, Conditions::default())
        .await
        .unwrap();
    control.rotate(&Selection::All).await.unwrap();
    assert_eq!(
        status(&client, get("/version")).await,
        StatusCode::UNAUTHORIZED
    );
    control.reset_counters().await.unwrap();
    assert_eq!(control.totals().await.unwrap().counts, Counts::default());
}
