//! TLS in both directions between gateway and listener.

use std::sync::Arc;

use rcgen::SanType;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fixture::{Authority, Client, EVENT, GATEWAY, Leaf, Running, forwarded, options, post};
use crate::{Authentication, Options, TlsHandle, Transport, gateway_tls};

struct Mesh {
    authority: Authority,
    runtimes: Authority,
    listener: Running,
}

impl Mesh {
    async fn new() -> Self {
        let (authority, runtimes) = (Authority::new(), Authority::new());
        let own = authority.leaf(|params| {
            params.subject_alt_names = vec![SanType::DnsName("listener".try_into().unwrap())];
        });
        let bundle = authority.certificate.pem.as_bytes();
        let tls = TlsHandle::new(gateway_tls(own.identity(), bundle).unwrap());
        let options = Options {
            transport: Transport::MutualTls {
                tls,
                gateway: GATEWAY.into(),
            },
            ..options(Authentication::Certificate(runtimes.check()))
        };
        Self {
            listener: Running::with(options).await,
            authority,
            runtimes,
        }
    }

    fn workload(&self, spiffe: &str) -> Leaf {
        let name = SanType::URI(spiffe.try_into().unwrap());
        self.authority
            .leaf(|params| params.subject_alt_names = vec![name])
    }

    async fn connect(&self, leaf: &Leaf) -> std::io::Result<Client<TlsStream<TcpStream>>> {
        Ok(Client::new(self.handshake(self.config(leaf)).await?))
    }

    async fn handshake(&self, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.listener.address).await?;
        let name = "listener".try_into().unwrap();
        TlsConnector::from(config).connect(name, tcp).await
    }

    fn config(&self, leaf: &Leaf) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate.der.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![leaf.der.clone()], leaf.key())
            .unwrap();
        Arc::new(config)
    }

    fn request(&self) -> String {
        post(&[&forwarded(&self.runtimes.leaf(|_| {}).element())], EVENT)
    }
}

#[tokio::test]
async fn the_gateway_is_served() {
    let mut mesh = Mesh::new().await;
    let gateway = mesh.workload(GATEWAY);
    let mut client = mesh.connect(&gateway).await.unwrap();
    assert_eq!(client.ask(&mesh.request()).await.status, 200);
    assert!(mesh.listener.next_event().await.is_some());
    let large = mesh.request().replace(EVENT, &format!("{EVENT:<20000}"));
    let length = format!("Content-Length: {}", EVENT.len());
    let large = large.replace(&length, "Content-Length: 20000");
    assert_eq!(client.ask(&large).await.status, 413);
}

#[tokio::test]
async fn another_workload_of_the_mesh_may_not_speak_for_the_gateway() {
    let mesh = Mesh::new().await;
    let neighbour = mesh.workload("spiffe://cluster.local/ns/shop/sa/shop");
    let mut client = mesh.connect(&neighbour).await.unwrap();
    let answer = client.ask(&mesh.request()).await;
    assert_eq!((answer.status, answer.closes()), (403, true));
}

#[tokio::test]
async fn a_stranger_does_not_come_through_the_handshake() {
    let mesh = Mesh::new().await;
    let name = SanType::URI(GATEWAY.try_into().unwrap());
    let stranger = Authority::new().leaf(|params| params.subject_alt_names = vec![name]);
    // In TLS 1.3 the client learns of the refusal when it reads.
    if let Ok(mut client) = mesh.connect(&stranger).await {
        client.closed().await;
    }
}

/// A resumed session is not asked for its certificate again.
#[tokio::test]
async fn no_session_is_resumed() {
    let mesh = Mesh::new().await;
    let config = mesh.config(&mesh.workload(GATEWAY));
    for _ in 0..2 {
        let stream = mesh.handshake(Arc::clone(&config)).await.unwrap();
        let mut client = Client::new(stream);
        // Tickets come with or before the first answer.
        assert_eq!(client.ask(&mesh.request()).await.status, 200);
        let kind = client.stream().get_ref().1.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[test]
fn material_that_cannot_be_used_is_named() {
    let authority = Authority::new();
    let leaf = authority.leaf(|_| {});
    assert!(gateway_tls(leaf.identity(), b"").is_err());
    let swapped = crate::Identity {
        chain: vec![authority.certificate.der.clone()],
        key: leaf.key(),
    };
    let bundle = authority.certificate.pem.as_bytes();
    assert!(gateway_tls(swapped, bundle).is_err());
}
