//! Tests of the assignment of clusters to Kymas and RuntimeBootstrappers.

use rstest::rstest;

use super::*;

/// Returns an environment in which a second Kyma has the runtime ID of the first one, which has the watcher.
async fn with_another_kyma() -> (Env, RuntimeCluster) {
    let (env, cluster) = Env::installed().await;
    env.issue_for("two", "id-one", &env.authority);
    env.kcp.put(kyma("two", "id-one"));
    env.until("it is reported", |env| {
        env.runtimes("RuntimeIDConflict") == 1
    })
    .await;
    (env, cluster)
}

#[tokio::test]
async fn of_two_kymas_with_one_runtime_the_first_one_has_it() {
    let (env, cluster) = with_another_kyma().await;
    env.until("it is reported", |env| {
        env.kcp.events_of("RuntimeIDConflict") == 1
    })
    .await;
    env.kcp.remove("kymas", NAMESPACE, "two");
    env.until("it is forgotten", |env| {
        env.runtimes("RuntimeIDConflict") == 0
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
}

/// For example, a Kyma is created for the runtime of a RuntimeBootstrapper of another name.
#[tokio::test]
async fn a_runtime_that_passes_to_another_kyma_keeps_its_watcher() {
    let (env, cluster) = with_another_kyma().await;
    cluster.take();
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("the other has it", |env| {
        env.runtimes("Installed") == 1 && env.runtimes("RuntimeIDConflict") == 0
    })
    .await;
    stays(|| entries(&cluster) == [entry("klm")]).await;
    assert_eq!(deletions(&cluster), [""; 0]);
}

/// The removal for the earlier Kyma does not remove the watcher of the new Kyma.
#[tokio::test]
async fn a_kyma_that_is_created_again_has_its_watcher() {
    let (env, cluster) = Env::installed().await;
    let outage = cluster.outage(500);
    cluster.take();
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("the removal has begun", |_| {
        !cluster.requests_of("get namespaces").is_empty()
    })
    .await;
    env.kcp.put(kyma("one", "id-one"));
    outage.stop();
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("it is installed", |env| {
        entries(&cluster) == both && env.runtimes("Installed") == 1
    })
    .await;
    stays(|| entries(&cluster) == both).await;
}

#[tokio::test]
async fn the_runtime_of_a_relabelled_kyma_is_that_of_another() {
    let (env, cluster) = with_another_kyma().await;
    env.kcp
        .merge("kymas", "one", &json!({"metadata": {"labels": null}}));
    env.until("the other has it", |env| {
        env.runtimes("RuntimeIDMissing") == 1 && env.runtimes("Installed") == 1
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
}

/// Until cert-manager has issued another one, the Secret has the key of the earlier runtime.
#[tokio::test]
async fn the_key_of_another_runtime_is_not_installed_after_a_change_of_the_runtime_id() {
    let (env, _cluster) = Env::installed().await;
    let other = RuntimeCluster::new("uid-two").await;
    env.connect("id-two", &other);
    let label = json!({"metadata": {"labels": {"kyma-project.io/runtime-id": "id-two"}}});
    env.kcp.merge("kymas", "one", &label);
    env.until("it waits for its certificate", |env| {
        env.runtimes("CertificatePending") == 1
    })
    .await;
    assert_eq!(other.find(SECRET), None);
    env.issue_for("one", "id-two", &env.authority);
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
    assert!(other.find(SECRET).is_some());
}

/// The kubeconfig leads to another cluster than before, or to one that was rebuilt.
#[rstest]
#[case::another(None, "ClusterUIDChanged")]
#[case::accepted(Some("uid-one"), "Installed")]
#[tokio::test]
async fn a_cluster_with_another_uid_is_to_be_accepted(
    #[case] accepted: Option<&str>,
    #[case] reason: &str,
) {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one", "clusterUID": "earlier"});
    env.kcp.put(resource);
    let annotation = json!({"rt-bootstrapper.kyma-project.io/accept-cluster-uid": accepted});
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": annotation}}),
    );
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it is decided", |env| env.runtimes(reason) == 1)
        .await;
    assert_eq!(cluster.take().is_empty(), accepted.is_none());
}

/// The removal is carried out.
#[tokio::test]
async fn nothing_is_written_to_a_paused_runtime_but_a_removal() {
    let (mut env, cluster) = Env::installed().await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["spec"]["paused"] = json!(true);
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    env.stop().await;
    cluster.take();
    env.kcp.put(watcher("telemetry"));
    env.start();
    env.until("it is paused", |env| env.runtimes("Paused") == 1)
        .await;
    assert_eq!(cluster.take(), [""; 0]);
    assert_eq!(entries(&cluster), [entry("klm")]);
    let paused = |it: bool| json!({"spec": {"paused": it}});
    let resources = "runtimebootstrappers";
    env.kcp.merge(resources, "one", &paused(false));
    let both = [entry("klm"), entry("telemetry")];
    env.until("the new Watcher follows", |_| entries(&cluster) == both)
        .await;
    env.kcp.merge(resources, "one", &paused(true));
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.kcp.remove("runtimebootstrappers", NAMESPACE, "one");
    env.until("it is removed", |_| cluster.find(WEBHOOKS).is_none())
        .await;
}

#[tokio::test]
async fn a_runtime_without_a_kyma_is_that_of_its_runtime_bootstrapper() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    let reason = |env: &Env| {
        let resource = env.kcp.object("runtimebootstrappers", "one").unwrap();
        let conditions = resource["status"]["conditions"].as_array();
        let own = |it: &&Value| it["type"] == "WatcherInstalled";
        conditions.and_then(|it| Some(it.iter().find(own)?["reason"].clone()))
    };
    env.until("it is installed", |_| cluster.find(WEBHOOKS).is_some())
        .await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("it says that the domain is missing", |env| {
        reason(env) == Some(json!("SKRDomainMissing"))
    })
    .await;
    assert!(cluster.find(WEBHOOKS).is_none() && cluster.find(SECRET).is_none());
    let domain = json!({"metadata": {"annotations": {"skr-domain": "one.kyma.example"}}});
    env.kcp.merge("runtimebootstrappers", "one", &domain);
    env.until("it is installed again", |_| {
        cluster.find(WEBHOOKS).is_some()
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
    env.kcp.remove("watchers", NAMESPACE, "klm");
    let no_domain = json!({"metadata": {"annotations": {"skr-domain": null}}});
    env.kcp.merge("runtimebootstrappers", "one", &no_domain);
    env.until("it is removed", |env| {
        cluster.find(WEBHOOKS).is_none() && reason(env).is_none()
    })
    .await;
    env.kcp.merge("runtimebootstrappers", "one", &domain);
    env.kcp.put(watcher("klm"));
    env.until("it is installed again", |_| {
        cluster.find(WEBHOOKS).is_some()
    })
    .await;
    env.kcp.remove("runtimebootstrappers", NAMESPACE, "one");
    env.until("it is removed", |_| cluster.find(WEBHOOKS).is_none())
        .await;
}
