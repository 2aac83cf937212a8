//! Tests of the servers that are trusted, and of the authentication of the controller.

use rstest::rstest;
use testkit::pki::{self, Leaf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::clients::kubeconfig::Credentials;

/// Returns the error of a call to a server that presents this certificate.
async fn fault(shown: &Leaf) -> TlsError {
    let config = shown.server_config(BOTH, None).unwrap();
    let server = TlsServer::answering(config, |_| async { answer(200, "{}") });
    let server = server.await.unwrap();
    let error = Env::new(|_| ()).open(&server).list(POD).await.unwrap_err();
    assert!(!error.transient());
    assert_eq!(server.requests(), 0);
    match error {
        CallError::Tls(fault) => fault,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::of_another_name("other")]
#[case::of_the_same_name("kubernetes")]
#[tokio::test]
async fn another_authority(#[case] name: &str) {
    let leaf = Authority::new(name).unwrap().leaf("leaf").unwrap();
    assert_eq!(fault(&leaf).await, TlsError::UnknownIssuer);
}

#[tokio::test]
async fn an_expired_certificate() {
    let leaf = PKI.leaf_with("leaf", pki::expired).unwrap();
    assert_eq!(fault(&leaf).await, TlsError::Expired);
}

#[tokio::test]
async fn a_certificate_of_the_future() {
    let leaf = PKI.leaf_with("leaf", pki::not_yet_valid).unwrap();
    assert_eq!(fault(&leaf).await, TlsError::NotYetValid);
}

#[tokio::test]
async fn a_certificate_for_another_host() {
    let leaf = PKI
        .leaf_with("leaf", |it| it.subject_alt_names.clear())
        .unwrap();
    assert_eq!(fault(&leaf).await, TlsError::WrongName);
}

#[tokio::test]
async fn something_that_is_not_tls() {
    let server = TlsServer::over_tcp(|mut stream, _| {
        Box::pin(async move {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut [0; 1024]).await;
        })
    })
    .await
    .unwrap();
    let error = Env::new(|_| ()).open(&server).list(POD).await;
    assert!(
        matches!(error, Err(CallError::Tls(TlsError::Handshake))),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_name_to_verify_can_differ_from_the_address() {
    let server = answering(BOTH).await;
    let env = Env::new(|_| ());
    for (name, trusted) in [("localhost", true), ("other.example", false)] {
        let mut access = access(&server);
        access.server_name = name.try_into().unwrap();
        let remote = env.clients.open(access).unwrap();
        assert_eq!(remote.list(POD).await.is_ok(), trusted);
    }
}

#[rstest]
#[case::of_this_authority(PKI.leaf("client"), true)]
#[case::of_another_authority(Authority::new("other").and_then(|it| it.leaf("client")), false)]
#[case::of_an_authority_of_the_same_name(Authority::new("kubernetes").and_then(|it| it.leaf("client")), false)]
#[tokio::test]
async fn a_client_certificate(
    #[values(BOTH, H1)] alpn: &'static [&'static str],
    #[case] leaf: Result<Leaf, rcgen::Error>,
    #[case] trusted: bool,
) {
    let shown = PKI.leaf("kube-apiserver").unwrap();
    let config = shown.server_config(alpn, Some(&PKI)).unwrap();
    let server = TlsServer::answering(config, |_| async { answer(200, "{}") });
    let server = server.await.unwrap();
    let mut access = access(&server);
    let leaf = leaf.unwrap();
    access.credentials = Credentials::Certificate {
        chain: vec![leaf.der.clone()],
        key: leaf.key_der().into(),
    };
    let env = Env::new(|_| ());
    let remote = env.clients.open(access).unwrap();
    let answer = remote.list(POD).await;
    assert_eq!(answer.is_ok(), trusted);
    if let Err(error) = answer {
        // The connection may be closed before the client reads the alert of the server.
        let refused = matches!(
            error,
            CallError::Tls(TlsError::ClientRefused) | CallError::Unreachable(_)
        );
        assert!(refused, "{error:?}");
    }
}

#[test]
fn a_key_of_another_certificate() {
    let [shown, other] = ["a", "b"].map(|name| PKI.leaf(name).unwrap());
    let access = Access {
        server: "https://api.example".parse().unwrap(),
        server_name: "api.example".try_into().unwrap(),
        authority: vec![PKI.certificate.der.clone()],
        credentials: Credentials::Certificate {
            chain: vec![shown.der.clone()],
            key: other.key_der().into(),
        },
    };
    let opened = Env::new(|_| ()).clients.open(access);
    assert!(matches!(opened, Err(AccessError::Identity(_))));
}

#[tokio::test]
async fn this_machine_is_refused_unless_allowed() {
    let server = answering(BOTH).await;
    let env = Env::new(|it| it.allow_loopback = false);
    let error = env.open(&server).list(POD).await.unwrap_err();
    assert!(matches!(error, CallError::AddressRefused(_)) && !error.transient());
    assert_eq!(server.opened(), 0);
}

#[test]
fn a_token_is_not_shown() {
    let header = tls::authorization(&Credentials::Token("SECRET".to_owned().into())).unwrap();
    assert_eq!(format!("{header:?}"), "Some(Sensitive)");
}

/// A resumed session would not verify the certificate of the server again.
#[tokio::test]
async fn no_session_is_resumed() {
    let server = TlsServer::over_tls(speaking(H1), |mut stream, _| {
        Box::pin(async move {
            let kind = stream.get_ref().1.handshake_kind();
            let resumed = kind == Some(rustls::HandshakeKind::Resumed);
            let _ = stream.read(&mut [0; 1024]).await;
            // The body differs between new and resumed sessions. The connection is closed after the body.
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\n";
            let body = if resumed { " true" } else { "false" };
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        })
    })
    .await
    .unwrap();
    let remote = Env::new(|_| ()).open(&server);
    for _ in 0..3 {
        assert_eq!(remote.list(POD).await.unwrap(), false);
    }
    assert_eq!(server.opened(), 3);
}
