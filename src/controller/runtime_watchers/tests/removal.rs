//! Tests of removing the watcher from a runtime that no Kyma represents any more, also by the next leader. The controller of
//! Certificates runs, too.

use rstest::rstest;

use super::*;
use crate::kyma::WATCHER_FINALIZER;
use crate::runtime_cluster::BARE;

const NAME: &str = "one-webhook-tls";
const ANNOTATION: &str = "rt-bootstrapper.kyma-project.io/earlier-runtime-ids";

impl Env {
    /// Returns an environment as [`Env::installed`], with the Certificate of the Kyma.
    async fn installed_with_certificate() -> (Self, RuntimeCluster) {
        let mut env = Self::new();
        env.has_certificates = true;
        let cluster = env.install().await;
        env.until("its Certificate names it", |env| {
            env.certificate()
                .is_some_and(|it| it["spec"]["commonName"] == "id-one")
        })
        .await;
        (env, cluster)
    }

    fn certificate(&self) -> Option<Value> {
        self.kcp.get("certificates", ISTIO_NAMESPACE, NAME)
    }

    /// Returns whether the Certificate names a runtime from which the watcher has to be removed.
    fn names_runtime(&self) -> bool {
        self.certificate().is_some_and(|it| {
            let metadata = &it["metadata"];
            let finalizers = metadata["finalizers"].as_array();
            let is_kept = finalizers.is_some_and(|it| it.contains(&json!(WATCHER_FINALIZER)));
            is_kept || metadata["annotations"].get(ANNOTATION).is_some()
        })
    }

    /// The Kyma gets another runtime ID, whose runtime exists.
    async fn change_runtime(&self) -> RuntimeCluster {
        let cluster = RuntimeCluster::new("uid-new").await;
        cluster.behave(|it| it.rights = documented_rights());
        self.connect("id-new", &cluster);
        let labels = json!({"metadata": {"labels": {"kyma-project.io/runtime-id": "id-new"}}});
        self.kcp.merge("kymas", "one", &labels);
        cluster
    }
}

#[tokio::test]
async fn the_watcher_of_a_kyma_that_was_deleted_without_a_leader_is_removed() {
    let (mut env, cluster) = Env::installed_with_certificate().await;
    env.stop().await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.start();
    env.until("it is removed", |_| cluster.inventory() == BARE)
        .await;
    env.until("nothing names the runtime", |env| !env.names_runtime())
        .await;
    let secret = || env.kcp.get("secrets", ISTIO_NAMESPACE, NAME);
    assert_eq!(secret(), None);
}

#[tokio::test]
async fn the_next_leader_continues_a_removal() {
    let (mut env, cluster) = Env::installed_with_certificate().await;
    let outage = cluster.outage(500);
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("the removal has begun", Env::names_runtime).await;
    env.stop().await;
    outage.stop();
    assert!(cluster.find(SECRET).is_some());
    env.start();
    env.until("it is removed", |_| cluster.inventory() == BARE)
        .await;
    env.until("nothing names the runtime", |env| !env.names_runtime())
        .await;
}

/// The runtime ID changes while the controller runs, or without a leader.
#[rstest]
#[tokio::test]
async fn the_watcher_on_the_runtime_of_an_earlier_id_is_removed(
    #[values(false, true)] is_stopped: bool,
) {
    let (mut env, earlier) = Env::installed_with_certificate().await;
    if is_stopped {
        env.stop().await;
    }
    let later = env.change_runtime().await;
    if is_stopped {
        env.start();
    }
    env.until("it is removed", |_| earlier.inventory() == BARE)
        .await;
    env.issue_for("one", "id-new", &env.authority);
    env.until("the other has it", |_| entries(&later) == [entry("klm")])
        .await;
    env.until("nothing names the runtime", |env| !env.names_runtime())
        .await;
}

#[tokio::test]
async fn the_next_leader_continues_the_removal_from_the_runtime_of_an_earlier_id() {
    let (mut env, earlier) = Env::installed_with_certificate().await;
    let outage = earlier.outage(500);
    env.change_runtime().await;
    env.until("the removal has begun", Env::names_runtime).await;
    env.stop().await;
    outage.stop();
    env.start();
    env.until("it is removed", |_| earlier.inventory() == BARE)
        .await;
}

/// Another Kyma, or a RuntimeBootstrapper with this or another name, has the earlier runtime ID.
#[rstest]
#[case::kyma(|env: &Env| env.kcp.put(kyma("two", "id-one")))]
#[case::bootstrapper(|env: &Env| env.kcp.put(with_id("two")))]
#[case::bootstrapper_of_the_kyma(|env: &Env| env.kcp.put(with_id("one")))]
#[tokio::test]
async fn a_runtime_that_is_represented_keeps_its_watcher(#[case] represent: fn(&Env)) {
    let (mut env, cluster) = Env::installed_with_certificate().await;
    env.stop().await;
    represent(&env);
    env.change_runtime().await;
    let before = cluster.inventory();
    cluster.take();
    env.start();
    let patch = format!("patch certificates {ISTIO_NAMESPACE}/{NAME}");
    env.until("the removal has ended", |env| {
        let patches = env.kcp.requests_of(&patch);
        let annotations = |it: &Recorded| it.body["metadata"]["annotations"].clone();
        patches
            .iter()
            .any(|it| annotations(it).get(ANNOTATION) == Some(&Value::Null))
    })
    .await;
    assert_eq!(cluster.inventory(), before);
    assert_eq!(deletions(&cluster), [""; 0]);
}

/// The RuntimeBootstrapper that represents the runtime is not listed yet.
#[tokio::test]
async fn nothing_is_removed_before_all_bootstrappers_are_listed() {
    let (mut env, cluster) = Env::installed_with_certificate().await;
    env.stop().await;
    env.kcp.put(with_id("two"));
    env.change_runtime().await;
    let before = cluster.inventory();
    let hold = env.kcp.fault("list runtimebootstrappers").hold();
    env.start();
    env.until("the Certificate names the runtime", Env::names_runtime)
        .await;
    stays(|| env.names_runtime()).await;
    assert_eq!(cluster.inventory(), before);
    drop(hold);
    env.until("the removal has ended", |env| !env.names_runtime())
        .await;
    assert_eq!(cluster.inventory(), before);
}

/// A reconcile that reads the runtime before its ID changes would write again what was removed.
#[tokio::test]
async fn a_removal_waits_for_a_reconcile_of_the_runtime_in_progress() {
    let (env, cluster) = Env::installed_with_certificate().await;
    let hold = cluster
        .fault("apply validatingwebhookconfigurations")
        .hold();
    env.kcp.put(watcher("two"));
    env.until("the reconcile writes", |_| hold.hits() > 0).await;
    env.change_runtime().await;
    env.until("the Certificate names the runtime", Env::names_runtime)
        .await;
    stays(|| env.names_runtime()).await;
    assert_eq!(deletions(&cluster), [""; 0]);
    drop(hold);
    env.until("nothing names the runtime", |env| !env.names_runtime())
        .await;
    assert_eq!(cluster.inventory(), BARE);
}

/// The Certificate was deleted longer ago than the limit.
#[tokio::test]
async fn a_runtime_that_does_not_respond_leaves_nothing_after_the_limit() {
    let (mut env, cluster) = Env::installed_with_certificate().await;
    env.stop().await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.kcp.remove("secrets", ISTIO_NAMESPACE, NAME);
    let place = (ISTIO_NAMESPACE, NAME);
    env.kcp.edit("certificates", place, |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        it["metadata"]["finalizers"] = json!([WATCHER_FINALIZER]);
    });
    let _outage = cluster.outage(500);
    cluster.take();
    env.start();
    env.until("it is given up", |env| env.certificate().is_none())
        .await;
    assert!(!cluster.requests().is_empty());
}

fn with_id(name: &str) -> Value {
    let mut resource = crate::fixture::bootstrapper(name);
    resource["status"] = json!({"runtimeID": "id-one"});
    resource["metadata"]["annotations"] = json!({"skr-domain": "one.kyma.example"});
    resource
}
