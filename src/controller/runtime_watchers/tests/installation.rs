//! Tests of installing the watcher on a runtime, updating it after changes of Watchers, and removing it.

use rstest::rstest;

use super::*;

/// The plan has its own tests for migrations. This test verifies that the managed fields are read.
#[tokio::test]
async fn fields_of_the_lifecycle_manager_are_taken_over_and_removed() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    cluster.change(DEPLOYMENT, |live| {
        live["metadata"]["labels"]["public"] = json!("1");
        let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
        entries.push(json!({
            "manager": "lifecycle-manager", "operation": "Apply", "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:public": {}}}},
        }));
    });
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    env.kcp.merge("kymas", "one", &label);
    env.until("the label is removed", |_| {
        let live = cluster.find(DEPLOYMENT).unwrap();
        live["metadata"]["labels"].get("public").is_none()
    })
    .await;
    assert_eq!(
        cluster.take(),
        [format!("patch {DEPLOYMENT}"), format!("apply {DEPLOYMENT}")]
    );
}

/// The watcher sends heartbeats to the new manager before the first event. The Pods of the watcher stay.
#[tokio::test]
async fn the_watcher_gets_the_manager_of_another_watcher_without_a_rollout() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    env.kcp.put(watcher("a"));
    let managers = || cluster.find(SECRET).unwrap()["data"]["managers"].clone();
    let expected = STANDARD.encode("a-manager\nklm-manager\n");
    env.until("its manager is in the Secret", |_| managers() == expected)
        .await;
    assert_eq!(
        cluster.take(),
        [
            "apply configmaps kyma-system/rt-bootstrapper-owner".to_owned(),
            format!("apply {WEBHOOKS}"),
            format!("apply {SECRET}"),
        ]
    );
    env.kcp.delete("watchers", "a");
    let expected = STANDARD.encode("klm-manager\n");
    env.until("it is gone", |_| managers() == expected).await;
}

#[tokio::test]
async fn the_runtime_of_a_kyma_gets_the_watcher_once() {
    let (mut env, cluster) = Env::installed().await;
    assert_eq!(
        cluster.take(),
        [
            "create configmaps kyma-system/rt-bootstrapper-owner",
            "apply priorityclasses skr-webhook-priority",
            "apply serviceaccounts kyma-system/skr-webhook",
            "apply secrets kyma-system/skr-webhook-tls",
            "apply deployments kyma-system/skr-webhook",
            "apply configmaps kyma-system/rt-bootstrapper-owner",
            "apply validatingwebhookconfigurations skr-webhook",
        ]
    );
    assert_eq!(entries(&cluster), [entry("klm")]);
    let webhooks = cluster.find(WEBHOOKS).unwrap();
    let bundle = webhooks["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(bundle, STANDARD.encode(env.authority.pem()));
    let secret = cluster.find(SECRET).unwrap();
    let issued = env
        .kcp
        .get("secrets", ISTIO_NAMESPACE, "one-webhook-tls")
        .unwrap();
    assert_eq!(secret["data"]["ca.crt"], bundle);
    for key in ["tls.crt", "tls.key"] {
        assert_eq!(secret["data"][key], issued["data"][key]);
    }
    assert_eq!(secret["data"]["managers"], STANDARD.encode("klm-manager\n"));
    let env_of = "/spec/template/spec/containers/0/env/0/value";
    assert_eq!(
        cluster.find(DEPLOYMENT).unwrap().pointer(env_of).unwrap(),
        "kcp.example"
    );
    env.until("it is counted", |env| {
        env.condition("klm") == "True 1 of 1 runtimes"
    })
    .await;
    // For the next leader no object differs.
    env.stop().await;
    assert_eq!(env.runtimes("Installed"), 0);
    drop(env.kcp.take_requests());
    env.start();
    env.until("it is read again", |env| env.runtimes("Installed") == 1)
        .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.kcp.put(watcher("later"));
    let counted = "True 1 of 1 runtimes";
    env.until("statuses are written", |env| {
        env.condition("later") == counted
    })
    .await;
    let writes = env.kcp.requests_of("patch watchers/status");
    assert!(writes.iter().all(|it| it.asked.name == "later"));
    assert_eq!(env.kcp.events(), [""; 0]);
}

/// Both Watchers have a webhook, which posts to the same URL. The manager gets one heartbeat.
#[tokio::test]
async fn two_equal_watchers_have_a_webhook_each_and_one_manager() {
    let (env, cluster) = Env::installed().await;
    let mut second = watcher("second");
    second["spec"]["manager"] = json!("klm-manager");
    env.kcp.put(second);
    env.until("both are counted", |env| {
        ["klm", "second"].map(|it| env.condition(it)) == ["True 1 of 1 runtimes"; 2]
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm"), entry("second")]);
    let webhooks = cluster.find(WEBHOOKS).unwrap()["webhooks"].clone();
    for key in ["rules", "clientConfig", "objectSelector"] {
        assert_eq!(webhooks[0][key], webhooks[1][key], "{key}");
    }
    let managers = cluster.find(SECRET).unwrap()["data"]["managers"].clone();
    assert_eq!(managers, STANDARD.encode("klm-manager\n"));
}

#[tokio::test]
async fn a_change_of_a_watcher_is_applied_to_all_runtimes_at_once() {
    let (env, one) = Env::installed().await;
    let two = env.runtime("two").await;
    env.until("the second is installed", |env| {
        env.runtimes("Installed") == 2
    })
    .await;
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("both have it", |_| {
        entries(&one) == both && entries(&two) == both
    })
    .await;
    env.until("it is counted", |env| {
        env.condition("telemetry") == "True 2 of 2 runtimes"
    })
    .await;
    env.kcp.remove("watchers", NAMESPACE, "klm");
    let rest = [entry("telemetry")];
    env.until("both lose it", |_| {
        entries(&one) == rest && entries(&two) == rest
    })
    .await;
    for cluster in [&one, &two] {
        assert!(cluster.find(DEPLOYMENT).is_some());
    }
}

#[tokio::test]
async fn the_webhook_of_a_watcher_follows_its_field_and_its_resource() {
    let (env, cluster) = Env::installed().await;
    let rule = || cluster.find(WEBHOOKS).unwrap()["webhooks"][0]["rules"][0].clone();
    let is_of = |group: &str, resource: &str| {
        let rule = rule();
        rule["apiGroups"] == json!([group]) && rule["resources"] == json!([resource])
    };
    let kymas = "operator.kyma-project.io";
    assert!(is_of(kymas, "kymas"));
    cluster.take();
    let deployments = json!({"group": "apps", "version": "v1", "resource": "deployments"});
    for (change, group, resource) in [
        (json!({"field": "status"}), kymas, "kymas/status"),
        (
            json!({"resourceToWatch": deployments}),
            "apps",
            "deployments/status",
        ),
        (json!({"field": "spec"}), "apps", "deployments"),
        (
            json!({"resourceToWatch": {"resource": "deployments/scale"}}),
            "apps",
            "deployments/scale",
        ),
    ] {
        env.kcp.merge("watchers", "klm", &json!({"spec": change}));
        env.until(resource, |_| is_of(group, resource)).await;
        assert_eq!(entries(&cluster), [entry("klm")]);
    }
    env.until("it is counted", |env| {
        env.condition("klm") == "True 1 of 1 runtimes"
    })
    .await;
    let writes = cluster.take();
    assert!(
        !writes.contains(&format!("apply {DEPLOYMENT}")),
        "{writes:?}"
    );
}

#[tokio::test]
async fn the_last_watcher_takes_everything_with_it() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
    let writes = cluster.take();
    assert_eq!(
        writes[..2],
        [format!("delete {WEBHOOKS}"), format!("delete {DEPLOYMENT}")]
    );
    env.until("it is no runtime with a watcher", |env| {
        env.runtimes("Installed") == 0
    })
    .await;
    env.kcp.put(watcher("klm"));
    env.until("it comes back", |_| entries(&cluster) == [entry("klm")])
        .await;
}

#[tokio::test]
async fn the_watcher_stays_for_a_while_after_the_last_watcher() {
    let mut env = Env::new();
    env.removal_delay = Duration::from_secs(2);
    let cluster = env.install().await;
    cluster.take();
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.kcp.put(watcher("other"));
    env.until("the other one is installed", |_| {
        entries(&cluster) == [entry("other")]
    })
    .await;
    assert_eq!(deletions(&cluster), [""; 0]);

    let began = Instant::now();
    env.kcp.remove("watchers", NAMESPACE, "other");
    env.until("it is removed", |_| cluster.find(WEBHOOKS).is_none())
        .await;
    assert!(began.elapsed() >= env.removal_delay);
}

/// A list without a Watcher, as the next leader reads it after a restore of KCP from an old backup.
#[tokio::test]
async fn the_first_list_without_a_watcher_removes_nothing_at_once() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    env.kcp.remove("watchers", NAMESPACE, "klm");
    cluster.take();
    env.removal_delay = Duration::from_secs(2);
    let began = Instant::now();
    env.start();
    env.until("it is removed", |_| cluster.find(WEBHOOKS).is_none())
        .await;
    assert!(began.elapsed() >= env.removal_delay);
}

/// The Kyma is being deleted, or is deleted immediately.
#[rstest]
#[case::with_finalizer(true)]
#[case::gone(false)]
#[tokio::test]
async fn the_watcher_goes_with_the_kyma(#[case] has_finalizer: bool) {
    let (env, cluster) = Env::installed().await;
    if has_finalizer {
        env.kcp.delete("kymas", "one");
    } else {
        env.kcp.remove("kymas", NAMESPACE, "one");
    }
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}

#[rstest]
#[case::webhooks(WEBHOOKS)]
#[case::secret(SECRET)]
#[tokio::test]
async fn what_a_customer_deletes_comes_back_with_the_next_reconcile(#[case] object: &str) {
    let (env, cluster) = Env::installed().await;
    cluster.drop_object(object);
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "other.example"}}}),
    );
    env.until("it is back", |_| cluster.find(object).is_some())
        .await;
}

/// The list of RuntimeBootstrappers of a new leader is not complete yet.
#[tokio::test]
async fn a_watcher_stays_for_the_runtime_bootstrapper_of_a_deleted_kyma() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    resource["metadata"]["annotations"] = json!({"skr-domain": "one.kyma.example"});
    env.kcp.put(resource);
    let before = cluster.inventory();
    let list = env.kcp.fault("list runtimebootstrappers").hold();
    env.start();
    env.until("the Kyma is reconciled", |env| {
        env.runtimes("Installed") == 1
    })
    .await;
    cluster.take();
    let get = "get runtimebootstrappers kcp-system/one";
    let asked = env.kcp.requests_of(get).len();
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("KCP is asked for it", |env| {
        env.kcp.requests_of(get).len() > asked
    })
    .await;
    let watch = "watch runtimebootstrappers";
    let watches = env.kcp.requests_of(watch).len();
    drop(list);
    env.until("the list is complete", |env| {
        env.kcp.requests_of(watch).len() > watches
    })
    .await;
    stays(|| cluster.inventory() == before).await;
    let writes = cluster.take();
    assert_eq!(writes, [""; 0]);
}

/// A new leader does not know yet whether there are Watchers.
#[tokio::test]
async fn a_watcher_is_removed_with_its_kyma_before_the_watchers_are_listed() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    let _list = env.kcp.fault("list watchers").hold();
    // Its reconcile needs no goal, and shows that of the other Kyma, which ends earlier.
    let mut deleted = kyma("deleted", "id-deleted");
    deleted["metadata"]["finalizers"] = json!(["test/finalizer"]);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    env.kcp.put(deleted);
    env.start();
    env.until("the Kymas are reconciled", |env| {
        env.runtimes("Removed") == 1
    })
    .await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}

/// A new leader knows neither the gateway nor what an earlier one has installed.
#[tokio::test]
async fn a_watcher_is_removed_with_its_kyma_while_the_gateway_is_unknown() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    env.set_gateway(Err(GATEWAY_CERTIFICATE_PENDING));
    env.start();
    env.until("it waits", |env| {
        env.runtimes("GatewayCertificatePending") == 1
    })
    .await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}
