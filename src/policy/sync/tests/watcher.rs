//! The plan for the watcher on a runtime.

mod entries;
mod removal;
mod takeover;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::kcp::{OWNER_WATCHER_INVENTORY, WATCHER_FIELD_MANAGER};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::apply::{apply, stored};
use super::samples::*;
use crate::sync::identity::{IdentityError, IdentityRecord, Owner};
use crate::sync::manifests::Installation;
use crate::sync::observed::NamespaceState;
use crate::sync::plan::watcher::{
    DesiredWatcher, ObservedWatcher, Reviews, WatcherContext, WatcherPlan, WatcherState,
    certificate_secret, plan_watcher,
};
use crate::sync::plan::{Action, Blocked};
use crate::sync::target::Target;

/// Number of contexts so far, each of which has another nonce.
static NONCES: AtomicU64 = AtomicU64::new(0);

const MARKER: &str = "ConfigMap/rt-bootstrapper-owner";
const WEBHOOKS: &str = "ValidatingWebhookConfiguration/skr-webhook";
const SECRET: &str = "Secret/skr-webhook-tls";
const SERVICE: &str = "Service/skr-webhook";
const DEPLOYMENT: &str = "Deployment/skr-webhook";

struct Runtime {
    observed: ObservedWatcher,
    owner: Owner,
    reviews: Reviews,
    certificate: Option<Arc<Value>>,
    log: Vec<String>,
}

fn manifests(version: &str) -> Vec<Value> {
    let labels = json!({ "app": "skr-webhook" });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "skr-webhook", "namespace": NAMESPACE } }),
        json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "skr-webhook", "namespace": NAMESPACE },
            "spec": { "selector": labels, "ports": [{ "name": "https", "port": 443, "targetPort": 8443 }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "skr-webhook", "namespace": NAMESPACE,
                "labels": { "app.kubernetes.io/version": version } },
            "spec": { "replicas": 2, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "server", "image": format!("watcher:{version}") }] } } } }),
    ]
}

fn entry(watcher: &str, bundle: &str) -> Value {
    json!({ "name": format!("kcp-system.{watcher}.operator.kyma-project.io"),
        "clientConfig": { "caBundle": bundle }, "rules": [],
        "namespaceSelector": {}, "objectSelector": {} })
}

fn desired_of(manifests: Vec<Value>, entries: Option<Vec<Value>>, kept: &[&str]) -> DesiredWatcher {
    let installation = Arc::new(Installation::new(manifests).unwrap());
    // All entries have the CAs of the gateway.
    let first = entries.as_ref().and_then(|it| it.first());
    let bundle = first.and_then(|it| it["clientConfig"]["caBundle"].as_str());
    let bundle = bundle.unwrap_or("ca").to_owned();
    let webhooks = entries.map(|entries| {
        json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "skr-webhook" }, "webhooks": entries })
    });
    let kept = kept
        .iter()
        .map(|it| entry(it, "")["name"].as_str().unwrap().to_owned());
    DesiredWatcher::new(NAMESPACE, installation, webhooks, (kept.collect(), &bundle)).unwrap()
}

fn desired(entries: Vec<Value>) -> DesiredWatcher {
    desired_of(manifests("0.1.0"), Some(entries), &[])
}

fn one() -> DesiredWatcher {
    desired(vec![entry("one", "ca")])
}

fn removed() -> DesiredWatcher {
    desired_of(manifests("0.1.0"), None, &[])
}

/// A plan without the manifests is the plan with the manifests, if they are as desired.
#[rstest]
#[case::unchanged(one())]
#[case::another_watcher(desired(vec![entry("one", "ca"), entry("two", "ca")]))]
#[case::another_ca(desired(vec![entry("one", "new")]))]
fn manifests_that_are_as_desired_need_not_be_read(#[case] next: DesiredWatcher) {
    let mut runtime = Runtime::installed(&one());
    assert!(next.has_manifests_of(&one()));
    let mut planned = || {
        let plan = runtime.plan(&next);
        let actions = plan.steps.iter().flatten();
        let actions: Vec<_> = actions.map(|it| (it.verb(), it.target().clone())).collect();
        runtime.observed.has_manifests = true;
        let variable = next.variable_targets();
        runtime.observed.live.retain(|it, _| variable.contains(it));
        (plan.blocked, plan.state, actions)
    };
    let with_manifests = planned();
    assert_eq!(planned(), with_manifests);
    assert_eq!(with_manifests.1, WatcherState::Installed);
    assert!(runtime.observed.is_intact(&next));
}

#[test]
fn manifests_are_read_if_other_clients_removed_what_a_plan_relies_on() {
    let is_intact = |change: fn(&mut ObservedWatcher)| {
        let mut observed = Runtime::installed(&one()).observed;
        change(&mut observed);
        observed.is_intact(&one())
    };
    assert!(is_intact(|_| {}));
    assert!(!is_intact(|it| it.namespace = NamespaceState::Terminating));
    assert!(!is_intact(|it| it.marker = None));
    assert!(!is_intact(|it| drop(it.live.remove(&target(SECRET)))));
    assert!(!is_intact(|it| drop(it.live.remove(&target(WEBHOOKS)))));
    assert!(!is_intact(|it| {
        let secret = it.live.get_mut(&target(SECRET)).unwrap();
        secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }));
    assert!(!is_intact(|it| {
        let webhooks = it.live.get_mut(&target(WEBHOOKS)).unwrap();
        webhooks["metadata"]["annotations"] = json!({});
    }));
}

#[test]
fn manifests_of_another_version_or_of_a_removal_are_not_those_of_the_watcher() {
    let newer = desired_of(manifests("0.2.0"), Some(vec![entry("one", "ca")]), &[]);
    assert!(!newer.has_manifests_of(&one()));
    assert!(!removed().has_manifests_of(&removed()));
    assert!(!one().has_manifests_of(&removed()));
}

fn target(kind_and_name: &str) -> Target {
    let (kind, name) = kind_and_name.split_once('/').unwrap();
    let version = match kind {
        "Deployment" => "apps/v1",
        "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
        _ => "v1",
    };
    let object = json!({ "apiVersion": version, "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE } });
    Target::of(&object).unwrap()
}

impl Runtime {
    fn new() -> Self {
        Self {
            observed: ObservedWatcher {
                cluster: Some(UID.to_owned()),
                namespace: NamespaceState::Active,
                ..ObservedWatcher::default()
            },
            reviews: Reviews::Unknown,
            owner: Owner {
                runtime_id: "runtime-1".to_owned(),
                control_plane: salt().control_plane(),
            },
            certificate: Some(certificate_secret(NAMESPACE, ["ca", "leaf", "key"], "")),
            log: Vec::new(),
        }
    }

    fn installed(desired: &DesiredWatcher) -> Self {
        let mut runtime = Self::new();
        runtime.converge(desired);
        runtime
    }

    fn plan(&self, desired: &DesiredWatcher) -> WatcherPlan {
        let nonce = NONCES.fetch_add(1, Ordering::Relaxed).to_string();
        let context = WatcherContext {
            reviews: self.reviews,
            nonce: &nonce,
            owner: &self.owner,
            record: IdentityRecord::default(),
        };
        plan_watcher(context, desired, self.certificate.as_ref(), &self.observed)
    }

    /// Applies the plan and returns the writes, with the state before.
    fn reconcile(&mut self, desired: &DesiredWatcher) -> (Vec<String>, WatcherState) {
        let plan = self.plan(desired);
        assert_eq!(plan.blocked, None);
        for action in plan.steps.iter().flatten() {
            self.carry_out(action);
        }
        (std::mem::take(&mut self.log), plan.state)
    }

    fn converge(&mut self, desired: &DesiredWatcher) {
        for _ in 0..6 {
            let (written, state) = self.reconcile(desired);
            if written.is_empty() && state != WatcherState::Progressing {
                return;
            }
            self.roll_out();
            self.end_pods();
        }
        panic!("no convergence: {:?}", self.plan(desired));
    }

    fn carry_out(&mut self, action: &Action) {
        let target = action.target().clone();
        self.log.push(format!(
            "{} {}/{}",
            action.verb(),
            target.kind(),
            target.name()
        ));
        let live = self.live(&target).cloned();
        let after = match action {
            Action::Create { object, .. } => {
                assert_eq!(live, None);
                // A created object has the operation `Update`, not `Apply`.
                let mut created = apply(json!({}), object, WATCHER_FIELD_MANAGER);
                created["metadata"]["managedFields"][0]["operation"] = json!("Update");
                Some(created)
            }
            Action::Apply { object, .. } => {
                let live = live.unwrap_or_else(|| json!({}));
                Some(apply(live, object, WATCHER_FIELD_MANAGER))
            }
            Action::Delete { foreground, .. } => {
                let mut live = live.expect("what is deleted is there");
                live["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
                foreground.then_some(live)
            }
            Action::Transfer { patch, .. } | Action::RemoveFields { patch, .. } => {
                let mut live = live.expect("what is patched is there");
                let operations: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
                json_patch::patch(&mut live, &operations).unwrap();
                Some(live)
            }
        };
        self.put(target, after.map(stored));
    }

    fn live(&self, target: &Target) -> Option<&Value> {
        match target.kind() {
            "ConfigMap" => self.observed.marker.as_ref(),
            _ => self.observed.live.get(target),
        }
    }

    fn put(&mut self, target: Target, object: Option<Value>) {
        match (target.kind(), object) {
            ("ConfigMap", object) => self.observed.marker = object,
            (_, Some(object)) => drop(self.observed.live.insert(target, object)),
            (_, None) => drop(self.observed.live.remove(&target)),
        }
    }

    fn edit(&mut self, object: &str, change: impl FnOnce(&mut Value)) {
        change(self.observed.live.get_mut(&target(object)).unwrap());
    }

    fn roll_out(&mut self) {
        if let Some(live) = self.observed.live.get_mut(&target(DEPLOYMENT)) {
            live["status"] = json!({
                "observedGeneration": live["metadata"]["generation"],
                "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
                "conditions": [{ "type": "Available", "status": "True" }],
            });
        }
    }

    /// Removes Deployments that are being deleted, as after the end of their Pods.
    fn end_pods(&mut self) {
        let is_deleted = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
        self.observed.live.retain(|_, live| !is_deleted(live));
    }

    fn inventory(&self) -> Option<&str> {
        let marker = self.observed.marker.as_ref()?;
        marker["data"][OWNER_WATCHER_INVENTORY].as_str()
    }
}

#[test]
fn the_webhook_configuration_is_created_after_the_pods_are_available() {
    let (desired, mut runtime) = (one(), Runtime::new());
    let (written, state) = runtime.reconcile(&desired);
    assert_eq!(state, WatcherState::Progressing);
    assert_eq!(
        written,
        [
            &format!("create {MARKER}"),
            "apply ServiceAccount/skr-webhook",
            "apply Service/skr-webhook",
            &format!("apply {SECRET}"),
            &format!("apply {DEPLOYMENT}"),
        ]
    );
    assert_eq!(
        runtime.reconcile(&desired),
        (vec![], WatcherState::Progressing)
    );
    runtime.roll_out();
    let (written, _) = runtime.reconcile(&desired);
    assert_eq!(written, [format!("apply {WEBHOOKS}")]);
    assert_eq!(
        runtime.reconcile(&desired),
        (vec![], WatcherState::Installed)
    );
    let inventory = runtime.inventory().unwrap();
    assert_eq!(inventory.lines().count(), 5, "{inventory}");
}

/// A Pod that presents a certificate of a CA that the API server does not trust misses changes.
#[test]
fn the_api_server_trusts_a_new_ca_before_the_watcher_has_its_certificate() {
    let mut runtime = Runtime::installed(&one());
    runtime.certificate = Some(certificate_secret(
        NAMESPACE,
        ["ca+new", "new leaf", "new key"],
        "",
    ));
    let (written, _) = runtime.reconcile(&desired(vec![entry("one", "ca+new")]));
    assert_eq!(
        written,
        [format!("apply {WEBHOOKS}"), format!("apply {SECRET}")]
    );
}

/// The Pods keep a certificate of the previous CA, which the API server would not trust any more.
#[test]
fn without_a_certificate_of_the_new_ca_the_live_ca_stays() {
    let mut runtime = Runtime::installed(&one());
    runtime.certificate = None;
    let renewed = desired(vec![entry("one", "new")]);
    assert_eq!(
        runtime.reconcile(&renewed),
        (vec![], WatcherState::Installed)
    );
    // Another entry calls the same Pods.
    let (written, _) = runtime.reconcile(&desired(vec![entry("one", "new"), entry("two", "new")]));
    assert_eq!(written, [format!("apply {WEBHOOKS}")]);
    let bundles = |runtime: &Runtime| {
        let live = &runtime.observed.live[&target(WEBHOOKS)];
        let entries = live["webhooks"].as_array().unwrap().iter();
        let bundles = entries.map(|it| it["clientConfig"]["caBundle"].clone());
        bundles.collect::<Vec<_>>()
    };
    assert_eq!(bundles(&runtime), ["ca", "ca"]);
    runtime.certificate = Some(certificate_secret(NAMESPACE, ["new", "leaf", "key"], ""));
    runtime.converge(&renewed);
    assert_eq!(bundles(&runtime), ["new"]);
}

/// Otherwise the API server would not trust the watcher while cert-manager issues no certificate, which may be long.
#[test]
fn without_a_certificate_the_ca_of_another_client_is_replaced() {
    let mut runtime = Runtime::installed(&one());
    runtime.certificate = None;
    let renewed = desired(vec![entry("one", "new")]);
    runtime.edit(WEBHOOKS, |it| {
        it["webhooks"][0]["clientConfig"]["caBundle"] = json!("other");
    });
    let (written, _) = runtime.reconcile(&renewed);
    assert_eq!(written.last(), Some(&format!("apply {WEBHOOKS}")));
    let live = &runtime.observed.live[&target(WEBHOOKS)];
    assert_eq!(live["webhooks"][0]["clientConfig"]["caBundle"], "ca");
    let unchanged = (vec![], WatcherState::Installed);
    assert_eq!(runtime.reconcile(&renewed), unchanged);
}

#[test]
fn without_a_certificate_nothing_is_installed_and_what_is_installed_stays() {
    let mut runtime = Runtime::new();
    runtime.certificate = None;
    assert_eq!(
        runtime.reconcile(&one()),
        (vec![], WatcherState::Progressing)
    );
    let mut runtime = Runtime::installed(&one());
    runtime.certificate = None;
    assert_eq!(runtime.reconcile(&one()), (vec![], WatcherState::Installed));
    let (written, _) = runtime.reconcile(&desired(vec![entry("one", "ca"), entry("two", "ca")]));
    assert_eq!(written, [format!("apply {WEBHOOKS}")]);
}

#[rstest]
#[case::trust(WEBHOOKS, |it: &mut Value| it["webhooks"][0]["clientConfig"]["caBundle"] = json!("other"))]
#[case::entry(WEBHOOKS, |it: &mut Value| it["webhooks"] = json!([]))]
#[case::namespaces(WEBHOOKS, |it: &mut Value| it["webhooks"][0]["namespaceSelector"] = json!({"matchLabels": {"a": "b"}}))]
#[case::objects(WEBHOOKS, |it: &mut Value| it["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"a": "b"}}))]
#[case::pods("Service/skr-webhook", |it: &mut Value| it["spec"]["selector"]["a"] = json!("b"))]
#[case::garbage(SECRET, |it: &mut Value| it["data"]["tls.key"] = json!("garbage"))]
#[case::service("Service/skr-webhook", |it: &mut Value| it["spec"]["ports"] = json!([]))]
fn drift_is_repaired(#[case] object: &str, #[case] drift: fn(&mut Value)) {
    let mut runtime = Runtime::installed(&one());
    runtime.edit(object, drift);
    assert_eq!(
        runtime.reconcile(&one()),
        (vec![format!("apply {object}")], WatcherState::Installed)
    );
    assert_eq!(runtime.reconcile(&one()), (vec![], WatcherState::Installed));
}

#[rstest]
#[case(WEBHOOKS)]
#[case(SECRET)]
#[case("Service/skr-webhook")]
fn a_deleted_object_comes_back(#[case] object: &str) {
    let mut runtime = Runtime::installed(&one());
    runtime.observed.live.remove(&target(object));
    runtime.converge(&one());
    assert!(runtime.observed.live.contains_key(&target(object)));
}

/// All entries call the Pods, which have a certificate of the new CA.
#[test]
fn the_entry_of_an_unreadable_watcher_trusts_the_new_ca() {
    let mut runtime = Runtime::installed(&desired(vec![entry("one", "old"), entry("two", "old")]));
    runtime.converge(&desired_of(
        manifests("0.1.0"),
        Some(vec![entry("one", "ca")]),
        &["two"],
    ));
    let entries = runtime.observed.live[&target(WEBHOOKS)]["webhooks"].clone();
    let bundles = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["clientConfig"]["caBundle"]);
    assert_eq!(bundles.collect::<Vec<_>>(), ["ca", "ca"]);
}

#[test]
fn an_object_that_a_later_version_does_not_have_is_deleted_after_its_rollout() {
    let extra = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "earlier", "namespace": NAMESPACE }, "spec": {} });
    let mut before = manifests("0.1.0");
    before.push(extra);
    let before = desired_of(before, Some(vec![entry("one", "ca")]), &[]);
    let after = desired_of(manifests("0.2.0"), Some(vec![entry("one", "ca")]), &[]);
    let mut runtime = Runtime::installed(&before);
    let obsolete = after.obsolete(runtime.observed.marker.as_ref());
    assert_eq!(
        obsolete.iter().collect::<Vec<_>>(),
        [&target("Service/earlier")]
    );
    let (written, _) = runtime.reconcile(&after);
    assert_eq!(written, [format!("apply {DEPLOYMENT}")]);
    assert!(runtime.inventory().unwrap().contains("earlier"));
    runtime.roll_out();
    let (written, _) = runtime.reconcile(&after);
    assert_eq!(written, ["delete Service/earlier"]);
    runtime.converge(&after);
    assert!(!runtime.inventory().unwrap().contains("earlier"));
}

#[test]
fn a_deployment_that_does_not_become_available_is_reported() {
    let mut runtime = Runtime::new();
    runtime.reconcile(&one());
    runtime.edit(DEPLOYMENT, |live| {
        live["status"] = json!({
            "observedGeneration": live["metadata"]["generation"],
            "conditions": [{ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }],
        });
    });
    let (written, state) = runtime.reconcile(&one());
    assert_eq!(
        (written, state),
        (vec![], WatcherState::ProgressDeadlineExceeded)
    );
}

#[rstest]
#[case::install(one())]
#[case::remove(removed())]
fn nothing_is_written_to_an_unverified_cluster(#[case] desired: DesiredWatcher) {
    let mut runtime = Runtime::installed(&one());
    runtime.owner.runtime_id = "runtime-2".to_owned();
    let plan = runtime.plan(&desired);
    let expected = IdentityError::OwnershipConflict {
        runtime: "runtime-1".to_owned(),
    };
    assert_eq!(plan.blocked, Some(Blocked::Identity(expected)));
    assert!(plan.steps.is_empty());
}

#[test]
fn what_cannot_be_read_or_created_blocks_the_plan() {
    let mut runtime = Runtime::new();
    runtime.observed.unread = vec!["get secrets".to_owned()];
    assert!(matches!(
        runtime.plan(&one()).blocked,
        Some(Blocked::MissingPermissions(_))
    ));
    runtime.observed.unread.clear();
    for (state, expected) in [
        (
            NamespaceState::Missing,
            Blocked::NamespaceNotFound(NAMESPACE.to_owned()),
        ),
        (
            NamespaceState::Terminating,
            Blocked::NamespaceTerminating(NAMESPACE.to_owned()),
        ),
    ] {
        runtime.observed.namespace = state;
        assert_eq!(runtime.plan(&one()).blocked, Some(expected));
        assert_eq!(runtime.plan(&removed()).state, WatcherState::Removed);
    }
}
