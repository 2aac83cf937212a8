//! Which servers are trusted, and how the controller proves who it is.

use rstest::rstest;
use testkit::pki::{self, Leaf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// The error of a call to a server that shows this certificate.
async fn fault(shown: &Leaf) -> TlsFault {
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
    assert_eq!(fault(&leaf).await, TlsFault::UnknownIssuer);
}

#[tokio::test]
async fn an_expired_certificate() {
    let leaf = PKI.leaf_with("leaf", pki::expired).unwrap();
    assert_eq!(fault(&leaf).await, TlsFault::Expired);
}

#[tokio::test]
async fn a_certificate_of_the_future() {
    let leaf = PKI.leaf_with("leaf", pki::not_yet_valid).unwrap();
    assert_eq!(fault(&leaf).await, TlsFault::NotYetValid);
}

#[tokio::test]
async fn a_certificate_for_another_host() {
    let leaf = PKI
        .leaf_with("leaf", |it| it.subject_alt_names.clear())
        .unwrap();
    assert_eq!(fault(&leaf).await, TlsFault::WrongName);
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
        matches!(error, Err(CallError::Tls(TlsFault::Handshake))),
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
        let runtime = RuntimeId::new(name);
        let remote = env.fleet.open(&runtime, access, "1").unwrap();
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
        key: leaf.key_der(),
    };
    let env = Env::new(|_| ());
    let remote = env.fleet.open(&RuntimeId::new("a"), access, "1").unwrap();
    let answer = remote.list(POD).await;
    assert_eq!(answer.is_ok(), trusted);
    if let Err(error) = answer {
        // The server may be gone before its alert is read.
        let refused = matches!(
            error,
            CallError::Tls(TlsFault::ClientRefused) | CallError::Unreachable(_)
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
            key: other.key_der(),
        },
    };
    let opened = Env::new(|_| ())
        .fleet
        .open(&RuntimeId::new("a"), access, "1");
    assert!(
        matches!(opened, Err(AccessError::Identity(_))),
        "{opened:?}"
    );
}

#[tokio::test]
async fn this_machine_is_refused_unless_allowed() {
    let server = answering(BOTH).await;
    let env = Env::new(|it| it.allow_loopback = false);
    let error = env.open(&server).list(POD).await.unwrap_err();
    assert!(matches!(error, CallError::AddressRefused) && !error.transient());
    assert_eq!(server.opened(), 0);
}

#[test]
fn a_token_is_not_shown() {
    let header = authorization(&Credentials::Token("SECRET".to_owned())).unwrap();
    assert_eq!(format!("{header:?}"), "Some(Sensitive)");
}

/// Passes over a runtime, each with the fingerprint given; how many resumed a session.
async fn resumed(env: &Env, server: &TlsServer, passes: &[(&str, &str)]) -> u64 {
    for (runtime, fingerprint) in passes {
        let remote = env
            .fleet
            .open(&RuntimeId::new(runtime), access(server), fingerprint)
            .unwrap();
        // Twice: the tickets of TLS 1.3 come with the first answer.
        remote.list(POD).await.unwrap();
        remote.list(POD).await.unwrap();
    }
    env.count("runtime_tls_handshakes_total{protocol=\"h2\",resumed=\"true\"}")
}

#[rstest]
#[case::same_kubeconfig(&[("a", "1"), ("a", "1"), ("a", "1")], 2)]
#[case::rotated(&[("a", "1"), ("a", "2"), ("a", "1")], 0)]
#[case::another_runtime(&[("a", "1"), ("b", "1")], 0)]
#[case::pushed_out(&[("a", "1"), ("b", "1"), ("c", "1"), ("a", "1")], 0)]
#[case::used_lately(&[("a", "1"), ("b", "1"), ("a", "1"), ("c", "1"), ("a", "1")], 2)]
#[tokio::test]
async fn sessions_are_resumed(#[case] passes: &[(&str, &str)], #[case] expected: u64) {
    let server = answering(BOTH).await;
    let env = Env::new(|it| it.resumable = 2);
    assert_eq!(resumed(&env, &server, passes).await, expected);
    assert!(env.fleet.0.configurations.count() <= 2);
}

#[tokio::test]
async fn resumption_can_be_switched_off() {
    let server = answering(BOTH).await;
    let env = Env::new(|it| it.resumable = 0);
    assert_eq!(resumed(&env, &server, &[("a", "1"), ("a", "1")]).await, 0);
    assert_eq!(env.fleet.0.configurations.count(), 0);
}
