//! Tests of mutual TLS between gateway and listener.

use std::io;

use rstest::rstest;
use rustls::{ClientConfig, HandshakeKind};
use testkit::pki::rcgen::SanType;
use testkit::pki::{Authority, Leaf, client_config};
use testkit::tls::RawTlsClient;

use crate::fixture::{
    EVENT, GATEWAY, Running, ca, check, options, post, watcher, watcher_header, watcher_with,
};
use crate::{Authentication, CertificatePair, Options, TlsHandle, Transport, gateway_tls};

fn pair(leaf: &Leaf) -> CertificatePair {
    CertificatePair::from_pem(leaf.pem.as_bytes(), leaf.key_pem().as_bytes()).unwrap()
}

pub(super) struct Mesh {
    authority: Authority,
    runtimes: Authority,
    pub(super) listener: Running,
}

impl Mesh {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (authority, runtimes) = (ca(), ca());
        let own = watcher_with(&authority, |params| {
            params.subject_alt_names = vec![SanType::DnsName("listener".try_into().unwrap())];
        });
        let bundle = authority.pem().as_bytes();
        let tls = TlsHandle::new(gateway_tls(&pair(&own), bundle).unwrap());
        let mut options = Options {
            transport: Transport::MutualTls {
                tls,
                gateway: GATEWAY.into(),
            },
            ..options(Authentication::Certificate(check(&runtimes)))
        };
        change(&mut options);
        Self {
            listener: Running::with(options).await,
            authority,
            runtimes,
        }
    }

    pub(super) fn workload(&self, spiffe: &str) -> Leaf {
        self.named(SanType::URI(spiffe.try_into().unwrap()))
    }

    fn named(&self, name: SanType) -> Leaf {
        watcher_with(&self.authority, |params| {
            params.subject_alt_names = vec![name];
        })
    }

    pub(super) async fn connect(&self, config: ClientConfig) -> io::Result<RawTlsClient> {
        RawTlsClient::connect_tls(self.listener.address, "listener", config).await
    }

    pub(super) fn config(&self, leaf: &Leaf) -> ClientConfig {
        client_config(self.authority.roots(), Some(leaf), &[]).unwrap()
    }

    pub(super) fn request(&self) -> String {
        post(&[&watcher_header(&self.runtimes)], EVENT)
    }
}

#[tokio::test]
async fn the_gateway_is_served() {
    let mut mesh = Mesh::new().await;
    let gateway = mesh.workload(GATEWAY);
    let mut client = mesh.connect(mesh.config(&gateway)).await.unwrap();
    assert_eq!(client.ask(&mesh.request()).await.unwrap().status, 200);
    assert!(mesh.listener.next_event().await.is_some());
    let large = mesh.request().replace(EVENT, &format!("{EVENT:<20000}"));
    let length = format!("Content-Length: {}", EVENT.len());
    let large = large.replace(&length, "Content-Length: 20000");
    assert_eq!(client.ask(&large).await.unwrap().status, 413);
}

#[tokio::test]
async fn another_workload_of_the_mesh_may_not_speak_for_the_gateway() {
    let mesh = Mesh::new().await;
    let neighbour = mesh.workload("spiffe://cluster.local/ns/shop/sa/shop");
    let mut client = mesh.connect(mesh.config(&neighbour)).await.unwrap();
    let answer = client.ask(&mesh.request()).await.unwrap();
    assert_eq!((answer.status, answer.closes()), (403, true));
}

#[tokio::test]
async fn the_id_of_the_gateway_as_a_dns_name_is_not_its_id() {
    let mesh = Mesh::new().await;
    let neighbour = mesh.named(SanType::DnsName(GATEWAY.try_into().unwrap()));
    let mut client = mesh.connect(mesh.config(&neighbour)).await.unwrap();
    assert_eq!(client.ask(&mesh.request()).await.unwrap().status, 403);
}

/// A known certificate of the gateway is not parsed again, and authorizes no other certificate.
#[tokio::test]
async fn a_neighbour_is_rejected_beside_the_gateway_and_its_next_certificate() {
    let mesh = Mesh::new().await;
    let neighbour = mesh.workload("spiffe://cluster.local/ns/shop/sa/shop");
    let gateways = [mesh.workload(GATEWAY), mesh.workload(GATEWAY)];
    for gateway in &gateways {
        for (leaf, status) in [(gateway, 200), (&neighbour, 403), (gateway, 200)] {
            let mut client = mesh.connect(mesh.config(leaf)).await.unwrap();
            let answer = client.ask(&mesh.request()).await.unwrap();
            assert_eq!(answer.status, status);
        }
    }
}

#[tokio::test]
async fn a_certificate_of_another_ca_fails_the_handshake() {
    let mesh = Mesh::new().await;
    let name = SanType::URI(GATEWAY.try_into().unwrap());
    let other = watcher_with(&ca(), |params| {
        params.subject_alt_names = vec![name];
    });
    // In TLS 1.3 the client receives the rejection only when it reads.
    if let Ok(mut client) = mesh.connect(mesh.config(&other)).await {
        client.closed().await.unwrap();
    }
}

/// A resumed session would not present its certificate again.
#[tokio::test]
async fn no_session_is_resumed() {
    let mesh = Mesh::new().await;
    let config = mesh.config(&mesh.workload(GATEWAY));
    for _ in 0..2 {
        let mut client = mesh.connect(config.clone()).await.unwrap();
        // Session tickets arrive with or before the first response.
        assert_eq!(client.ask(&mesh.request()).await.unwrap().status, 200);
        let kind = client.stream().get_ref().1.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[rstest]
#[case::nothing("")]
#[case::a_key("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")]
#[case::no_certificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
fn a_bundle_without_a_certificate_is_an_error(#[case] bundle: &str) {
    let leaf = watcher(&ca());
    assert!(gateway_tls(&pair(&leaf), bundle.as_bytes()).is_err());
}
