//! Tests of runtimes that are reconciled again without a change on KCP, or because of the own writes.

use rstest::rstest;

use super::*;

/// Returns a runtime with the watcher that is reconciled about once a second.
async fn resynced() -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    env.resync = Duration::from_secs(1);
    let cluster = env.install().await;
    (env, cluster)
}

/// Neither the watcher nor KCP reports what a customer does to these objects.
#[rstest]
#[case::webhooks_deleted(WEBHOOKS, None)]
#[case::secret_deleted(SECRET, None)]
#[case::deployment_deleted(DEPLOYMENT, None)]
#[case::webhooks_changed(WEBHOOKS, Some(("/webhooks/0/failurePolicy", "Fail")))]
#[case::secret_changed(SECRET, Some(("/data/tls.crt", "Z2FyYmFnZQ==")))]
#[tokio::test]
async fn what_a_customer_changes_is_repaired_at_the_resync(
    #[case] object: &str,
    #[case] change: Option<(&str, &str)>,
) {
    let (env, cluster) = resynced().await;
    let pointer = change.map_or("/metadata/name", |(pointer, _)| pointer);
    let value = || Some(cluster.find(object)?.pointer(pointer)?.clone());
    let desired = value().unwrap();
    match change {
        None => cluster.drop_object(object),
        Some((_, other)) => cluster.change(object, |it| {
            *it.pointer_mut(pointer).unwrap() = json!(other);
        }),
    }
    env.until("it is repaired", |_| value().as_ref() == Some(&desired))
        .await;
}

/// The webhook configuration is there again at once, but changes had no review.
#[tokio::test]
async fn a_webhook_configuration_that_a_customer_deletes_is_reported() {
    let (env, cluster) = resynced().await;
    env.kcp.put(watcher("other"));
    env.until("the Watcher is applied", |_| entries(&cluster).len() == 2)
        .await;
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
    assert_eq!(env.kcp.events_of("ReviewMissing"), 0);
    cluster.drop_object(WEBHOOKS);
    env.until("it is reported", |env| env.runtimes("ReviewMissing") == 1)
        .await;
    assert_eq!(entries(&cluster).len(), 2);
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
    assert_eq!(env.kcp.events_of("ReviewMissing"), 1);
    // A client that deletes it again and again.
    let is_reported = || {
        if cluster.find(WEBHOOKS).is_some() {
            cluster.drop_object(WEBHOOKS);
        }
        env.runtimes("ReviewMissing") == 1
    };
    env.until("it is reported", |_| is_reported()).await;
    stays(is_reported).await;
}

/// Returns a runtime with the watcher that nothing but a Watcher reconciles.
async fn settled() -> (Env, RuntimeCluster) {
    let (env, cluster) = Env::installed().await;
    env.kcp.put(watcher("second"));
    env.until("it is installed", |env| {
        env.condition("second") == "True 1 of 1 runtimes"
    })
    .await;
    (env, cluster)
}

/// Thousands of runtimes get a changed Watcher, which concerns two objects of each.
#[tokio::test]
async fn a_changed_watcher_does_not_read_the_manifests() {
    let (env, cluster) = settled().await;
    cluster.take();
    let read = cluster.count("get deployments");
    env.kcp.put(watcher("third"));
    env.until("it is installed", |env| {
        env.condition("third") == "True 1 of 1 runtimes"
    })
    .await;
    assert_eq!(entries(&cluster).len(), 3);
    assert_eq!(cluster.count("get deployments"), read);
    // A changed Kyma may be on another cluster.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    env.kcp.merge("kymas", "one", &labels);
    env.until("the manifests are read", |_| {
        cluster.count("get deployments") > read
    })
    .await;
}

/// The API server would send reviews to Pods that do not exist.
#[rstest]
#[case::webhooks(WEBHOOKS)]
#[case::secret(SECRET)]
#[case::marker("configmaps kyma-system/rt-bootstrapper-owner")]
#[tokio::test]
async fn a_changed_watcher_reinstalls_what_a_customer_deleted(#[case] deleted: &str) {
    let (env, cluster) = settled().await;
    cluster.drop_object(DEPLOYMENT);
    cluster.drop_object(deleted);
    env.kcp.put(watcher("third"));
    env.until("it is reinstalled", |_| {
        cluster.find(DEPLOYMENT).is_some() && entries(&cluster).len() == 3
    })
    .await;
    assert!(cluster.find(deleted).is_some());
}

#[tokio::test]
async fn a_resync_without_a_difference_writes_nothing() {
    let (env, cluster) = resynced().await;
    cluster.take();
    env.until("it is reconciled again", |_| {
        cluster.count("get deployments") >= 3
    })
    .await;
    assert_eq!(cluster.take(), [""; 0]);
}

/// The objects of the watcher are among those of the Watcher. Here its manager changes the Kyma at each event, which starts a
/// reconcile.
#[rstest]
#[case::secrets("secrets")]
#[case::pods("pods")]
#[tokio::test]
async fn a_watcher_of_all_secrets_or_pods_gets_its_webhook_and_causes_no_loop(
    #[case] resource: &str,
) {
    let (env, cluster) = Env::installed().await;
    let kcp = env.kcp.clone();
    let events = cluster.fault("apply|create|patch|update|delete");
    let events = events.before(move |_| {
        let label = json!({"metadata": {"labels": {"event": fastrand::u64(..).to_string()}}});
        kcp.merge("kymas", "one", &label);
    });
    cluster.take();
    let mut all = watcher("all");
    all["spec"]["resourceToWatch"] = json!({"group": "", "version": "v1", "resource": resource});
    env.kcp.put(all);
    env.until("it is installed", |env| {
        env.condition("all") == "True 1 of 1 runtimes"
    })
    .await;
    let webhooks = cluster.find(WEBHOOKS).unwrap()["webhooks"].clone();
    let mut webhooks = webhooks.as_array().unwrap().iter();
    let webhook = webhooks.find(|it| it["name"] == entry("all")).unwrap();
    assert_eq!(webhook["objectSelector"], json!({}));
    let rule = &webhook["rules"][0];
    assert_eq!(rule["resources"], json!([resource]));
    assert_eq!(rule["scope"], "*");

    let before = cluster.find(SECRET).unwrap()["data"]["tls.crt"].clone();
    env.issue("one", &env.authority);
    env.until("the new certificate is written", |_| {
        cluster.find(SECRET).unwrap()["data"]["tls.crt"] != before
    })
    .await;
    env.until("it is reconciled after the last write", |_| {
        let requests = cluster.requests();
        let last = requests.iter().rposition(Recorded::is_write).unwrap();
        let mut later = requests[last..].iter();
        later.any(|it| it.asked.is_of("get secrets"))
    })
    .await;
    let written = events.hits();
    stays(|| events.hits() == written).await;
}

/// Hundreds of reconciles that read KCP at once would delay the lists of the other controllers by minutes.
#[tokio::test]
async fn few_reconciles_read_kcp_concurrently() {
    let mut env = Env::new();
    let requests = env.kcp.fault("get runtimebootstrappers").hold();
    for number in 0..3 * MAX_KCP_RECONCILES {
        let name = format!("new-{number}");
        env.issue(&name, &env.authority);
        env.kcp.put(kyma(&name, &format!("id-{name}")));
    }
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("reconciles wait for KCP", |env| {
        let waiting = "runtime_watcher_limit_waiting{limit=\"kcp\"}";
        requests.hits() >= MAX_KCP_RECONCILES
            && Samples::of(&env.registry).count(waiting) >= MAX_KCP_RECONCILES as u64
    })
    .await;
    // The number doubles after two seconds.
    assert!(requests.hits() <= 2 * MAX_KCP_RECONCILES);
    drop(requests);
    let runtimes = 3 * MAX_KCP_RECONCILES as u64;
    env.until("all are reconciled", |env| {
        env.runtimes("KubeconfigNotFound") == runtimes
    })
    .await;
}

/// More runtimes accept a connection and never respond than may be read at once.
#[tokio::test]
async fn runtimes_that_never_respond_do_not_delay_another() {
    let mut env = Env::new();
    env.call_timeout = Duration::from_mins(10);
    let silent = RuntimeCluster::new("uid-silent").await;
    let _requests = silent.fault("*").hold();
    for number in 0..MAX_CONNECTIONS + 16 {
        let name = format!("silent-{number}");
        env.connect(&format!("id-{name}"), &silent);
        env.issue(&name, &env.authority);
        env.kcp.put(kyma(&name, &format!("id-{name}")));
    }
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("all connections are in use", |env| {
        let waiting = "runtime_watcher_limit_waiting{limit=\"connections\"}";
        Samples::of(&env.registry).count(waiting) > 0
    })
    .await;
    let _cluster = env.runtime("one").await;
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}
