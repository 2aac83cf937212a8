//! Tests of heartbeats of watchers. A test sends them in the format in which the gateway forwards them.

use listener::XFCC_HEADER;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use policy::certificates::bundle_sha256;
use testkit::pki::Leaf;
use testkit::tls::RawClient;
use tokio::task::JoinHandle;

use super::*;

/// Pause between two heartbeats, which is shorter than the interval.
const PAUSE: Duration = Duration::from_millis(40);
/// Interval that is long enough that no watcher is silent, although a machine under load delays its heartbeats.
const LONG_INTERVAL: Duration = Duration::from_secs(2);
/// Time in which no CA is acknowledged: three intervals, and the time until the controller compares the CAs afterwards.
const WAIT: Duration = Duration::from_secs(11);

/// Returns the released Watcher.
fn own_watcher() -> Value {
    let mut watcher = watcher("heartbeats");
    watcher["spec"]["manager"] = json!("runtime-bootstrapper");
    watcher["spec"]["resourceToWatch"] =
        json!({"group": "", "version": "v1", "resource": "configmaps"});
    watcher["spec"]["labelsToWatch"] =
        json!({"runtime-bootstrapper.kyma-project.io/review-probe": "true"});
    watcher
}

fn leaf(env: &Env, name: &str) -> Leaf {
    env.authority
        .leaf_with(name, |it| it.use_authority_key_identifier_extension = true)
        .unwrap()
}

/// Sends one heartbeat with additional fields. Returns the status line of the response, or `None` while the listener
/// does not run.
async fn send(address: SocketAddr, leaf: &Leaf, fields: &Value) -> Option<String> {
    let mut heartbeat = json!({
        "bootId": "boot-1", "sequence": 0, "spoolDepth": 0, "oldestAgeSeconds": 0, "version": "1",
    });
    for (name, value) in fields.as_object().unwrap() {
        heartbeat[name] = value.clone();
    }
    let body = heartbeat.to_string();
    let certificate = utf8_percent_encode(&leaf.pem, NON_ALPHANUMERIC);
    let request = format!(
        "POST /v2/runtime-bootstrapper/event/heartbeat HTTP/1.1\r\nhost: kcp\r\n\
         {XFCC_HEADER}: Cert=\"{certificate}\"\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = RawClient::connect(address).await.ok()?;
    let response = client.ask(request).await.ok()?;
    Some(response.line().to_owned())
}

/// Sends heartbeats of a runtime until the task is aborted.
fn beat(env: &Env, id: &str, fields: Value) -> JoinHandle<()> {
    let (address, leaf) = (env.listener, leaf(env, id));
    tokio::spawn(async move {
        loop {
            let status = send(address, &leaf, &fields).await;
            assert!(
                status.as_ref().is_none_or(|it| it.contains(" 200 ")),
                "{status:?}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Returns a runtime with a watcher, and with the Watcher for heartbeats.
async fn expecting() -> (Env, RuntimeCluster) {
    expecting_every(HEARTBEAT_INTERVAL).await
}

/// Returns a runtime with a watcher, and with the Watcher for heartbeats, with this heartbeat interval.
async fn expecting_every(interval: Duration) -> (Env, RuntimeCluster) {
    let mut env = Env::new();
    env.heartbeat_interval = interval;
    let cluster = env.install().await;
    env.kcp.put(own_watcher());
    env.until("its webhook is there", |_| entries(&cluster).len() == 2)
        .await;
    (env, cluster)
}

#[tokio::test]
async fn a_runtime_without_heartbeats_is_reported_until_they_arrive() {
    let (env, cluster) = expecting().await;
    env.until("it is unresponsive", |env| {
        env.runtimes("HeartbeatMissing") == 1
    })
    .await;
    env.until("it is counted", |env| {
        env.condition("klm") == "False 0 of 1 runtimes; 1 HeartbeatMissing"
    })
    .await;
    let reviewed = json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0});
    let beating = beat(&env, "id-one", reviewed);
    env.until("it is responsive", |env| env.runtimes("Installed") == 1)
        .await;
    // When heartbeats are missing again, the runtime is repaired long before the resync.
    cluster.drop_object(WEBHOOKS);
    beating.abort();
    env.until("it is repaired", |_| entries(&cluster).len() == 2)
        .await;
}

#[tokio::test]
async fn a_runtime_whose_requests_are_not_reviewed_is_reported_until_they_are() {
    let (env, cluster) = expecting().await;
    let recorded = || {
        cluster
            .find("configmaps kyma-system/rt-bootstrapper-owner")
            .unwrap()["data"]["watcherEntries"]
            .clone()
    };
    let before = recorded();
    let beating = beat(&env, "id-one", json!({"reviewsSeen": 0}));
    env.until("a request was not reviewed", |env| {
        // The change replaces the resync, which would send a request.
        let label = json!({"metadata": {"labels": {"a": fastrand::u32(..).to_string()}}});
        env.kcp.merge("kymas", "one", &label);
        env.runtimes("ReviewMissing") == 1
    })
    .await;
    let probe = "configmaps kyma-system/rt-bootstrapper-review-probe";
    assert!(cluster.find(probe).is_none());
    beating.abort();
    let reviewed = json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0});
    let beating = beat(&env, "id-one", reviewed);
    env.until("it is responsive", |env| env.runtimes("Installed") == 1)
        .await;
    // The managers did not receive what changed in the meantime.
    env.until("a resync of each manager is required", |_| {
        let now = recorded();
        let [before, now] = [&before, &now].map(|it| it.as_str().unwrap().lines());
        let lines: Vec<_> = before.zip(now).collect();
        lines.len() == 2 && lines.iter().all(|(before, now)| before != now)
    })
    .await;
    beating.abort();
}

/// Only a review of the controller's request ends the state, and those of other managers may arrive again before.
#[tokio::test]
async fn another_review_is_requested_although_other_managers_get_reviews() {
    let (env, cluster) = expecting().await;
    let reconcile = |env: &Env| {
        let label = json!({"metadata": {"labels": {"a": fastrand::u32(..).to_string()}}});
        env.kcp.merge("kymas", "one", &label);
    };
    let none = json!({"reviewsSeen": 0, "managerReviewsSeen": 0});
    let beating = beat(&env, "id-one", none);
    env.until("a request was not reviewed", |env| {
        reconcile(env);
        env.runtimes("ReviewMissing") == 1
    })
    .await;
    beating.abort();
    let others = json!({
        "reviewsSeen": 1, "lastReviewAgeSeconds": 0, "managerReviewsSeen": 0,
    });
    let sent = send(env.listener, &leaf(&env, "id-one"), &others).await;
    assert!(sent.unwrap().contains(" 200 "));
    let beating = beat(&env, "id-one", others);
    cluster.take();
    let requests = std::sync::atomic::AtomicUsize::new(0);
    env.until("other reviews are requested", |env| {
        reconcile(env);
        let writes = cluster.take();
        let sent = writes
            .iter()
            .filter(|it| it.contains("review-probe"))
            .count();
        // One may have been sent before.
        requests.fetch_add(sent, std::sync::atomic::Ordering::Relaxed) + sent > 2
    })
    .await;
    beating.abort();
}

#[tokio::test]
async fn nothing_is_expected_without_the_watcher_for_heartbeats() {
    let (env, cluster) = expecting().await;
    env.until("it is unresponsive", |env| {
        env.runtimes("HeartbeatMissing") == 1
    })
    .await;
    env.kcp.remove("watchers", NAMESPACE, "heartbeats");
    env.until("it is not expected", |env| env.runtimes("Installed") == 1)
        .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
}

#[tokio::test]
async fn the_watcher_for_heartbeats_alone_installs_nothing() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    env.kcp.put(own_watcher());
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it is known", |env| env.runtimes("Removed") == 1)
        .await;
    assert!(cluster.take().is_empty());
}

/// The gateway may use a new CA when every watcher trusts it. The gateway does not wait for an unreachable runtime.
#[tokio::test]
async fn a_bundle_is_acknowledged_when_every_watcher_has_it() {
    let (env, _one) = expecting_every(LONG_INTERVAL).await;
    let two = env.runtime("two").await;
    let three = env.runtime("three").await;
    env.until("they are installed", |_| {
        entries(&two).len() == 2 && entries(&three).len() == 2
    })
    .await;
    let other = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    let bundle = [&env.authority, &other].map(Authority::pem).concat();
    let hash = bundle_sha256(bundle.as_bytes());
    let reviewed =
        |hash: &str| json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0, "bundleSha256": hash});
    let beating = beat(&env, "id-one", reviewed(&hash));
    let outdated = beat(&env, "id-two", reviewed(&"0".repeat(64)));
    let _outage = three.outage(503);
    let mut issued = IssuedGateway::of(&bundle, Some("kcp.example"));
    issued.waits_for = Some(hash.clone());
    let mut acknowledged = env.acknowledged.subscribe();
    env.set_gateway(Ok(issued));
    env.until("one cannot be reached", |env| {
        env.runtimes("APIServerError") == 1 && env.runtimes("Installed") == 2
    })
    .await;
    let early = tokio::time::timeout(WAIT, acknowledged.changed());
    assert!(early.await.is_err());
    outdated.abort();
    let late = beat(&env, "id-two", reviewed(&hash));
    env.until("it is acknowledged", |env| {
        env.acknowledged.borrow().as_ref() == Some(&hash)
    })
    .await;
    beating.abort();
    late.abort();
}

/// A runtime that is not known yet may have only a RuntimeBootstrapper.
#[tokio::test]
async fn a_bundle_is_not_acknowledged_before_all_runtimes_are_known() {
    let mut env = Env::new();
    env.heartbeat_interval = LONG_INTERVAL;
    let unlisted = env.kcp.fault("list runtimebootstrappers").status(500);
    let cluster = env.install().await;
    env.kcp.put(own_watcher());
    env.until("its webhook is there", |_| entries(&cluster).len() == 2)
        .await;
    let hash = bundle_sha256(env.authority.pem().as_bytes());
    let trusting = json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0, "bundleSha256": hash});
    let beating = beat(&env, "id-one", trusting);
    let mut issued = IssuedGateway::of(env.authority.pem(), Some("kcp.example"));
    issued.waits_for = Some(hash.clone());
    let mut acknowledged = env.acknowledged.subscribe();
    env.set_gateway(Ok(issued));
    let early = tokio::time::timeout(WAIT, acknowledged.changed());
    assert!(early.await.is_err());
    unlisted.stop();
    env.until("it is acknowledged", |env| {
        env.acknowledged.borrow().as_ref() == Some(&hash)
    })
    .await;
    beating.abort();
}

/// A new leader has received no heartbeat. The runtime that lacks the CA is unreachable, and its watcher sends its
/// heartbeat last.
#[tokio::test]
async fn a_bundle_is_not_acknowledged_before_every_watcher_had_time_for_a_heartbeat() {
    let interval = Duration::from_secs(5);
    let (mut env, _one) = expecting_every(interval).await;
    let two = env.runtime("two").await;
    env.until("it is installed", |_| entries(&two).len() == 2)
        .await;
    env.stop().await;
    let _outage = two.outage(503);
    let hash = bundle_sha256(env.authority.pem().as_bytes());
    let reviewed =
        |hash: &str| json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0, "bundleSha256": hash});
    let beating = beat(&env, "id-one", reviewed(&hash));
    let mut issued = IssuedGateway::of(env.authority.pem(), Some("kcp.example"));
    issued.waits_for = Some(hash.clone());
    let mut acknowledged = env.acknowledged.subscribe();
    env.set_gateway(Ok(issued));
    env.start();
    // The watchers of the runtimes send their heartbeats one after the other.
    let first = tokio::time::timeout(interval, acknowledged.changed());
    assert!(first.await.is_err());
    let outdated = beat(&env, "id-two", reviewed(&"0".repeat(64)));
    env.until("one cannot be reached", |env| {
        env.runtimes("APIServerError") == 1 && env.runtimes("Installed") == 1
    })
    .await;
    let early = tokio::time::timeout(interval * 3, acknowledged.changed());
    assert!(early.await.is_err());
    outdated.abort();
    let late = beat(&env, "id-two", reviewed(&hash));
    env.until("it is acknowledged", |env| {
        env.acknowledged.borrow().as_ref() == Some(&hash)
    })
    .await;
    beating.abort();
    late.abort();
}

/// The watcher without a new certificate keeps its CAs, and would reject the gateway.
#[tokio::test]
async fn a_bundle_is_not_acknowledged_while_a_watcher_without_a_new_certificate_lacks_it() {
    let (env, _one) = expecting_every(LONG_INTERVAL).await;
    let two = env.runtime("two").await;
    env.until("it is installed", |_| entries(&two).len() == 2)
        .await;
    let hash = bundle_sha256(env.authority.pem().as_bytes());
    let reviewed =
        |hash: &str| json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0, "bundleSha256": hash});
    let beating = beat(&env, "id-one", reviewed(&hash));
    let outdated = beat(&env, "id-two", reviewed(&"0".repeat(64)));
    env.until("both respond", |env| env.runtimes("Installed") == 2)
        .await;
    env.kcp
        .remove("secrets", ISTIO_NAMESPACE, "two-webhook-tls");
    let mut issued = IssuedGateway::of(env.authority.pem(), Some("other.example"));
    issued.waits_for = Some(hash);
    let mut acknowledged = env.acknowledged.subscribe();
    env.set_gateway(Ok(issued));
    env.until("one has no certificate", |env| {
        env.runtimes("CertificatePending") == 1
    })
    .await;
    let early = tokio::time::timeout(WAIT, acknowledged.changed());
    assert!(early.await.is_err());
    beating.abort();
    outdated.abort();
}

/// The watcher of the runtime is removed, and was the last watcher that did not trust the new CA.
#[tokio::test]
async fn a_runtime_that_has_no_domain_any_more_is_not_waited_for() {
    let (env, _one) = expecting_every(LONG_INTERVAL).await;
    let two = env.runtime("two").await;
    let mut resource = crate::fixture::bootstrapper("two");
    resource["status"] = json!({"runtimeID": "id-two"});
    env.kcp.put(resource);
    env.until("it is installed", |_| entries(&two).len() == 2)
        .await;
    let hash = bundle_sha256(env.authority.pem().as_bytes());
    let reviewed =
        |hash: &str| json!({"reviewsSeen": 1, "lastReviewAgeSeconds": 0, "bundleSha256": hash});
    let (outdated, fields) = (leaf(&env, "id-two"), reviewed(&"0".repeat(64)));
    let is_received = testkit::until::until("a heartbeat", Duration::from_mins(1), || async {
        let status = send(env.listener, &outdated, &fields).await;
        status.is_some_and(|it| it.contains(" 200 "))
    });
    is_received.await.unwrap();
    let beating = beat(&env, "id-one", reviewed(&hash));
    env.kcp.remove("kymas", NAMESPACE, "two");
    env.until("it has no domain", |env| {
        env.runtimes("SKRDomainMissing") == 1
    })
    .await;
    let mut issued = IssuedGateway::of(env.authority.pem(), Some("other.example"));
    issued.waits_for = Some(hash.clone());
    env.set_gateway(Ok(issued));
    env.until("it is acknowledged", |env| {
        env.acknowledged.borrow().as_ref() == Some(&hash)
    })
    .await;
    beating.abort();
}

/// A heartbeat requires a certificate that the CA of the watchers issued.
#[tokio::test]
async fn a_heartbeat_of_another_ca_is_rejected() {
    let (env, _cluster) = expecting().await;
    let own = leaf(&env, "id-one");
    let other = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    let foreign = other.leaf("id-one").unwrap();
    let listens = testkit::until::until("the listener runs", Duration::from_mins(1), || async {
        send(env.listener, &own, &json!({})).await.is_some()
    });
    listens.await.unwrap();
    let status = send(env.listener, &foreign, &json!({})).await.unwrap();
    assert!(status.contains(" 401 "), "{status}");
}

/// The listener starts on the leader only, after the metrics are served.
#[tokio::test]
async fn the_metrics_of_the_listener_are_those_of_the_controller() {
    let build = component_base::metrics::BuildInfo {
        version: String::new(),
        revision: String::new(),
    };
    let metrics = component_base::metrics::Metrics::new("controller", build);
    let mut env = Env::new();
    env.metrics = env.metrics.clone().with_listener(metrics.late());
    let requests = r#"watcher_listener_requests_total{server_name="listener",manager="runtime-bootstrapper"} "#;
    assert!(!metrics.encode().unwrap().contains(requests));
    env.kcp.put(own_watcher());
    env.issue_gateway(&[&env.authority]);
    env.start();
    let heartbeats = beat(&env, "id-one", json!({}));
    env.until("heartbeats are counted", |_| {
        let text = metrics.encode().unwrap();
        let mut lines = text.lines().filter_map(|it| it.strip_prefix(requests));
        lines.any(|it| it != "0")
    })
    .await;
    heartbeats.abort();
}
