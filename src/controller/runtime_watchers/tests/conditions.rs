//! Tests of the conditions of Watchers and RuntimeBootstrappers, and of failures, which do not delay other runtimes.

use rstest::rstest;

use super::*;

#[tokio::test]
async fn one_runtime_that_does_not_answer_delays_no_other() {
    let (env, one) = Env::installed().await;
    let refused = one.outage(500);
    let two = env.runtime("two").await;
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("the other has it", |_| entries(&two) == both)
        .await;
    env.until("the first is reported", |env| {
        env.runtimes("APIServerError") == 1
    })
    .await;
    let counted = "False 1 of 2 runtimes; 1 APIServerError";
    env.until("it is counted", |env| env.condition("klm") == counted)
        .await;
    refused.stop();
    env.until("it is repaired", |_| entries(&one) == both).await;
    assert_eq!(env.kcp.events_of("APIServerError"), 1);
}

/// The controller writes to none of these runtimes, and counts each of them by its reason.
#[rstest]
#[case::another_runtime(|it: &Env, cluster: &RuntimeCluster| {
    cluster.put(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-owner", "namespace": "kyma-system"},
        "data": {"runtimeID": "id-other", "controlPlaneID": "x"}}));
    it.kcp.put(watcher("klm"));
}, "OwnershipConflict")]
#[case::namespace(|it: &Env, cluster: &RuntimeCluster| {
    cluster.remove("namespaces", "", "kyma-system");
    it.kcp.put(watcher("klm"));
}, "NamespaceNotFound")]
#[case::no_kubeconfig(|it: &Env, _: &RuntimeCluster| {
    it.kcp.remove("secrets", NAMESPACE, "kubeconfig-id-one");
    it.kcp.put(watcher("klm"));
}, "KubeconfigNotFound")]
#[case::no_certificate(|it: &Env, _: &RuntimeCluster| {
    it.kcp.remove("secrets", ISTIO_NAMESPACE, "one-webhook-tls");
    it.kcp.put(watcher("klm"));
}, "CertificatePending")]
#[case::garbage(|it: &Env, _: &RuntimeCluster| {
    it.kcp.edit("secrets", (ISTIO_NAMESPACE, "one-webhook-tls"), |secret| {
        secret["data"]["tls.crt"] = json!(STANDARD.encode("garbage"));
    });
    it.kcp.put(watcher("klm"));
}, "InvalidCertificate")]
#[case::no_runtime_id(|it: &Env, _: &RuntimeCluster| {
    it.kcp.merge("kymas", "one", &json!({"metadata": {"labels": null}}));
    it.kcp.put(watcher("klm"));
}, "RuntimeIDMissing")]
#[case::no_watcher(|_: &Env, _: &RuntimeCluster| {}, "Removed")]
#[tokio::test]
async fn nothing_is_written(#[case] prepare: fn(&Env, &RuntimeCluster), #[case] reason: &str) {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    prepare(&env, &cluster);
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it is counted", |env| env.runtimes(reason) == 1)
        .await;
    assert_eq!(cluster.take(), [""; 0]);
}

/// The state of the gateway allows no installation yet.
#[rstest]
#[case::without_cert_manager(
    |_: &Env| Err(CERT_MANAGER_API_NOT_SERVED),
    CERT_MANAGER_API_NOT_SERVED,
)]
#[case::without_an_address(
    |env: &Env| Ok(IssuedGateway::of(env.authority.pem(), None)),
    "GatewayAddressUnknown",
)]
#[tokio::test]
async fn a_gateway_that_cannot_be_used_is_reported_and_changes_no_runtime(
    #[case] gateway: fn(&Env) -> GatewayStatus,
    #[case] reason: &str,
) {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    env.kcp.put(watcher("klm"));
    env.set_gateway(gateway(&env));
    env.start();
    env.until("it is reported", |env| {
        env.condition("klm") == format!("False 0 of 1 runtimes; 1 {reason}")
    })
    .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.issue_gateway(&[&env.authority]);
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}

#[tokio::test]
async fn an_invalid_watcher_says_so_and_keeps_no_other_from_runtimes() {
    let (env, cluster) = Env::installed().await;
    let mut invalid = watcher("invalid");
    invalid["spec"]["labelsToWatch"] = json!({"a b": "c"});
    env.kcp.put(invalid);
    env.until("it is reported", |env| {
        env.condition("invalid").starts_with("False no runtime")
    })
    .await;
    env.kcp.put(watcher("telemetry"));
    let valid = [entry("klm"), entry("telemetry")];
    env.until("the valid ones are there", |_| entries(&cluster) == valid)
        .await;
}

/// A later version of the CustomResourceDefinition stored the Watcher, and this version cannot read it.
#[tokio::test]
async fn the_webhook_of_an_unreadable_watcher_stays() {
    let (env, cluster) = Env::installed().await;
    env.kcp
        .merge("watchers", "klm", &json!({"spec": {"field": "metadata"}}));
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("both are there", |_| entries(&cluster) == both)
        .await;
}

/// KCP does not return the kubeconfig: the runtime is not counted as installed.
#[tokio::test]
async fn a_failure_of_kcp_is_counted() {
    let mut env = Env::new();
    let _cluster = env.runtime("one").await;
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    let forbidden = env.kcp.fault("get secrets").status(403);
    env.start();
    env.until("it is counted", |env| env.runtimes("RequestFailed") == 1)
        .await;
    forbidden.stop();
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}

/// A runtime that does not respond has only the webhooks of earlier Watchers.
#[tokio::test]
async fn a_runtime_counts_when_it_has_the_webhooks_of_all_watchers() {
    let (env, cluster) = Env::installed().await;
    env.until("it is counted", |env| {
        env.condition("klm") == "True 1 of 1 runtimes"
    })
    .await;
    let silence = cluster.fault("get namespaces").silence();
    env.kcp.put(watcher("telemetry"));
    env.until("it is reported", |env| {
        !env.condition("telemetry").is_empty()
    })
    .await;
    let counted = "False 0 of 1 runtimes; 1 Installing";
    assert_eq!(env.condition("telemetry"), counted);
    silence.stop();
}

/// The controller `direct` owns the other conditions.
#[tokio::test]
async fn the_runtime_bootstrapper_has_a_condition_while_there_is_a_watcher() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let installed = json!({"type": "Installed", "status": "True", "reason": "Installed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (name, id) in [("one", "id-one"), ("other", "id-other")] {
        let mut resource = crate::fixture::bootstrapper(name);
        resource["status"] = json!({"runtimeID": id, "conditions": [installed]});
        env.kcp.put(resource);
    }
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    cluster.stop_rollouts();
    env.start();
    let conditions = |env: &Env, name: &str| -> Vec<String> {
        let resource = env.kcp.object("runtimebootstrappers", name).unwrap();
        let all = resource["status"]["conditions"].as_array().unwrap().iter();
        all.map(|it| {
            let [kind, status, reason] =
                ["type", "status", "reason"].map(|key| it[key].as_str().unwrap());
            format!("{kind} {status} {reason}")
        })
        .collect()
    };
    let ours = "Installed True Installed";
    env.until("it is being installed", |env| {
        conditions(env, "one") == [ours, "WatcherInstalled False Installing"]
    })
    .await;
    cluster.roll_out();
    env.until("it is installed", |env| {
        conditions(env, "one") == [ours, "WatcherInstalled True Installed"]
    })
    .await;
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |env| conditions(env, "one") == [ours])
        .await;
    assert_eq!(conditions(&env, "other"), [ours]);
}

/// Neither the next leader nor a resync writes an object that does not differ.
#[tokio::test]
async fn a_restart_and_a_resync_write_nothing() {
    let mut env = Env::new();
    env.has_certificates = true;
    env.resync = Duration::from_secs(1);
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    let cluster = env.install().await;
    env.until("statuses are written", |env| {
        let resource = env.kcp.object("runtimebootstrappers", "one").unwrap();
        let condition = &resource["status"]["conditions"][0];
        let certificate = env
            .kcp
            .get("certificates", ISTIO_NAMESPACE, "one-webhook-tls");
        condition["type"] == "WatcherInstalled"
            && condition["status"] == "True"
            && env.condition("klm") == "True 1 of 1 runtimes"
            && certificate.is_some_and(|it| it["spec"]["commonName"] == "id-one")
    })
    .await;
    env.stop().await;
    drop((env.kcp.take_requests(), cluster.take_requests()));
    env.start();
    // Each reconcile reads it once, and ends before the next one of the runtime begins.
    let reads = || cluster.requests_of("get namespaces kube-system").len();
    env.until("it is reconciled three times", |_| reads() > 3)
        .await;
    assert_eq!(env.kcp.writes(), [""; 0]);
    assert_eq!(cluster.take(), [""; 0]);
}

/// KEB may create the RuntimeBootstrapper later, and the controller `direct` writes its runtime ID after that.
#[tokio::test]
async fn a_runtime_bootstrapper_that_appears_later_gets_its_condition_without_a_reconcile() {
    let (env, cluster) = Env::installed().await;
    let before = cluster.requests().len();
    let has_condition = |env: &Env| {
        let resource = env.kcp.object("runtimebootstrappers", "one").unwrap();
        let conditions = resource["status"]["conditions"].as_array();
        let own = |it: &Value| it["type"] == "WatcherInstalled" && it["status"] == "True";
        conditions.is_some_and(|it| it.iter().any(own))
    };
    env.kcp.put(crate::fixture::bootstrapper("one"));
    for status in [
        json!({"runtimeID": "id-one"}),
        json!({"conditions": [], "clusterUID": "uid-one"}),
    ] {
        env.kcp
            .edit("runtimebootstrappers", (NAMESPACE, "one"), |it| {
                for (key, value) in status.as_object().unwrap() {
                    it["status"][key] = value.clone();
                }
            });
        env.until("it has the condition", has_condition).await;
    }
    assert_eq!(cluster.requests().len(), before);
}

/// Other controllers write the status of a Kyma frequently.
#[tokio::test]
async fn the_status_of_a_kyma_starts_no_reconcile() {
    let (env, one) = Env::installed().await;
    let before = one.requests().len();
    env.kcp
        .merge("kymas", "one", &json!({"status": {"state": "Processing"}}));
    let two = env.runtime("two").await;
    env.until("the change after it is reconciled", |_| {
        two.find(WEBHOOKS).is_some()
    })
    .await;
    assert_eq!(one.requests().len(), before);
}

/// For example, a validation policy of KCP rejects each write of one status. After a conflict, the other change is observed soon.
#[rstest]
#[case::rejected(422, 3..12, true)]
#[case::conflict(409, 40..70, false)]
#[tokio::test(start_paused = true)]
async fn a_status_that_is_rejected_is_written_again_after_a_backoff_and_delays_no_other(
    #[case] code: u16,
    #[case] expected: std::ops::Range<usize>,
    #[case] is_logged: bool,
) {
    let logs = testkit::logs::Logs::of(tracing::Level::WARN);
    let mut env = Env::new();
    for name in ["klm", "telemetry"] {
        env.kcp.put(watcher(name));
    }
    let writes = "patch watchers/status kcp-system/klm";
    let _rejection = env.kcp.fault(writes).status(code);
    env.start();
    env.until("the other is written", |env| {
        !env.condition("telemetry").is_empty()
    })
    .await;
    let span = Duration::from_mins(2);
    let empty = testkit::until::holds("it is rejected", span, || async {
        env.condition("klm").is_empty()
    });
    empty.await.unwrap();
    let attempts = env.kcp.requests_of(writes).len();
    assert!(expected.contains(&attempts), "{attempts}");
    let mut lines = logs.lines().into_iter();
    assert_eq!(lines.any(|it| it.contains("status of Watcher")), is_logged);
}
