//! Tests of the order in which a runtime gets its certificate and the CA bundle.

use super::*;

/// During a rotation the bundle contains both CAs. A certificate that the API server would not trust is not written.
#[tokio::test]
async fn a_new_ca_is_trusted_before_its_certificate_is_used() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    let before = cluster.find(SECRET).unwrap()["data"]["tls.crt"].clone();
    let new = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    env.issue("one", &new);
    env.until("it is refused", |env| {
        env.runtimes("CertificateOfUnknownCA") == 1
    })
    .await;
    assert_eq!(cluster.find(SECRET).unwrap()["data"]["tls.crt"], before);
    env.issue_gateway(&[&env.authority, &new]);
    let is_new = |_: &Env| cluster.find(SECRET).unwrap()["data"]["tls.crt"] != before;
    env.until("the certificate is written", is_new).await;
    let writes = cluster.take();
    let position = |object: &str| writes.iter().position(|it| it.ends_with(object)).unwrap();
    assert!(position(WEBHOOKS) < position(SECRET), "{writes:?}");
}

/// A rotation does not wait for a runtime that is unreachable for longer than the grace period.
#[tokio::test]
async fn a_runtime_that_is_offline_during_a_rotation_gets_the_new_ca_first() {
    let (env, cluster) = Env::installed().await;
    let before = cluster.find(SECRET).unwrap()["data"]["tls.crt"].clone();
    let offline = cluster.outage(503);
    let new = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    env.issue_gateway(&[&env.authority, &new]);
    env.until("it is reported", |env| env.runtimes("APIServerError") == 1)
        .await;
    env.issue("one", &new);
    env.issue_gateway(&[&new]);
    cluster.take();
    offline.stop();
    env.until("its certificate is written", |_| {
        cluster.find(SECRET).unwrap()["data"]["tls.crt"] != before
    })
    .await;
    let writes = cluster.take();
    let position = |object: &str| writes.iter().rposition(|it| it.ends_with(object)).unwrap();
    assert!(position(WEBHOOKS) < position(SECRET), "{writes:?}");
    let bundle = STANDARD.encode(new.pem());
    let webhooks = cluster.find(WEBHOOKS).unwrap();
    assert_eq!(webhooks["webhooks"][0]["clientConfig"]["caBundle"], bundle);
    assert_eq!(cluster.find(SECRET).unwrap()["data"]["ca.crt"], bundle);
}

#[tokio::test]
async fn a_new_runtime_is_contacted_once_its_certificate_is_issued() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let secret = "one-webhook-tls";
    env.kcp.remove("secrets", ISTIO_NAMESPACE, secret);
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it waits", |env| env.runtimes("CertificatePending") == 1)
        .await;
    assert_eq!(cluster.tokens(), [""; 0]);
    env.issue("one", &env.authority);
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}

/// The installed watcher is also updated after a change of the leader.
#[tokio::test]
async fn an_installed_watcher_follows_the_watchers_without_a_certificate() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    let secret = "one-webhook-tls";
    env.kcp.remove("secrets", ISTIO_NAMESPACE, secret);
    env.kcp.put(watcher("telemetry"));
    env.start();
    env.until("it has both webhooks", |_| entries(&cluster).len() == 2)
        .await;
}

/// While the gateway has no certificate, no runtime is changed. A removal needs no certificate.
#[tokio::test]
async fn without_the_gateway_nothing_changes() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    cluster.take();
    env.set_gateway(Err(GATEWAY_CERTIFICATE_PENDING));
    env.kcp.put(watcher("telemetry"));
    env.start();
    env.until("it waits", |env| {
        env.runtimes("GatewayCertificatePending") == 1
    })
    .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.kcp.remove("watchers", NAMESPACE, "telemetry");
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}

/// The checked requests include Events and statuses.
#[tokio::test]
async fn no_key_is_written_to_kcp() {
    let (env, cluster) = Env::installed().await;
    let key = cluster.find(SECRET).unwrap()["data"]["tls.key"]
        .as_str()
        .unwrap()
        .to_owned();
    let writes = env.kcp.requests();
    let bodies = writes.iter().map(|it| it.body.to_string());
    assert!(bodies.filter(|it| it.contains(&key)).count() == 0);
}
