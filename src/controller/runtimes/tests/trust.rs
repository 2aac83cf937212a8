//! Whom we trust, and who trusts us.

use rcgen::date_time_ymd;
use rstest::rstest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::server::{Manner, Pki, answer};
use super::*;

const BOTH: &[&str] = &["h2", "http/1.1"];
const H1: &[&str] = &["http/1.1"];

async fn server(manner: Manner) -> ApiServer {
    ApiServer::answering(manner, |_| async { answer(200, "{}") }).await
}

fn presenting(pair: server::Pair) -> Manner {
    Manner {
        pair,
        ..Manner::default()
    }
}

async fn fault(manner: Manner) -> TlsFault {
    let server = server(manner).await;
    let error = World::new(|_| ())
        .open(&server)
        .list(POD)
        .await
        .unwrap_err();
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
    let pair = Pki::new(name).leaf(|_| ());
    assert_eq!(fault(presenting(pair)).await, TlsFault::UnknownIssuer);
}

#[tokio::test]
async fn an_expired_certificate() {
    let pair = PKI.leaf(|it| {
        it.not_before = date_time_ymd(2019, 1, 1);
        it.not_after = date_time_ymd(2020, 1, 1);
    });
    assert_eq!(fault(presenting(pair)).await, TlsFault::Expired);
}

#[tokio::test]
async fn a_certificate_of_the_future() {
    let pair = PKI.leaf(|it| it.not_before = date_time_ymd(3000, 1, 1));
    assert_eq!(fault(presenting(pair)).await, TlsFault::NotYetValid);
}

#[tokio::test]
async fn a_certificate_for_another_host() {
    let pair = PKI.leaf(|it| it.subject_alt_names.truncate(0));
    assert_eq!(fault(presenting(pair)).await, TlsFault::WrongName);
}

#[tokio::test]
async fn something_that_is_not_tls() {
    let server = ApiServer::over_tcp(|mut stream, _| {
        Box::pin(async move {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut [0; 1024]).await;
        })
    })
    .await;
    let error = World::new(|_| ()).open(&server).list(POD).await;
    assert!(
        matches!(error, Err(CallError::Tls(TlsFault::Handshake))),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_name_to_verify_can_differ_from_the_address() {
    let server = server(Manner::default()).await;
    let world = World::new(|_| ());
    for (name, trusted) in [("api.example", true), ("other.example", false)] {
        let mut access = access(&server);
        access.server_name = name.try_into().unwrap();
        let runtime = RuntimeId::new(name);
        let remote = world.fleet.open(&runtime, access, "1").unwrap();
        assert_eq!(remote.list(POD).await.is_ok(), trusted);
    }
}

fn certificate(access: &mut Access, (certificate, key): server::Pair) {
    access.credentials = Credentials::Certificate {
        chain: vec![certificate],
        key,
    };
}

#[rstest]
#[case::ours(PKI.leaf(|_| ()), true)]
#[case::of_another_authority(Pki::new("other").leaf(|_| ()), false)]
#[case::of_an_authority_of_the_same_name(Pki::new("kubernetes").leaf(|_| ()), false)]
#[tokio::test]
async fn a_client_certificate(
    #[values(BOTH, H1)] alpn: &'static [&'static str],
    #[case] pair: server::Pair,
    #[case] trusted: bool,
) {
    let manner = Manner {
        alpn,
        wants_certificate: true,
        ..Manner::default()
    };
    let server = server(manner).await;
    let mut access = access(&server);
    certificate(&mut access, pair);
    let world = World::new(|_| ());
    let remote = world.fleet.open(&RuntimeId::new("a"), access, "1").unwrap();
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
    let (certificate, _) = PKI.leaf(|_| ());
    let (_, key) = PKI.leaf(|_| ());
    let access = Access {
        server: "https://api.example".parse().unwrap(),
        server_name: "api.example".try_into().unwrap(),
        authority: vec![PKI.authority.clone()],
        credentials: Credentials::Certificate {
            chain: vec![certificate],
            key,
        },
    };
    let opened = World::new(|_| ())
        .fleet
        .open(&RuntimeId::new("a"), access, "1");
    assert!(
        matches!(opened, Err(AccessError::Identity(_))),
        "{opened:?}"
    );
}

#[tokio::test]
async fn this_machine_is_refused_unless_allowed() {
    let server = server(Manner::default()).await;
    let world = World::new(|it| it.allow_loopback = false);
    let error = world.open(&server).list(POD).await.unwrap_err();
    assert!(matches!(error, CallError::AddressRefused) && !error.transient());
    assert_eq!(server.opened(), 0);
}

#[test]
fn a_token_is_not_shown() {
    let header = authorization(&Credentials::Token("SECRET".to_owned())).unwrap();
    assert_eq!(format!("{header:?}"), "Some(Sensitive)");
}

/// Passes over a runtime, each with the fingerprint given; how many resumed a session.
async fn resumed(world: &World, server: &ApiServer, passes: &[(&str, &str)]) -> u64 {
    for (runtime, fingerprint) in passes {
        let remote = world
            .fleet
            .open(&RuntimeId::new(runtime), access(server), fingerprint)
            .unwrap();
        // Twice: the tickets of TLS 1.3 come with the first answer.
        remote.list(POD).await.unwrap();
        remote.list(POD).await.unwrap();
    }
    world.sample("runtime_tls_handshakes_total{protocol=\"h2\",resumed=\"true\"}")
}

#[rstest]
#[case::same_kubeconfig(&[("a", "1"), ("a", "1"), ("a", "1")], 2)]
#[case::rotated(&[("a", "1"), ("a", "2"), ("a", "1")], 0)]
#[case::another_runtime(&[("a", "1"), ("b", "1")], 0)]
#[case::pushed_out(&[("a", "1"), ("b", "1"), ("c", "1"), ("a", "1")], 0)]
#[case::used_lately(&[("a", "1"), ("b", "1"), ("a", "1"), ("c", "1"), ("a", "1")], 2)]
#[tokio::test]
async fn sessions_are_resumed(#[case] passes: &[(&str, &str)], #[case] expected: u64) {
    let server = server(Manner::default()).await;
    let world = World::new(|it| it.resumable = 2);
    assert_eq!(resumed(&world, &server, passes).await, expected);
    assert!(world.fleet.0.configurations.count() <= 2);
}

#[tokio::test]
async fn resumption_can_be_switched_off() {
    let server = server(Manner::default()).await;
    let world = World::new(|it| it.resumable = 0);
    assert_eq!(resumed(&world, &server, &[("a", "1"), ("a", "1")]).await, 0);
    assert_eq!(world.fleet.0.configurations.count(), 0);
}
