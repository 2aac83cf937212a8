use std::time::Duration;

use http::HeaderMap;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, kinds};
use testkit::pki::{Authority, today};
use testkit::until::{holds, until};

use super::*;
use crate::fixture::{RUNTIME, element, watcher as watcher_certificate};
use crate::{CertificateCheck, RuntimeIdFromCommonName, XFCC_HEADER};

const LIMIT: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_secs(1);

fn secret(authority: &Authority) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "kcp-system"},
        "data": {"ca.crt": STANDARD.encode_to_string(authority.pem())},
    })
}

fn trusts(anchors: &TrustAnchors, authority: &Authority) -> bool {
    let mut headers = HeaderMap::new();
    let element = element(&watcher_certificate(authority));
    headers.insert(XFCC_HEADER, element.try_into().unwrap());
    let mut check = CertificateCheck::new(anchors.clone(), RuntimeIdFromCommonName);
    check.clock = today;
    check.client(&headers).is_ok()
}

/// The paused clock only advances when no task can run, so after [`SETTLED`] every change is handled.
#[tokio::test(start_paused = true)]
async fn anchors_follow_their_secret_and_keep_the_last_usable_bundle() {
    let (first, second) = (
        Authority::new("one").unwrap(),
        Authority::new("two").unwrap(),
    );
    let server = ApiServer::default();
    server.put(&secret(&first));
    let follow = TrustAnchors::follow_secret(server.client(), "kcp-system", "ca", "ca.crt");
    let (anchors, following) = follow.await.unwrap();
    let following = tokio::spawn(following);
    let trusts_only = async |what: &str, one: &Authority, other: &Authority| {
        let trusted = async || trusts(&anchors, one) && !trusts(&anchors, other);
        holds(what, SETTLED, trusted).await.unwrap();
    };
    trusts_only("the first CA", &first, &second).await;
    assert_eq!(server.count("watch secrets"), 1);

    let mut unusable = secret(&second);
    unusable["data"]["ca.crt"] = json!("bm8gUEVN");
    server.put(&unusable);
    trusts_only("the first CA after an unusable bundle", &first, &second).await;
    server.put(&secret(&second));
    until("the new CA is trusted", LIMIT, async || {
        trusts(&anchors, &second)
    })
    .await
    .unwrap();
    trusts_only("the second CA", &second, &first).await;
    server.delete("secrets", "kcp-system", "ca");
    trusts_only("the second CA after the deletion", &second, &first).await;
    following.abort();
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_at_the_start_is_an_error() {
    let server = ApiServer::default();
    let follow = || TrustAnchors::follow_secret(server.client(), "kcp-system", "ca", "ca.crt");
    assert!(matches!(follow().await, Err(CaSecretError::Read(_))));
    let mut other = secret(&Authority::new("one").unwrap());
    other["data"] = json!({"tls.crt": "bm8gUEVN"});
    server.put(&other);
    assert!(matches!(follow().await, Err(CaSecretError::Key(_))));
    other["data"] = json!({"ca.crt": "bm8gUEVN"});
    server.put(&other);
    assert!(matches!(follow().await, Err(CaSecretError::Bundle(_))));
}

fn kyma(name: &str, runtime: &str, domain: Option<&str>) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": name, "namespace": "kcp-system", "labels": {(RUNTIME_ID_LABEL): runtime},
            "annotations": {(DOMAIN_ANNOTATION): domain.unwrap_or_default()},
        },
    })
}

#[tokio::test]
async fn domains_follow_kymas() {
    let server = ApiServer::with_kinds([&kinds::KYMAS]);
    server.put(&kyma("a", RUNTIME, Some("one.example")));
    let (domains, following) = KymaDomains::follow(server.client(), "kcp-system");
    let runtime = RuntimeId::parse(RUNTIME).unwrap();
    assert!(
        domains.skr_domain(&runtime).await.is_err(),
        "not listed yet"
    );
    let following = tokio::spawn(following);
    let is = async |expected: Option<&str>| {
        until("the domain", LIMIT, async || {
            let domain = domains.skr_domain(&runtime).await.ok();
            (domain == Some(expected.map(str::to_owned)))
                .then_some(())
                .ok_or(format!("{domain:?}"))
        })
        .await
        .unwrap();
    };
    is(Some("one.example")).await;
    server.put(&kyma("a", RUNTIME, Some("two.example")));
    is(Some("two.example")).await;
    server.put(&kyma("a", "another-runtime", Some("two.example")));
    is(None).await;
    server.put(&kyma("b", RUNTIME, Some("three.example")));
    is(Some("three.example")).await;
    // Another Kyma has the same runtime ID by mistake.
    server.put(&kyma("c", RUNTIME, Some("four.example")));
    server.put(&kyma("d", "last-runtime", Some("five.example")));
    let last = RuntimeId::parse("last-runtime").unwrap();
    until("the last Kyma", LIMIT, async || {
        let domain = domains.skr_domain(&last).await.ok().flatten();
        domain.map(drop).ok_or("no domain")
    })
    .await
    .unwrap();
    is(Some("three.example")).await;
    server.delete("kymas", "kcp-system", "c");
    is(Some("three.example")).await;
    server.delete("kymas", "kcp-system", "b");
    is(None).await;
    following.abort();
}
