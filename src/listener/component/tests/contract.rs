//! The HTTP contract of the listener in <https://github.com/kyma-project/runtime-watcher>, with corrections.

use rstest::rstest;
use testkit::pki::rcgen::{CertificateParams, DnType};
use testkit::pki::{expired, not_yet_valid};
use watcher_types::{Gvk, NamespacedName};

use crate::fixture::{
    EVENT, GATEWAY, RUNTIME, Running, ca, check, disabled, element, forwarded, options, post,
    post_to, watcher, watcher_header, watcher_with,
};
use crate::{
    Authentication, CertificateCheck, ClientCertificate, Event, RuntimeId, SanPinning,
    SkrDomainLookup, TrustedHops, Verifier, VerifyError, XFCC_BYTES,
};

fn expected() -> Event {
    Event {
        runtime_id: RuntimeId::parse(RUNTIME).unwrap(),
        watched: NamespacedName {
            namespace: "ns".into(),
            name: "n".into(),
        },
        watched_gvk: Gvk {
            group: "g".into(),
            version: "v".into(),
            kind: "K".into(),
        },
    }
}

/// The response is 200 with an empty body, and one event with names, type and runtime ID is delivered.
#[tokio::test]
async fn event_of_a_runtime_is_answered_200_and_delivered() {
    let authority = ca();
    let mut listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let mut client = listener.connect().await;
    // Sends two requests on one connection, as the connection pool of a gateway does.
    for _ in 0..2 {
        let answer = client.ask(&post(&[&header], EVENT)).await.unwrap();
        assert_eq!(
            (answer.status, answer.body.as_str(), answer.closes()),
            (200, "", false)
        );
        assert_eq!(listener.next_event().await, Some(expected()));
    }
}

/// Lower-case keys and an owner are accepted. A media type is not required.
#[rstest]
#[case::lower_case(r#"{"watched":{"namespace":"ns","name":"n"},"watchedgvk":{"group":"g","version":"v","kind":"K"}}"#)]
#[case::owner(r#"{"owner":{"Namespace":"o","Name":"o"},"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#)]
#[tokio::test]
async fn event_of_an_older_watcher_is_delivered(#[case] body: &str) {
    let authority = ca();
    let mut listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    assert_eq!(listener.ask(&post(&[&header], body)).await.status, 200);
    assert_eq!(listener.next_event().await, Some(expected()));
}

/// Paths of other contract versions do not exist, so their bodies are not parsed.
#[rstest]
#[case::root("POST", "/", 404)]
#[case::another_component("POST", "/v2/other/event", 404)]
#[case::a_trailing_slash("POST", "/v2/kyma/event/", 404)]
#[case::a_doubled_slash("POST", "/v2//kyma/event", 404)]
#[case::contract_v1("POST", "/v1/kyma/event", 404)]
#[case::contract_r1("POST", "/r1/kyma/event", 404)]
#[case::contract_v("POST", "/v/kyma/event", 404)]
#[case::get("GET", "/v2/kyma/event", 405)]
#[case::put("PUT", "/v2/kyma/event", 405)]
#[case::get_heartbeat("GET", "/v2/kyma/event/heartbeat", 405)]
#[tokio::test]
async fn request_with_another_path_or_method_is_refused(
    #[case] method: &str,
    #[case] path: &str,
    #[case] status: u16,
) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let request = post_to(path, &[&header], EVENT).replacen("POST", method, 1);
    let answer = listener.ask(&request).await;
    assert_eq!(
        (answer.status, answer.closes()),
        (status, true),
        "{answer:?}"
    );
}

/// A body of 16 384 bytes is accepted and a body of 16 385 bytes is rejected, with `Content-Length` or in chunks.
#[rstest]
#[case::at_the_bound(16_384, false, 200)]
#[case::over_it(16_385, false, 413)]
#[case::chunked_at_the_bound(16_384, true, 200)]
#[case::chunked_over_it(16_385, true, 413)]
#[tokio::test]
async fn body_over_the_bound_is_413(
    #[case] length: usize,
    #[case] chunked: bool,
    #[case] status: u16,
) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let body = format!("{EVENT:<length$}");
    let request = if chunked {
        let (one, two) = body.split_at(9_000);
        let head = "POST /v2/kyma/event HTTP/1.1\r\nHost: kcp\r\nTransfer-Encoding: chunked";
        let chunks = [one, two]
            .map(|it| format!("{:x}\r\n{it}\r\n", it.len()))
            .concat();
        format!("{head}\r\n{header}\r\n\r\n{chunks}0\r\n\r\n")
    } else {
        post(&[&header], &body)
    };
    assert_eq!(listener.ask(&request).await.status, status);
    let too_large = listener
        .metric(r#"watcher_listener_exceeding_size_limit_requests_total{server_name="listener",manager="kyma"}"#);
    assert_eq!(too_large, Some(if status == 413 { 1.0 } else { 0.0 }));
}

#[tokio::test]
async fn a_large_body_is_refused_before_it_is_sent() {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let request =
        post(&[&header, "Expect: 100-continue"], "").replace("Length: 0", "Length: 99999");
    assert_eq!(listener.ask(&request).await.status, 413);
}

/// Requests with invalid headers. The tests in `xfcc` cover all formats.
#[tokio::test]
async fn header_that_names_no_client_is_401() {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let leaf = watcher(&authority);
    let element = element(&leaf);
    let several = [forwarded(&element), forwarded(&element)];
    let long = forwarded(&format!("{element};Chain=\"{}\"", "x".repeat(XFCC_BYTES)));
    let cases: [(&str, Vec<&str>); 7] = [
        ("absent", vec![]),
        ("two headers", several.iter().map(String::as_str).collect()),
        ("over 32 kB", vec![&long]),
        ("no Cert", vec!["X-Forwarded-Client-Cert: Hash=ab"]),
        ("empty", vec!["X-Forwarded-Client-Cert: Cert="]),
        ("bad escape", vec!["X-Forwarded-Client-Cert: Cert=%z"]),
        ("no PEM", vec!["X-Forwarded-Client-Cert: Cert=abc"]),
    ];
    for (case, headers) in cases {
        let answer = listener.ask(&post(&headers, EVENT)).await;
        assert_eq!(
            (answer.status, answer.closes()),
            (401, true),
            "{case}: {answer:?}"
        );
    }
    let refused = r#"watcher_listener_failed_verification_requests_total{server_name="listener",manager="kyma",request_uri_label="/v2/kyma/event"}"#;
    assert_eq!(listener.metric(refused), Some(7.0));
}

/// A client that reaches the port is not authenticated if the header is forged or the certificate is invalid.
#[rstest]
#[case::expired(expired, 401)]
#[case::of_the_future(not_yet_valid, 401)]
#[case::nameless(|params: &mut CertificateParams| { params.distinguished_name.remove(DnType::CommonName); }, 400)]
#[tokio::test]
async fn certificate_that_does_not_hold_or_names_no_runtime_is_refused(
    #[case] change: fn(&mut CertificateParams),
    #[case] status: u16,
) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = forwarded(&element(&watcher_with(&authority, change)));
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, status);
}

#[tokio::test]
async fn another_authoritys_certificate_is_401() {
    let listener = Running::trusting(&ca()).await;
    let spoofed = watcher_header(&ca());
    assert_eq!(listener.ask(&post(&[&spoofed], EVENT)).await.status, 401);
}

/// The body of a client that is not authenticated is not read.
#[tokio::test]
async fn no_response_comes_before_the_body_is_sent() {
    let listener = Running::trusting(&ca()).await;
    let head = post(&[], "").replace("Length: 0", "Length: 100");
    assert_eq!(listener.ask(&head).await.status, 401);
}

/// The body is larger than the buffers of both sides. If the server stopped reading after the response, the client would
/// get a reset.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let listener = Running::trusting(&ca()).await;
    let mut client = listener.connect().await;
    let answer = client
        .ask(&post(&[], &"x".repeat(8_000_000)))
        .await
        .unwrap();
    assert_eq!((answer.status, answer.closes()), (401, true));
    client.closed().await.unwrap();
}

/// The response is 400 without content of the body. The public listener responds 500 and repeats the body.
#[rstest]
#[case::no_json("<script>")]
#[case::another_type(r#"{"watched":"<script>"}"#)]
#[case::nothing("")]
#[tokio::test]
async fn body_that_is_no_event_is_400_without_an_echo(#[case] body: &str) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let answer = listener.ask(&post(&[&header], body)).await;
    assert_eq!(answer.status, 400);
    assert!(!answer.body.contains("script"), "{answer:?}");
}

#[rstest]
#[case::the_gateway(GATEWAY, 200)]
#[case::a_neighbour("spiffe://cluster.local/ns/shop/sa/shop", 403)]
#[tokio::test]
async fn behind_a_sidecar_the_last_hop_must_be_the_gateway(#[case] hop: &str, #[case] status: u16) {
    let authority = ca();
    let check = CertificateCheck {
        trusted_hops: TrustedHops::One {
            gateway: GATEWAY.into(),
        },
        ..check(&authority)
    };
    let listener = Running::with(options(Authentication::Certificate(check))).await;
    let element = element(&watcher(&authority));
    let header = forwarded(&format!(
        "{element},By=spiffe://me;Hash=1;Subject=\"\";URI={hop}"
    ));
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, status);
}

/// Lookup that finds no Kyma.
struct NoKyma;

impl SkrDomainLookup for NoKyma {
    fn skr_domain<'a>(
        &'a self,
        _runtime: &'a RuntimeId,
    ) -> futures::future::BoxFuture<
        'a,
        Result<Option<String>, Box<dyn std::error::Error + Send + Sync>>,
    > {
        Box::pin(async { Ok(None) })
    }
}

/// The public listener responds 200 and drops the event.
#[tokio::test]
async fn a_runtime_without_a_kyma_is_403_and_its_event_not_delivered() {
    let authority = ca();
    let check = CertificateCheck {
        verifier: std::sync::Arc::new(SanPinning::new(NoKyma)),
        ..check(&authority)
    };
    let mut listener = Running::with(options(Authentication::Certificate(check))).await;
    let header = watcher_header(&authority);
    assert_eq!(listener.ask(&post(&[&header], EVENT)).await.status, 403);
    listener.shutdown.cancel();
    assert_eq!(listener.next_event().await, None);
}

/// Accepts events of one kind, and no heartbeats.
struct OnlyConfigMaps;

impl Verifier for OnlyConfigMaps {
    fn verify(
        &self,
        identity: crate::ClientIdentity,
    ) -> futures::future::BoxFuture<'_, Result<RuntimeId, VerifyError>> {
        let wanted = identity
            .event
            .is_some_and(|event| event.watched_gvk.kind == "ConfigMap");
        let named = |client: &ClientCertificate| RuntimeId::parse(client.common_name()?);
        let runtime = named(&identity.certificate).filter(|_| wanted);
        Box::pin(async { runtime.ok_or(VerifyError::Denied("not wanted".into())) })
    }
}

#[tokio::test]
async fn an_operators_own_verifier_sees_the_event() {
    let authority = ca();
    let check = CertificateCheck {
        verifier: std::sync::Arc::new(OnlyConfigMaps),
        ..check(&authority)
    };
    let listener = Running::with(options(Authentication::Certificate(check))).await;
    let header = watcher_header(&authority);
    let answer = listener.ask(&post(&[&header], EVENT)).await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.body, "sender not accepted: not wanted\n");
    let wanted = EVENT.replace("\"K\"", "\"ConfigMap\"");
    assert_eq!(listener.ask(&post(&[&header], &wanted)).await.status, 200);
}

#[tokio::test]
async fn without_authentication_events_are_of_the_given_runtime_and_heartbeats_have_no_path() {
    let mut listener = Running::with(options(disabled())).await;
    assert_eq!(listener.ask(&post(&[], EVENT)).await.status, 200);
    assert_eq!(listener.next_event().await, Some(expected()));
    let heartbeat = post_to("/v2/kyma/event/heartbeat", &[], "{}");
    assert_eq!(listener.ask(&heartbeat).await.status, 404);
}

#[rstest]
#[case::ours(30_000, 200)]
#[case::too_many(33_000, 431)]
#[case::more_than_is_buffered(80_000, 431)]
#[tokio::test]
async fn headers_have_a_bound(#[case] length: usize, #[case] status: u16) {
    let authority = ca();
    let listener = Running::trusting(&authority).await;
    let header = watcher_header(&authority);
    let more = format!("X-More: {}", "x".repeat(length));
    assert_eq!(
        listener.ask(&post(&[&header, &more], EVENT)).await.status,
        status
    );
}
