//! The gateway's certificate, and rotations of the CA.

use rstest::rstest;

use super::*;

#[tokio::test]
async fn the_gateway_gets_a_certificate_of_its_own_and_the_bundle() {
    let authority = authority();
    let env = Env::with_gateway(&authority).await;
    until(|| env.certificate(LEAF).is_some()).await;
    assert_eq!(
        env.certificate(LEAF).unwrap()["spec"]["dnsNames"],
        json!(["kcp.example"])
    );
    let issued = env.secret(LEAF).unwrap();
    let gateway = env.secret(GATEWAY).unwrap();
    for key in ["tls.crt", "tls.key"] {
        assert_eq!(gateway["data"][key], issued["data"][key]);
    }
    assert_ne!(env.gateway("tls.crt"), authority.pem());
    assert_eq!(
        env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count(),
        1
    );
    assert!(env.count("gateway_certificate_expiration_timestamp_seconds") > 4_000_000_000);
    // Another client deletes the Secret, or writes an invalid bundle to it.
    env.server().remove("secrets", ISTIO_NAMESPACE, GATEWAY);
    until(|| env.secret(GATEWAY).is_some()).await;
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["data"]["ca.crt"] = json!(STANDARD.encode("garbage"));
        });
    until(|| env.gateway("ca.crt").contains("BEGIN CERTIFICATE")).await;
}

/// The reason is that of each runtime, and so it is in the status of each Watcher.
#[rstest]
#[case::with_a_gateway(Some("kcp.example"))]
#[case::without_a_gateway(None)]
#[tokio::test(start_paused = true)]
async fn without_cert_manager_the_reason_says_so_until_it_is_installed(#[case] host: Option<&str>) {
    let mut env = Env::new();
    env.settings.gateway_host = host.map(str::to_owned);
    env.kcp.serve(&kinds::CERTIFICATES, false);
    env.start();
    env.until_pending("CertManagerAPINotServed").await;
    env.kcp.serve(&kinds::CERTIFICATES, true);
    env.until_pending("GatewayCertificatePending").await;
    let authority = authority();
    env.server().put(&secret(CA, authority.pem(), ""));
    env.server().put(&leaf(&authority));
    env.until_pending("").await;
}

/// The CustomResourceDefinitions of cert-manager are deleted before another replica becomes the leader.
#[tokio::test(start_paused = true)]
async fn certificates_that_were_issued_are_used_without_cert_manager() {
    let mut env = Env::with_gateway(&authority()).await;
    env.stop().await;
    env.kcp.serve(&kinds::CERTIFICATES, false);
    drop(env.issued.send_replace(Err("unknown")));
    env.start();
    env.until_pending("").await;
    env.server().remove("secrets", ISTIO_NAMESPACE, GATEWAY);
    until(|| env.secret(GATEWAY).is_some()).await;
    until(|| env.count("gateway_certificate_failures_total") > 0).await;
}

/// Another client removes or overwrites the annotation. Without it, the start of the grace period is not known.
#[rstest]
#[case::missing(None)]
#[case::malformed(Some("yesterday"))]
#[tokio::test]
async fn a_time_of_the_newest_ca_that_cannot_be_read_becomes_now(#[case] annotation: Option<&str>) {
    let start = Timestamp::now().as_second();
    let env = Env::with_gateway(&authority()).await;
    let before = env.secret(GATEWAY).unwrap()["data"].clone();
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            let annotations = it["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove("caAddedToBundleAt");
            annotations.extend(annotation.map(|it| ("caAddedToBundleAt".to_owned(), json!(it))));
        });
    let added = || -> Option<i64> {
        let annotations = &env.secret(GATEWAY)?["metadata"]["annotations"];
        let text = annotations["caAddedToBundleAt"].as_str()?;
        Some(text.parse::<Timestamp>().ok()?.as_second())
    };
    until(|| added().is_some_and(|it| it >= start)).await;
    assert_eq!(env.secret(GATEWAY).unwrap()["data"], before);
}

/// Another client writes the Secret, too, and its watch reports each write.
#[tokio::test]
async fn a_secret_that_another_client_changes_back_is_written_ever_more_rarely() {
    let env = Env::with_gateway(&authority()).await;
    until(|| env.secret(GATEWAY).is_some()).await;
    let change_back = || {
        env.server()
            .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
                it["data"]["tls.crt"] = json!(STANDARD.encode("garbage"));
            });
    };
    let start = Instant::now();
    for _ in 0..3 {
        change_back();
        until(|| env.gateway("tls.crt").contains("BEGIN CERTIFICATE")).await;
    }
    // The least delays after the writes are 0.5 and 1 seconds.
    assert!(start.elapsed() > Duration::from_millis(1_500));
}

/// No certificate contains a wildcard, so watchers need the name to which they connect.
#[tokio::test]
async fn the_certificate_has_the_host_that_watchers_get() {
    let mut env = Env::new();
    env.settings.gateway_host = Some("kcp.example".to_owned());
    env.kcp.put(json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": {"name": "klm-watcher"},
        "spec": {"servers": [{"hosts": ["*"], "tls": {"mode": "MUTUAL", "credentialName": GATEWAY}}]},
    }));
    env.start();
    until(|| env.certificate(LEAF).is_some()).await;
    let names = &env.certificate(LEAF).unwrap()["spec"]["dnsNames"];
    assert_eq!(*names, json!(["kcp.example"]));
}

/// Both CAs are trusted at the same time, certificates of runtimes are renewed, and the gateway keeps its certificate.
#[tokio::test]
async fn a_rotation_of_the_ca_overlaps() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&runtime_secret(&old));
    env.server().put(&runtime_secret(&old));
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 1).await;
    assert!(!env.is_renewing("one-webhook-tls"));
    let before = env.gateway("tls.crt");
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-01-01T00:00:00Z");
        });
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    assert_eq!(env.gateway("tls.crt"), before);
    let added =
        env.secret(GATEWAY).unwrap()["metadata"]["annotations"]["caAddedToBundleAt"].clone();
    assert_ne!(added, "2026-01-01T00:00:00Z");
    until(|| env.is_renewing("one-webhook-tls")).await;
    // A certificate that is issued in the same second is issued by the new CA, and is not renewed again.
    env.server().put(&runtime_secret(&new));
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    env.reconcile_twice("one").await;
    assert!(!env.is_renewing("one-webhook-tls"));
    // The grace period has ended.
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-02-01T00:00:00Z");
        });
    until(|| env.gateway("tls.crt") != before).await;
    assert_eq!(
        env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count(),
        2
    );
}

/// The certificate of a runtime is still of the earlier CA after the grace period of the new one.
#[tokio::test]
async fn a_renewal_that_does_not_come_is_overdue_after_the_grace_period() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    let states = ["Issued", "RenewalOverdue"];
    let counts = || states.map(|it| env.count(&format!("runtime_certificates{{state={it:?}}}")));
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&runtime_secret(&old));
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    until(|| counts() == [1, 0]).await;
    env.server().put(&secret(CA, new.pem(), ""));
    until(|| env.is_renewing("one-webhook-tls")).await;
    env.reconcile_twice("one").await;
    assert_eq!(counts(), [1, 0]);
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-02-01T00:00:00Z");
        });
    until(|| counts() == [0, 1]).await;
    assert!(env.count("runtime_certificate_earliest_expiration_timestamp_seconds") > 0);
    env.server().put(&runtime_secret(&new));
    env.issued("one-webhook-tls", "2026-03-01T00:00:00Z");
    until(|| counts() == [1, 0]).await;
}

/// The certificate was issued by an earlier CA before the rotation, while the clock of cert-manager was ten minutes
/// ahead. After the renewal the certificate is not read at each resync.
#[tokio::test]
async fn a_certificate_of_an_earlier_ca_is_renewed_whatever_the_clock_of_cert_manager() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    env.server().put(&runtime_secret(&old));
    let ahead = Timestamp::now() + Duration::from_mins(10);
    env.issued("one-webhook-tls", &ahead.to_string());
    until(|| env.is_renewing("one-webhook-tls")).await;
    env.server().put(&runtime_secret(&new));
    let ahead = ahead + Duration::from_secs(1);
    env.issued("one-webhook-tls", &ahead.to_string());
    env.reconcile_twice("one").await;
    assert!(!env.is_renewing("one-webhook-tls"));
    let reads = || env.kcp.count("get secrets istio-system/one-webhook-tls");
    let before = reads();
    env.reconcile_twice("one").await;
    assert_eq!(reads(), before);
}

/// The second CA is usually added in the same second as the first one here.
#[tokio::test]
async fn a_certificate_of_the_first_of_two_new_cas_is_renewed() {
    let (old, first, second) = (authority(), authority(), authority());
    let env = Env::with_gateway(&old).await;
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    let authorities = || env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count();
    env.server().put(&secret(CA, first.pem(), ""));
    env.server().put(&leaf(&first));
    until(|| authorities() == 2).await;
    env.server().put(&runtime_secret(&first));
    let now = Timestamp::now().to_string();
    env.issued("one-webhook-tls", &now);
    env.reconcile_twice("one").await;
    assert!(!env.is_renewing("one-webhook-tls"));
    env.server().put(&secret(CA, second.pem(), ""));
    env.server().put(&leaf(&second));
    until(|| authorities() == 3).await;
    until(|| env.is_renewing("one-webhook-tls")).await;
}

/// The gateway does not wait for the end of the grace period.
#[tokio::test]
async fn the_gateway_presents_a_certificate_of_a_new_ca_once_all_watchers_trust_it() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    let before = env.gateway("tls.crt");
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    // A reconcile begins with this list, and reconciles do not overlap.
    let reconciles = || env.kcp.count("list gateways");
    let earlier = reconciles();
    env.acknowledged
        .send_replace(Some(bundle_sha256(old.pem().as_bytes())));
    until(|| reconciles() > earlier).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    env.kcp.merge("gateways", "klm-watcher", &label);
    until(|| reconciles() >= earlier + 2).await;
    assert_eq!(env.gateway("tls.crt"), before);
    let bundle = env.gateway("ca.crt");
    env.acknowledged
        .send_replace(Some(bundle_sha256(bundle.as_bytes())));
    until(|| env.gateway("tls.crt") != before).await;
    assert_eq!(env.gateway("ca.crt"), bundle);
}

/// Without the renewal, the gateway would serve with a certificate of the earlier CA until that certificate expires.
#[tokio::test]
async fn the_certificate_of_the_gateway_is_renewed_when_the_new_ca_is_trusted() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    until(|| env.certificate(LEAF).is_some()).await;
    env.issued(LEAF, "2026-01-01T00:00:00Z");
    env.server().put(&secret(CA, new.pem(), ""));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    assert!(!env.is_renewing(LEAF));
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-02-01T00:00:00Z");
        });
    until(|| env.is_renewing(LEAF)).await;
}

#[tokio::test]
async fn the_certificate_of_the_gateway_is_requested_without_istio() {
    let mut env = Env::new();
    env.kcp.serve(&kinds::GATEWAYS, false);
    env.kcp.serve(&kinds::VIRTUAL_SERVICES, false);
    env.settings.gateway_host = Some("kcp.example".to_owned());
    env.start();
    until(|| env.certificate(LEAF).is_some()).await;
}
