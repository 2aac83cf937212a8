//! Tests of the fallback policy with an API server, and with the watches that provide its input. The clock is paused.

use std::time::Duration;

use api::names::{CONFIG_KEY, CONFIG_MAP, POLICY_REVISION, WEBHOOK_CONFIGURATION};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Rights};
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::watches::Watches;
use crate::watches::fixtures::watches_of;

const POLICIES: &str = "mutatingadmissionpolicies";
const BINDINGS: &str = "mutatingadmissionpolicybindings";

/// A cluster with the webhook configuration and a document, and a leader of the webhook.
struct Environment {
    server: ApiServer,
    registry: Registry,
    snapshots: SnapshotStore,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Environment {
    async fn start() -> Self {
        let env = Self::prepared();
        env.lead(true).await
    }

    fn prepared() -> Self {
        let env = Self {
            server: ApiServer::new(),
            registry: Registry::default(),
            snapshots: SnapshotStore::default(),
            running: None,
        };
        env.put_webhook_configuration();
        env.put_document("mirror.example");
        env
    }

    /// The permissions are those of the manifests, in which a flag enables the policy.
    async fn lead(mut self, enabled: bool) -> Self {
        let text = include_str!("../../../deploy/webhook/rbac.yaml");
        let on = "verbs: [create, delete, get, list, patch, update, watch]";
        let text = if enabled {
            text.replace("verbs: [delete] # setting: fallback-policy-verbs", on)
        } else {
            text.to_owned()
        };
        let roles: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        self.server
            .behave(|it| it.rights = Rights::of_roles(&roles));
        let watches = Watches {
            snapshots: self.snapshots.clone(),
            ..watches_of(&self.server)
        };
        let policy = FallbackPolicy::new(
            watches.client.clone(),
            self.snapshots.clone(),
            (Readiness::default(), WatchMetrics::default()),
            FallbackMetrics::register(&mut self.registry),
            FallbackSettings {
                enabled,
                namespace: "kyma-system".to_owned(),
                webhook_configuration: WEBHOOK_CONFIGURATION.to_owned(),
            },
        );
        let token = CancellationToken::new();
        let end = token.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = watches.run() => {}
                () = policy.watch() => {}
                () = policy.clone().reconcile(end) => {}
            }
        });
        self.running = Some((token, task));
        self.settle().await;
        self
    }

    async fn settle(&self) {
        sleep(Duration::from_secs(5)).await;
    }

    fn put_webhook_configuration(&self) {
        self.server.put(&json!({
            "apiVersion": GROUP_VERSION, "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": WEBHOOK_CONFIGURATION}, "webhooks": [],
        }));
    }

    fn put_document(&self, mirror: &str) {
        self.put_overrides(&json!({"old.example": mirror}));
    }

    fn put_overrides(&self, overrides: &Value) {
        let document = json!({
            "availableFeatures": ["rt-cfg.kyma-project.io/alter-img-registry"], "overrides": overrides,
        });
        self.server.put(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": "kyma-system"},
            "data": {CONFIG_KEY: document.to_string()},
        }));
    }

    fn policy(&self) -> Option<Value> {
        self.server.get(POLICIES, "", FALLBACK_POLICY)
    }

    fn binding(&self) -> Option<Value> {
        self.server.get(BINDINGS, "", FALLBACK_POLICY)
    }

    /// Makes the API server evaluate the policy that it has stored.
    async fn evaluate(&self) {
        let policy = self.policy().unwrap();
        let mutations = policy["spec"]["mutations"].as_array().unwrap();
        let last = mutations.last().unwrap()["jsonPatch"]["expression"].as_str();
        let revision = last.unwrap().rsplit('"').nth(1).unwrap().to_owned();
        self.server
            .behave(|it| it.added = Some((POLICY_REVISION, revision)));
        sleep(Duration::from_mins(1)).await;
    }

    /// Checks that the policy and its binding are stored, and that the policy rewrites to this registry.
    #[track_caller]
    fn expect_policy(&self, mirror: &str) {
        let policy = self.policy().expect("a policy").to_string();
        assert!(policy.contains(mirror), "{policy}");
        let binding = self.binding().expect("a binding");
        assert_eq!(binding["spec"]["policyName"], FALLBACK_POLICY);
    }

    #[track_caller]
    fn expect_active(&self, expected: bool) {
        assert_eq!(self.snapshots.fallback_policy(), expected);
        assert_eq!(self.active(), expected);
    }

    #[track_caller]
    fn expect_none(&self) {
        assert_eq!((self.policy(), self.binding()), (None, None));
        self.expect_active(false);
    }

    fn active(&self) -> bool {
        self.gauge("fallback_policy_active")
    }

    fn gauge(&self, name: &str) -> bool {
        Samples::of(&self.registry).count(name) == 1
    }

    /// Adds a value to a stored object, as another client.
    fn edit(&self, resource: &str, pointer: &str, value: &Value) {
        let operations = json!([{"op": "add", "path": pointer, "value": value}]);
        let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
        self.server.edit(resource, ("", FALLBACK_POLICY), |object| {
            json_patch::patch(object, &operations).unwrap();
        });
    }

    fn writes(&self) -> usize {
        let is_ours = |it: &&String| it.contains("mutatingadmissionpolic");
        self.server.writes().iter().filter(is_ours).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_follows_the_document() {
    let env = Environment::start().await;
    env.expect_policy("mirror.example");
    let owner = &env.policy().unwrap()["metadata"]["ownerReferences"][0];
    let configuration = env
        .server
        .get("mutatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION);
    assert_eq!(owner["uid"], configuration.unwrap()["metadata"]["uid"]);
    assert_eq!(env.writes(), 2);
    env.put_document("other.example");
    env.settle().await;
    env.expect_policy("other.example");
    assert_eq!(env.writes(), 3);
}

/// The evaluation of a policy starts seconds after its write, and reasons must not contain a policy that is not evaluated.
#[tokio::test(start_paused = true)]
async fn a_policy_is_active_when_a_dry_run_shows_it() {
    let env = Environment::start().await;
    env.expect_active(false);
    env.evaluate().await;
    env.expect_active(true);
    let asked = env.server.count("create pods");
    sleep(Duration::from_hours(1)).await;
    let asked = env.server.count("create pods") - asked;
    assert!((12..=16).contains(&asked), "{asked} dry runs");
    env.server.behave(|it| it.added = None);
    sleep(Duration::from_mins(5)).await;
    env.expect_active(false);
    env.evaluate().await;
    env.expect_active(true);
    env.put_document("other.example");
    env.settle().await;
    env.expect_active(false);
    env.evaluate().await;
    env.expect_active(true);
    env.put_overrides(&json!({}));
    env.settle().await;
    env.expect_none();
}

#[tokio::test(start_paused = true)]
async fn a_document_that_changes_no_pod_has_no_policy() {
    let env = Environment::start().await;
    assert!(env.gauge("fallback_policy_wanted"));
    env.put_overrides(&json!({}));
    env.settle().await;
    assert!(!env.gauge("fallback_policy_wanted"));
    env.expect_none();
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_too_large_has_no_policy() {
    let env = Environment::start().await;
    let hosts = (0..2000).map(|it| {
        (
            format!("registry-{it}.example"),
            json!("mirror.example/a/long/path"),
        )
    });
    env.put_overrides(&Value::Object(hosts.collect()));
    env.settle().await;
    assert!(env.gauge("fallback_policy_wanted"), "an alert");
    env.expect_none();
}

/// Changes of the objects by other clients (an empty path means a deletion), and the number of writes that follow.
#[rstest]
#[case::policy_deleted(POLICIES, "", Value::Null, 1)]
#[case::binding_deleted(BINDINGS, "", Value::Null, 1)]
#[case::failure_policy(POLICIES, "/spec/failurePolicy", json!("Fail"), 1)]
#[case::condition(POLICIES, "/spec/matchConditions/-", json!({"name": "x", "expression": "false"}), 1)]
#[case::parameters(POLICIES, "/spec/paramKind", json!({"apiVersion": "v1", "kind": "ConfigMap"}), 1)]
#[case::other_policy(BINDINGS, "/spec/policyName", json!("other"), 1)]
#[case::narrowed(BINDINGS, "/spec/matchResources", json!({"namespaceSelector": {"matchLabels": {"a": "b"}}}), 1)]
#[case::excluded(POLICIES, "/spec/matchConstraints/objectSelector/matchLabels", json!({"a": "b"}), 1)]
#[case::orphaned(POLICIES, "/metadata/ownerReferences", json!([]), 1)]
#[case::label(POLICIES, "/metadata/labels/theirs", json!("a"), 0)]
#[tokio::test(start_paused = true)]
async fn edits_of_others_are_undone(
    #[case] resource: &str,
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] writes: usize,
) {
    let env = Environment::start().await;
    let specs = || [env.policy(), env.binding()].map(|it| it.unwrap()["spec"].clone());
    let before = specs();
    let count = env.writes();
    if pointer.is_empty() {
        env.server.delete(resource, "", FALLBACK_POLICY);
    } else {
        env.edit(resource, pointer, &value);
    }
    env.settle().await;
    env.expect_policy("mirror.example");
    assert_eq!(specs(), before);
    assert_eq!(env.writes() - count, writes);
}

/// A client that overwrites the policy each time causes writes with pauses.
#[tokio::test(start_paused = true)]
async fn a_contested_policy_is_written_with_backoff() {
    let env = Environment::start().await;
    let count = env.writes();
    for _ in 0..600 {
        if env
            .policy()
            .is_some_and(|it| it["spec"]["failurePolicy"] == "Ignore")
        {
            env.edit(POLICIES, "/spec/failurePolicy", &json!("Fail"));
        }
        sleep(Duration::from_secs(1)).await;
    }
    let written = env.writes() - count;
    assert!(
        (10..=50).contains(&written),
        "{written} writes in ten minutes"
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_webhook_configuration_there_is_no_policy() {
    let env = Environment::prepared();
    env.server
        .remove("mutatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION);
    let env = env.lead(true).await;
    env.expect_none();
    env.put_webhook_configuration();
    sleep(Duration::from_mins(1)).await;
    env.expect_policy("mirror.example");
}

#[tokio::test(start_paused = true)]
async fn switched_off_a_policy_from_before_is_deleted() {
    let mut env = Environment::start().await;
    let (token, task) = env.running.take().unwrap();
    token.cancel();
    task.await.unwrap();
    env.snapshots = SnapshotStore::default();
    env.registry = Registry::default();
    let env = env.lead(false).await;
    env.expect_none();
}

/// A write after failures contains the policy of the document that is active by then.
#[tokio::test(start_paused = true)]
async fn a_retry_writes_the_active_document() {
    let env = Environment::prepared();
    let fault = env.server.fault("apply mutatingadmissionpolicies");
    let fault = fault.status(500);
    let env = env.lead(true).await;
    env.put_document("other.example");
    env.settle().await;
    fault.stop();
    sleep(Duration::from_mins(1)).await;
    env.expect_policy("other.example");
    // The policy of the earlier document was not written first.
    assert_eq!(env.policy().unwrap()["metadata"]["generation"], 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_serve_the_kinds_is_not_asked_for_objects() {
    let env = Environment::prepared();
    env.server.behave(|it| {
        let kinds = it.kinds.iter().filter(|kind| !KINDS.contains(&kind.name));
        it.kinds = kinds.copied().collect();
    });
    let env = env.lead(true).await;
    sleep(Duration::from_mins(10)).await;
    let asked = env.server.requests();
    let asked = asked.iter().map(|it| it.asked.to_string());
    let asked: Vec<String> = asked
        .filter(|it| it.contains("mutatingadmission"))
        .collect();
    assert_eq!(asked, [""; 0]);
    env.expect_none();
}

/// Manifests from before the policy contain no permission to delete a policy.
#[rstest]
#[case::forbidden(403, 1)]
#[case::failed(500, 10)]
#[tokio::test(start_paused = true)]
async fn a_deletion_without_the_right_is_not_tried_again(
    #[case] status: u16,
    #[case] least: usize,
) {
    let env = Environment::prepared();
    let fault = env.server.fault("delete mutatingadmissionpolicies");
    let fault = fault.status(status);
    let env = env.lead(false).await;
    sleep(Duration::from_mins(10)).await;
    let hits = fault.hits();
    assert!(
        if status == 403 {
            hits == least
        } else {
            hits >= least
        },
        "{hits}"
    );
    env.expect_none();
}

/// A new leader finds the objects of the previous leader, and writes nothing.
#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_nothing() {
    let mut env = Environment::start().await;
    let (token, task) = env.running.take().unwrap();
    token.cancel();
    task.await.unwrap();
    let count = env.writes();
    env.snapshots = SnapshotStore::default();
    env.registry = Registry::default();
    let env = env.lead(true).await;
    env.expect_policy("mirror.example");
    assert_eq!(env.writes(), count);
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_tried_again() {
    let env = Environment::prepared();
    let fault = env
        .server
        .fault("apply mutatingadmissionpolicies")
        .times(2)
        .status(500);
    let env = env.lead(true).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fault.hits(), 2);
    env.expect_policy("mirror.example");
}
