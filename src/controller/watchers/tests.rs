//! Tests of the controller against an in-process control plane that grants only the permissions of the controller.

use std::time::Duration;

use kube::runtime::events::Reporter;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::kinds;
use testkit::metrics::Samples;
use tokio::task::JoinHandle;

use super::*;
use crate::fixture::{ControlPlane, ISTIO_NAMESPACE, Mode, NAMESPACE};

mod changes;

/// Waits for a state that the controller reaches without another action of the test.
async fn until(state: impl Fn() -> bool) {
    let limit = Duration::from_secs(20);
    let reached = testkit::until::until("the state", limit, || async { state() });
    reached.await.unwrap();
}

struct Env {
    kcp: ControlPlane,
    registry: Registry,
    metrics: WatcherMetrics,
    readiness: Readiness,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

fn watcher(name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"name": name, "labels": {"operator.kyma-project.io/managed-by": name}},
        "spec": {
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec",
            "serviceInfo": {"name": "events", "port": 8082, "namespace": "kcp-system"},
            "gateway": {"selector": {"matchLabels": {"gateway": "default"}}},
        },
    })
}

fn gateway(name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": name, "labels": {"gateway": "default"}},
        "spec": {"servers": [{"hosts": [host], "port": {"number": 443}}]},
    })
}

/// Returns a VirtualService of another owner that has the name of the Watcher `one`.
fn foreign_route() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": "one"}, "spec": {"hosts": ["mine.example"]},
    })
}

impl Env {
    fn new() -> Self {
        let mut registry = Registry::default();
        Self {
            kcp: ControlPlane::new(Mode::Watchers),
            metrics: WatcherMetrics::register(&mut registry),
            registry,
            readiness: Readiness::default(),
            running: None,
        }
    }

    /// Returns an environment with one Gateway and a running controller.
    fn started() -> Self {
        let mut env = Self::new();
        env.kcp.put(gateway("gateway", "kcp.example"));
        env.start();
        env
    }

    fn start(&mut self) {
        let options = WatcherOptions {
            client: self.kcp.client(),
            settings: WatcherSettings {
                namespace: NAMESPACE.to_owned(),
                gateway_namespace: NAMESPACE.to_owned(),
            },
            readiness: self.readiness.clone(),
            reporter: Reporter {
                controller: "rt-bootstrapper-controller".to_owned(),
                instance: Some("pod-1".to_owned()),
            },
            metrics: self.metrics.clone(),
        };
        let token = CancellationToken::new();
        let running = tokio::spawn(run(options, token.clone()));
        self.running = Some((token, running));
    }

    async fn stop(&mut self) {
        let (token, running) = self.running.take().unwrap();
        token.cancel();
        running.await.unwrap();
    }

    fn route(&self, name: &str) -> Option<Value> {
        self.kcp.object("virtualservices", name)
    }

    /// Returns the state, and status and reason of the first condition.
    fn status(&self, name: &str) -> Option<String> {
        let watcher = self.kcp.object("watchers", name)?;
        let text = |pointer| watcher.pointer(pointer).and_then(Value::as_str);
        Some(format!(
            "{} {} {}",
            text("/status/state")?,
            text("/status/conditions/0/status")?,
            text("/status/conditions/0/reason")?
        ))
    }

    async fn until_status(&self, name: &str, expected: &str) {
        let limit = Duration::from_secs(20);
        let seen = || async {
            let status = self.status(name);
            if status.as_deref() == Some(expected) {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        };
        testkit::until::until(expected, limit, seen).await.unwrap();
    }

    fn writes(&self) -> Vec<String> {
        let mut writes = self.kcp.writes();
        writes.retain(|it| !it.starts_with("create events "));
        writes
    }

    fn count(&self, series: &str) -> u64 {
        Samples::of(&self.registry).count(series)
    }
}

#[tokio::test]
async fn a_watcher_gets_its_route_and_a_status() {
    let env = Env::started();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    let route = env.route("one").unwrap();
    assert_eq!(route["spec"]["hosts"], json!(["kcp.example"]));
    assert_eq!(
        route["spec"]["http"][0]["match"][0]["uri"]["prefix"],
        "/v2/one/event"
    );
    let watcher = env.kcp.object("watchers", "one").unwrap();
    assert_eq!(
        watcher["metadata"]["finalizers"],
        json!(["operator.kyma-project.io/watcher"])
    );
    until(|| env.kcp.events() == ["VirtualServiceConfigured"]).await;
    let (is_ready, checks) = env.readiness.report();
    assert!(is_ready, "{checks}");
}

#[tokio::test]
async fn a_changed_watcher_changes_its_route() {
    let env = Env::started();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    env.kcp.merge(
        "watchers",
        "one",
        &json!({"spec": {"manager": "other", "serviceInfo": {"port": 1}}}),
    );
    let port = || {
        env.route("one").unwrap()["spec"]["http"][0]["route"][0]["destination"]["port"]["number"]
            .clone()
    };
    until(|| port() == json!(1)).await;
    assert_eq!(
        env.route("one").unwrap()["spec"]["http"][0]["match"][0]["uri"]["prefix"],
        "/v2/other/event"
    );
    // The label replaces the missing manager of the Watcher.
    env.kcp.merge("watchers", "one", &json!({"spec": {"manager": null}, "metadata": {"labels": {"operator.kyma-project.io/managed-by": "third"}}}));
    let prefix =
        || env.route("one").unwrap()["spec"]["http"][0]["match"][0]["uri"]["prefix"].clone();
    until(|| prefix() == "/v2/third/event").await;
}

#[tokio::test]
async fn what_others_do_to_a_route_is_undone() {
    let env = Env::started();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    let desired = env.route("one").unwrap()["spec"].clone();
    env.kcp.merge(
        "virtualservices",
        "one",
        &json!({"spec": {"hosts": ["evil.example"], "tcp": []}}),
    );
    until(|| env.route("one").is_some_and(|it| it["spec"] == desired)).await;
    env.kcp.delete("virtualservices", "one");
    until(|| env.route("one").is_some_and(|it| it["spec"] == desired)).await;
    assert_eq!(
        env.count(r#"virtual_service_writes_total{verb="create"}"#),
        2
    );
    assert_eq!(
        env.count(r#"virtual_service_writes_total{verb="update"}"#),
        1
    );
}

#[tokio::test]
async fn a_deleted_watcher_takes_its_route_along_and_no_other() {
    let env = Env::started();
    for name in ["one", "two"] {
        env.kcp.put(watcher(name));
        env.until_status(name, "Ready True Ready").await;
    }
    env.kcp.delete("watchers", "one");
    until(|| env.kcp.object("watchers", "one").is_none()).await;
    assert!(env.route("one").is_none());
    assert!(env.route("two").is_some());
}

/// The finalizer does not delay the deletion of a Watcher whose VirtualService is deleted or belongs to another owner.
#[tokio::test]
async fn a_deleted_watcher_without_a_route_goes() {
    let env = Env::started();
    env.kcp.put(foreign_route());
    env.kcp.put(watcher("one"));
    env.until_status("one", "Error False VirtualServiceConflict")
        .await;
    env.kcp.delete("watchers", "one");
    until(|| env.kcp.object("watchers", "one").is_none()).await;
    assert_eq!(
        env.route("one").unwrap()["spec"]["hosts"],
        json!(["mine.example"])
    );
}

#[tokio::test]
async fn a_foreign_route_is_not_touched_until_it_is_gone() {
    let env = Env::started();
    env.kcp.put(foreign_route());
    env.kcp.put(watcher("one"));
    env.until_status("one", "Error False VirtualServiceConflict")
        .await;
    assert_eq!(
        env.route("one").unwrap()["spec"],
        json!({"hosts": ["mine.example"]})
    );
    env.kcp.delete("virtualservices", "one");
    env.until_status("one", "Ready True Ready").await;
}

#[tokio::test]
async fn gateways_that_appear_change_or_go_are_noticed() {
    let mut env = Env::new();
    env.start();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Error False WatcherGatewayNotFound")
        .await;
    until(|| env.kcp.events() == ["WatcherGatewayNotFound"]).await;
    assert!(env.route("one").is_none());
    env.kcp.put(gateway("gateway", "kcp.example"));
    env.until_status("one", "Ready True Ready").await;
    env.kcp.put(gateway("second", "two.example"));
    let hosts = || env.route("one").unwrap()["spec"]["hosts"].clone();
    until(|| hosts() == json!(["kcp.example", "two.example"])).await;
    env.kcp.merge(
        "gateways",
        "second",
        &json!({"metadata": {"labels": {"gateway": "other"}}}),
    );
    until(|| hosts() == json!(["kcp.example"])).await;
    env.kcp.delete("gateways", "gateway");
    env.until_status("one", "Error False WatcherGatewayNotFound")
        .await;
    // The VirtualService stays, so that events in transit are delivered.
    assert!(env.route("one").is_some());
}

/// The controller reads only the Gateways of one namespace.
#[tokio::test]
async fn a_gateway_in_another_namespace_is_not_selected() {
    let env = Env::started();
    let mut other = gateway("other", "other.example");
    other["metadata"]["namespace"] = json!(ISTIO_NAMESPACE);
    env.kcp.store().put(&other).unwrap();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    let spec = &env.route("one").unwrap()["spec"];
    assert_eq!(spec["hosts"], json!(["kcp.example"]));
    assert_eq!(spec["gateways"], json!(["kcp-system/gateway"]));
    env.kcp.delete("gateways", "gateway");
    env.until_status("one", "Error False WatcherGatewayNotFound")
        .await;
}

#[tokio::test]
async fn without_istio_the_condition_says_so_until_it_is_installed() {
    let mut env = Env::new();
    for kind in [&kinds::GATEWAYS, &kinds::VIRTUAL_SERVICES] {
        env.kcp.serve(kind, false);
    }
    env.kcp.put(watcher("one"));
    env.start();
    env.until_status("one", "Error False IstioAPINotServed")
        .await;
    for kind in [&kinds::GATEWAYS, &kinds::VIRTUAL_SERVICES] {
        env.kcp.serve(kind, true);
    }
    env.kcp.put(gateway("gateway", "kcp.example"));
    env.until_status("one", "Ready True Ready").await;
}

#[tokio::test]
async fn a_watcher_that_cannot_be_read_does_not_stop_others() {
    let env = Env::started();
    let mut invalid = watcher("invalid");
    invalid["spec"]["field"] = json!("metadata");
    env.kcp.put(invalid);
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    until(|| env.kcp.events_of("InvalidWatcher") == 1).await;
    assert!(env.route("invalid").is_none());
    until(|| env.count(r#"watchers{state="Unreadable"}"#) == 1).await;
}

#[tokio::test]
async fn two_watchers_with_one_manager_are_reported() {
    let env = Env::started();
    let mut first = watcher("a");
    first["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    env.kcp.put(first);
    env.until_status("a", "Ready True Ready").await;
    let mut second = watcher("b");
    second["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    second["metadata"]["labels"]["operator.kyma-project.io/managed-by"] = json!("a");
    second["spec"]["serviceInfo"]["name"] = json!("other");
    env.kcp.put(second);
    env.until_status("b", "Warning True ManagerConflict").await;
    assert!(env.status("a").unwrap().starts_with("Ready"));
    until(|| env.kcp.events_of("ManagerConflict") == 1).await;
    // The other Watcher no longer uses the same manager.
    env.kcp.delete("watchers", "a");
    env.until_status("b", "Ready True Ready").await;
}

/// Events arrive at the same Service, whichever route Istio uses.
#[tokio::test]
async fn two_watchers_with_one_manager_and_one_service_are_ready() {
    let env = Env::started();
    for (name, created) in [("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-02T00:00:00Z")] {
        let mut watcher = watcher(name);
        watcher["metadata"]["creationTimestamp"] = json!(created);
        watcher["spec"]["manager"] = json!("one");
        env.kcp.put(watcher);
        env.until_status(name, "Ready True Ready").await;
    }
    let [first, second] = ["a", "b"].map(|it| env.route(it).unwrap()["spec"]["http"][0].clone());
    assert_eq!(first["match"][0]["uri"]["prefix"], "/v2/one/event");
    assert_eq!(first["match"], second["match"]);
    assert_eq!(first["route"], second["route"]);
    assert_eq!(env.kcp.events_of("ManagerConflict"), 0);
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut env = Env::started();
    for name in ["one", "two", "three"] {
        env.kcp.put(watcher(name));
        env.until_status(name, "Ready True Ready").await;
    }
    env.stop().await;
    let before = env.writes();
    let reconciled = env.count(r#"watcher_reconcile_total{result="success"}"#);
    env.start();
    until(|| env.count(r#"watcher_reconcile_total{result="success"}"#) >= reconciled + 3).await;
    assert_eq!(env.count(r#"watchers{state="Ready"}"#), 3);
    env.stop().await;
    assert_eq!(env.writes(), before);
    assert_eq!(env.count("watchers"), 0);
}

/// Failures are retried and counted. A missing permission is reported in the condition.
#[tokio::test]
async fn failures_of_the_control_plane_are_retried() {
    let env = Env::started();
    let fault = env.kcp.fault("create virtualservices").status(500);
    env.kcp.put(watcher("one"));
    until(|| env.count(r#"watcher_reconcile_total{result="error"}"#) >= 1).await;
    fault.stop();
    env.until_status("one", "Ready True Ready").await;
    let fault = env.kcp.fault("create virtualservices").status(403);
    env.kcp.put(watcher("two"));
    env.until_status("two", "Error False Forbidden").await;
    fault.stop();
}

/// The controller overwrites a status that another client edited.
#[tokio::test]
async fn a_status_edited_by_hand_is_repaired() {
    let env = Env::started();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    env.kcp
        .merge("watchers", "one", &json!({"status": {"state": "Error"}}));
    env.until_status("one", "Ready True Ready").await;
}

/// The CustomResourceDefinitions of Istio are deleted, and the VirtualService with them.
#[tokio::test]
async fn a_deleted_watcher_goes_without_istio() {
    let env = Env::started();
    env.kcp.put(watcher("one"));
    env.until_status("one", "Ready True Ready").await;
    env.kcp.delete("virtualservices", "one");
    for kind in [&kinds::GATEWAYS, &kinds::VIRTUAL_SERVICES] {
        env.kcp.serve(kind, false);
    }
    env.kcp.delete("watchers", "one");
    until(|| env.kcp.object("watchers", "one").is_none()).await;
}
