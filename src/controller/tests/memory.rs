//! What a runtime costs when nobody calls it. A process of its own: other tests would blur the figure.
#![cfg(test)]

use std::sync::Arc;

use controller::runtimes::{Fleet, FleetMetrics, FleetOptions, RuntimeId};
use policy::convergence::kubeconfig::{Access, Credentials};
use prometheus_client::registry::Registry;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Runtimes per measurement.
const RUNTIMES: usize = 1_000;

struct Pki {
    authority: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

fn pki() -> Pki {
    let issuer_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&issuer_key).unwrap().der().clone();
    let issuer = Issuer::new(params, issuer_key);
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    leaf.distinguished_name.push(DnType::CommonName, "leaf");
    Pki {
        authority,
        leaf: leaf.signed_by(&key, &issuer).unwrap().der().clone(),
        key: PrivatePkcs8KeyDer::from(key.serialize_der()),
    }
}

/// Answers the first request of a connection and waits for its end. Returns the port.
async fn serve(pki: &Pki) -> u16 {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(pki.authority.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![pki.leaf.clone()],
            PrivateKeyDer::from(pki.key.clone_key()),
        )
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut buffer = [0; 2048];
                let _ = stream.read(&mut buffer).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                let _ = stream.write_all(answer).await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    port
}

async fn pass(fleet: &Fleet, pki: &Pki, port: u16, runtimes: std::ops::Range<usize>) {
    for index in runtimes {
        let access = Access {
            server: format!("https://127.0.0.1:{port}").parse().unwrap(),
            server_name: "127.0.0.1".try_into().unwrap(),
            authority: vec![pki.authority.clone()],
            credentials: Credentials::Certificate {
                chain: vec![pki.leaf.clone()],
                key: pki.key.clone_key().into(),
            },
        };
        let id = RuntimeId::new(&format!("5b1d9a3e-0000-4000-8000-{index:012}"));
        let remote = fleet.open(&id, access, "123456789").unwrap();
        remote.list("/version").await.unwrap();
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() << 10
}

/// Bytes that stay behind for each runtime after a pass over it.
async fn left_behind(resumable: usize) -> usize {
    let pki = pki();
    let port = serve(&pki).await;
    let options = FleetOptions {
        resumable,
        allow_loopback: true,
        ..FleetOptions::default()
    };
    let metrics = FleetMetrics::register(&mut Registry::default());
    let fleet = Fleet::new(options, metrics);
    pass(&fleet, &pki, port, 0..RUNTIMES).await;
    let before = resident();
    pass(&fleet, &pki, port, RUNTIMES..2 * RUNTIMES).await;
    resident().saturating_sub(before) / RUNTIMES
}

#[tokio::test]
async fn what_stays_of_a_runtime_is_small() {
    let nothing = left_behind(0).await;
    let session = left_behind(2 * RUNTIMES).await;
    println!("left of a runtime: {nothing} bytes, with a session to resume {session} bytes");
    assert!(nothing < 4 << 10, "{nothing}");
    assert!(session < 12 << 10, "{session}");
}
