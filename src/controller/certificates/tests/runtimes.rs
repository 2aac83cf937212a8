//! Certificates of runtimes: created, updated and deleted with their Kyma or RuntimeBootstrapper.

use rstest::rstest;
use tokio::time::sleep;

use super::*;
use crate::certificates::runtimes::ISSUANCE;

#[tokio::test]
async fn each_kyma_gets_a_certificate_that_follows_it() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    let names = || env.certificate("one-webhook-tls").unwrap()["spec"]["dnsNames"][0].clone();
    assert_eq!(names(), "one.kyma.example");
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "new.example"}}}),
    );
    until(|| names() == "new.example").await;
    // Another client edits or deletes the Certificate.
    env.server()
        .edit("certificates", (ISTIO_NAMESPACE, "one-webhook-tls"), |it| {
            it["spec"]["commonName"] = json!("other");
        });
    until(|| env.certificate("one-webhook-tls").unwrap()["spec"]["commonName"] == "id-one").await;
    env.server()
        .remove("certificates", ISTIO_NAMESPACE, "one-webhook-tls");
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 1).await;
    assert!(env.count("runtime_certificate_earliest_expiration_timestamp_seconds") > 4_000_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_kyma_leaves_no_certificate_and_no_secret() {
    let env = Env::started();
    for name in ["one", "two"] {
        env.kcp.put(kyma(name));
        let certificate = format!("{name}-webhook-tls");
        until(|| env.certificate(&certificate).is_some()).await;
        env.server().put(&secret(&certificate, "c", "k"));
    }
    env.kcp.delete("kymas", "one");
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert!(env.certificate("two-webhook-tls").is_some());
    assert!(env.secret("two-webhook-tls").is_some());
}

/// The controller repeats a failed deletion, so that no Secret is left.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_is_repeated() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    let fault = env.kcp.fault("delete secrets").status(500);
    env.kcp.delete("kymas", "one");
    until(|| env.kcp.count("delete secrets") > 0).await;
    fault.stop();
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
}

/// cert-manager issues the certificate again before its Certificate is deleted, and the second deletion of the Secret fails.
#[tokio::test(start_paused = true)]
async fn a_secret_is_deleted_although_its_certificate_is_already_deleted() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    let issued = env.kcp.fault("delete certificates").times(1);
    issued.before(|server| {
        server.put(&secret("one-webhook-tls", "c", "k"));
        server.fault("delete secrets").times(1).status(500);
    });
    env.kcp.delete("kymas", "one");
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    until(|| env.secret("one-webhook-tls").is_none()).await;
}

/// cert-manager writes the Secret of an issuance that began before the deletion of the Certificate. The request that deletes
/// it fails first.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_issued_after_the_deletion_is_deleted(
    #[values(false, true)] has_bootstrapper: bool,
) {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    if has_bootstrapper {
        // Without a Kyma, the runtime needs a domain of its own.
        env.kcp.put(crate::fixture::bootstrapper("one"));
        let status = json!({"status": {"runtimeID": "id-one"}});
        env.kcp.merge("runtimebootstrappers", "one", &status);
    }
    env.kcp.delete("kymas", "one");
    until(|| env.is_terminating("one-webhook-tls")).await;
    sleep(Duration::from_secs(10)).await;
    let _fault = env.kcp.fault("delete secrets").times(1).status(500);
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    // Another Secret with the name is not deleted.
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    sleep(2 * RESYNC).await;
    assert!(env.secret("one-webhook-tls").is_some());
}

/// cert-manager writes the Secret for the former leader, after the next one has begun.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_issued_after_a_change_of_the_leader_is_deleted() {
    let mut env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.kcp.delete("kymas", "one");
    until(|| env.kcp.count("delete certificates") == 1).await;
    env.stop().await;
    env.start();
    sleep(ISSUANCE / 2).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert_eq!(env.kcp.count("delete certificates"), 1);
}

/// A Kyma with the name that gets no certificate itself does not stop the deletion.
#[tokio::test(start_paused = true)]
async fn a_kyma_that_is_created_again_without_a_domain_leaves_no_secret() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.kcp.delete("kymas", "one");
    until(|| env.is_terminating("one-webhook-tls")).await;
    let mut again = kyma("one");
    again["metadata"]["annotations"] = json!({});
    env.kcp.put(again);
    sleep(Duration::from_secs(10)).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert!(env.secret("one-webhook-tls").is_none());
}

/// The leader ends between the two requests that begin the deletion.
#[tokio::test(start_paused = true)]
async fn a_certificate_that_was_not_deleted_has_no_finalizer_when_its_kyma_is_created_again() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    let finalizers = || {
        let certificate = env.certificate("one-webhook-tls").unwrap();
        let finalizers = certificate["metadata"]["finalizers"].as_array();
        finalizers.map_or(0, Vec::len)
    };
    let rejected = env.kcp.fault("delete certificates").status(500);
    env.kcp.delete("kymas", "one");
    until(|| rejected.hits() > 1).await;
    assert_eq!(finalizers(), 2);
    env.kcp.put(kyma("one"));
    until(|| finalizers() == 0).await;
}

/// A deleted CustomResourceDefinition deletes its Certificates, and leaves their Secrets.
#[tokio::test(start_paused = true)]
async fn a_kyma_that_is_deleted_without_cert_manager_leaves_no_secret() {
    let env = Env::started();
    let names = ["one-webhook-tls", "two-webhook-tls"];
    for (kyma_name, name) in ["one", "two"].into_iter().zip(names) {
        env.kcp.put(kyma(kyma_name));
        until(|| env.certificate(name).is_some()).await;
        let mut issued = secret(name, "c", "k");
        let template = &env.certificate(name).unwrap()["spec"]["secretTemplate"];
        json_patch::merge(&mut issued["metadata"], template);
        env.server().put(&issued);
    }
    env.server().put(&secret("three-webhook-tls", "c", "k"));
    env.kcp.put(kyma("three"));
    for name in names {
        env.server().remove("certificates", ISTIO_NAMESPACE, name);
    }
    env.kcp.serve(&kinds::CERTIFICATES, false);
    env.kcp.delete("kymas", "one");
    env.kcp.delete("kymas", "three");
    until(|| env.secret("one-webhook-tls").is_none()).await;
    sleep(2 * RESYNC).await;
    assert!(env.secret("two-webhook-tls").is_some());
    assert!(env.secret("three-webhook-tls").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_kyma_that_is_created_again_keeps_its_secret() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    let uid = || {
        env.certificate("one-webhook-tls")
            .map(|it| it["metadata"]["uid"].clone())
    };
    let before = uid();
    env.kcp.delete("kymas", "one");
    until(|| env.is_terminating("one-webhook-tls")).await;
    sleep(Duration::from_secs(10)).await;
    env.kcp.put(kyma("one"));
    until(|| uid().is_some_and(|it| Some(it) != before)).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    sleep(2 * ISSUANCE).await;
    assert!(env.secret("one-webhook-tls").is_some());
}

/// The Kyma is deleted while no replica is the leader. Certificates of other owners, and of Kymas in another
/// namespace, are not deleted.
#[tokio::test(start_paused = true)]
async fn a_certificate_whose_kyma_is_gone_is_deleted_at_the_start() {
    let mut env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.stop().await;
    env.kcp.delete("kymas", "one");
    let mut foreign = env.certificate("one-webhook-tls").unwrap();
    foreign["metadata"] = json!({
        "name": "foreign-webhook-tls", "namespace": ISTIO_NAMESPACE,
        "labels": foreign["metadata"]["labels"],
    });
    env.server().put(&foreign);
    foreign["metadata"]["name"] = json!("elsewhere-webhook-tls");
    foreign["metadata"]["annotations"] =
        json!({"rt-bootstrapper.kyma-project.io/kyma-namespace": "other"});
    env.server().put(&foreign);
    env.start();
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    until(|| env.kcp.count("get certificates") >= 4).await;
    assert!(env.certificate("foreign-webhook-tls").is_some());
    assert!(env.certificate("elsewhere-webhook-tls").is_some());
}

#[tokio::test]
async fn a_kyma_without_a_domain_is_reported_once_and_delays_no_other() {
    let env = Env::started();
    let mut without = kyma("without");
    without["metadata"]["annotations"] = json!({});
    env.kcp.put(without);
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    until(|| env.kcp.events() == ["SKRDomainMissing"]).await;
    until(|| env.count(r#"runtime_certificates{state="SKRDomainMissing"}"#) == 1).await;
    env.kcp.merge(
        "kymas",
        "without",
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    env.kcp.merge(
        "kymas",
        "without",
        &json!({"metadata": {"annotations": {"skr-domain": "w.example"}}}),
    );
    until(|| env.certificate("without-webhook-tls").is_some()).await;
    assert_eq!(env.kcp.events(), ["SKRDomainMissing"]);
}

/// The condition `WatcherInstalled` of the RuntimeBootstrapper contains the reason why there is no certificate.
#[tokio::test(start_paused = true)]
async fn a_runtime_bootstrapper_without_a_kyma_gets_a_certificate_once_it_has_a_domain() {
    let env = Env::started();
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    until(|| env.count(r#"runtime_certificates{state="SKRDomainMissing"}"#) == 1).await;
    assert!(env.certificate("one-webhook-tls").is_none());
    env.kcp.merge(
        "runtimebootstrappers",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "one.example"}}}),
    );
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    // The runtime keeps its certificate when its Kyma is created.
    let before = env.certificate("one-webhook-tls").unwrap();
    env.kcp.put(kyma("one"));
    env.kcp.delete("runtimebootstrappers", "one");
    env.kcp.put(kyma("two"));
    until(|| env.certificate("two-webhook-tls").is_some()).await;
    let after = env.certificate("one-webhook-tls").unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    // The certificate is deleted when the Kyma is deleted and the RuntimeBootstrapper has no domain.
    env.kcp.put(crate::fixture::bootstrapper("one"));
    let status = json!({"status": {"runtimeID": "id-one"}});
    env.kcp.merge("runtimebootstrappers", "one", &status);
    env.kcp.delete("kymas", "one");
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert_eq!(env.kcp.events(), [""; 0]);
}

/// Before the RuntimeBootstrappers are listed, a runtime without a Kyma looks like a deleted runtime.
#[tokio::test(start_paused = true)]
async fn a_restart_deletes_no_certificate_before_all_runtimes_are_known() {
    let mut env = Env::started();
    let mut resource = crate::fixture::bootstrapper("one");
    resource["metadata"]["annotations"] = json!({"skr-domain": "one.example"});
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource.clone());
    let names = ["one", "gone", "two"].map(|it| format!("{it}-webhook-tls"));
    let [kept, deleted, another] = &names;
    resource["metadata"]["name"] = json!("gone");
    resource["status"] = json!({"runtimeID": "id-gone"});
    env.kcp.put(resource);
    until(|| env.certificate(kept).is_some() && env.certificate(deleted).is_some()).await;
    let uid = env.certificate(kept).unwrap()["metadata"]["uid"].clone();
    env.stop().await;
    env.kcp.delete("runtimebootstrappers", "gone");
    let lists = env.kcp.fault("list|watch runtimebootstrappers").status(403);
    env.kcp.put(kyma("two"));
    env.start();
    until(|| env.certificate(another).is_some()).await;
    until(|| env.certificate(deleted).is_none()).await;
    assert_eq!(env.certificate(kept).unwrap()["metadata"]["uid"], uid);
    lists.stop();
    until(|| env.count(r#"runtime_certificates{state="Pending"}"#) == 2).await;
    assert_eq!(env.certificate(kept).unwrap()["metadata"]["uid"], uid);
}

/// The common name of a certificate identifies the runtime, not its domain.
#[tokio::test(start_paused = true)]
async fn two_kymas_with_one_domain_have_a_certificate_each() {
    let env = Env::started();
    for name in ["one", "two"] {
        let mut kyma = kyma(name);
        kyma["metadata"]["annotations"]["skr-domain"] = json!("shared.example");
        env.kcp.put(kyma);
    }
    for name in ["one", "two"] {
        let certificate = format!("{name}-webhook-tls");
        until(|| env.certificate(&certificate).is_some()).await;
        let spec = &env.certificate(&certificate).unwrap()["spec"];
        assert_eq!(spec["commonName"], format!("id-{name}"));
        assert_eq!(spec["dnsNames"][0], "shared.example");
    }
    env.kcp.delete("kymas", "one");
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert!(env.certificate("two-webhook-tls").is_some());
    assert_eq!(env.kcp.events(), [""; 0]);
}

/// An existing certificate stays when the domain is removed, because watchers still send events.
#[tokio::test]
async fn a_removed_domain_deletes_nothing() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": null}}}),
    );
    until(|| env.kcp.events() == ["SKRDomainMissing"]).await;
    assert!(env.certificate("one-webhook-tls").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_cert_manager_certificates_wait() {
    let mut env = Env::new();
    env.kcp.serve(&kinds::CERTIFICATES, false);
    env.kcp.put(kyma("one"));
    env.start();
    let state = r#"runtime_certificates{state="CertManagerAPINotServed"}"#;
    until(|| env.count(state) == 1).await;
    // Thousands of Kymas wait. The least delays are 15, 30, 60, 120 and 240 seconds.
    let start = Instant::now();
    // The API is not served, so the server does not know the resource of the request.
    let requests = || {
        let all = env.kcp.requests();
        let paths = all.iter().map(|it| &it.uri);
        paths
            .filter(|it| it.contains("/certificates/one-webhook-tls"))
            .count()
    };
    let limit = Duration::from_hours(1);
    let repeated = testkit::until::until("six requests", limit, async || requests() >= 6);
    repeated.await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(465));
    env.kcp.serve(&kinds::CERTIFICATES, true);
    let is_issued = async || env.certificate("one-webhook-tls").is_some();
    let issued = testkit::until::until("issued", limit, is_issued);
    issued.await.unwrap();
    until(|| env.count(state) == 0).await;
}
