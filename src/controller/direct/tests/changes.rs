//! Tests of sources that change, are deleted, or never existed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use policy::sync::sources::{
    Document, PullSecret, SourceState, Sources, TrustBundle, read_configuration, read_pull_secret,
    read_trust_bundle,
};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Recorded;
use testkit::apiserver::kinds::TRUST_BUNDLES;

use super::env::*;
use super::gates::{CONFIGURATION_LANE, is_completed, progress};

#[rstest]
#[case::pull_secret(|it: &mut Content| it.password = Some("two"), &[INSTALL[2], INSTALL[4]])]
#[case::bundle(|it: &mut Content| it.roots = Some(roots()), &[INSTALL[3], INSTALL[4]])]
#[case::document(|it: &mut Content| it.registry("two.example"), &[INSTALL[4]])]
#[tokio::test]
async fn changed_source_is_applied_alone_and_the_document_last(
    #[case] change: impl Fn(&mut Content),
    #[case] expected: &[&str],
) {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    let before = env.status("a")["configuration"]["revision"].clone();
    change(&mut env.content);
    env.publish();
    for (name, cluster) in ["a", "b"].iter().zip(&clusters) {
        let changed = |it: &Env| {
            let version = &it.status(name)["configuration"]["revision"];
            *version != before && version.is_string()
        };
        env.until("another version", changed).await;
        assert_eq!(cluster.take(), expected);
    }
    env.settle().await;
    assert!(clusters.iter().all(|it| it.take().is_empty()));
}

#[tokio::test]
async fn what_changes_together_is_one_version() {
    let mut env = Env::new();
    env.settings.debounce = Duration::from_secs(2);
    let clusters = env.converge(&["a"]).await;
    env.content.password = Some("two");
    env.publish();
    // Long enough for the controller to observe the first change alone.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    env.content.registry("two.example");
    env.publish();
    let registry = |_: &Env| {
        let map = clusters[0]
            .kyma("configmaps/rt-bootstrapper-config")
            .unwrap();
        map.to_string().contains("two.example")
    };
    env.until("the last of both", registry).await;
    env.settle().await;
    assert_eq!(clusters[0].take(), [INSTALL[2], INSTALL[4]]);
}

#[tokio::test]
async fn a_document_loses_the_keys_that_its_source_lost() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let data = || clusters[0].find(DOCUMENT).unwrap()["data"].clone();
    let data_of = |keys: &[(&str, &str)]| {
        let keys = keys
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let data: BTreeMap<String, String> = keys.collect();
        SourceState::of(Some(read_configuration(&salt(), Some(&data))))
    };
    let document = r#"{"overrides": {}}"#;
    let both = [
        ("rt-bootstrapper-config.json", document),
        ("another.json", "{}"),
    ];
    env.publish_bent(|it| it.configuration = data_of(&both));
    env.until("both keys", |_| data()["another.json"] == "{}")
        .await;
    env.content.registry("two.example");
    env.publish();
    env.until("one key", |_| data()["another.json"].is_null())
        .await;
    assert_eq!(data().as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn rolled_out_source_that_is_deleted_is_removed_also_without_a_leader_at_the_deletion() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    env.content.password = None;
    env.publish();
    env.until("removed", |_| {
        clusters
            .iter()
            .all(|it| it.kyma("secrets/registry-credentials").is_none())
    })
    .await;
    env.settle().await;
    for cluster in &clusters {
        let delete = "delete secrets kyma-system/registry-credentials";
        assert_eq!(
            cluster.take(),
            [INSTALL[4], delete],
            "first nothing requires it"
        );
    }
    env.until("said", |it| {
        it.status("a")["configuration"]["pullSecretHash"].is_null()
    })
    .await;
    env.stop().await;
    env.content.roots = None;
    env.publish();
    env.start();
    env.until("removed", |_| {
        clusters.iter().all(|it| it.find(BUNDLE).is_none())
    })
    .await;
}

/// A flag is changed or has a typo, and the next leader finds no object with the new name.
#[tokio::test]
async fn source_that_is_absent_under_another_name_keeps_its_copies() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    env.stop().await;
    env.content.names.pull_secret = Some("pul".to_owned());
    env.content.password = None;
    env.publish();
    env.start();
    env.pass("a").await;
    let said = env.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "False SourceNotFound");
    assert!(clusters[0].kyma("secrets/registry-credentials").is_some());
    assert_eq!(clusters[0].take(), [""; 0]);
    let record = env.kcp.object("configmaps", "rt-bootstrapper-direct-state");
    assert_eq!(record.unwrap()["data"]["lastSeen.pullSecret.name"], "pull");
}

/// Returns an object that KIM wrote. The controller treats it as its own, so a deletion of the source would delete it.
fn installers(kind: &str, name: &str) -> Value {
    let managed = json!([{
        "manager": "kim-bootstrapper", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {},
    }]);
    let metadata = json!({"name": name, "namespace": "kyma-system", "managedFields": managed});
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
}

#[tokio::test]
async fn source_that_never_existed_touches_nothing() {
    let mut env = Env::new();
    env.content.password = None;
    env.content.roots = None;
    env.publish();
    let cluster = env.add("a").await;
    let secret = "secrets kyma-system/registry-credentials";
    cluster.put(&installers("Secret", "registry-credentials"));
    let foreign = cluster.find(secret);
    env.start();
    env.until_installed("a").await;
    env.settle().await;
    assert_eq!(cluster.find(secret), foreign);
    for kind in ["ConfigurationSynchronized", "Ready"] {
        assert_eq!(env.condition("a", kind), "False SourceNotFound");
    }
    let said = env.status("a")["conditions"].to_string();
    for object in ["Secret kcp-system/pull", "ClusterTrustBundle roots"] {
        assert!(said.contains(&format!("{object} not found")), "{said}");
    }
    let mut events = env.kcp.requests_of("create events");
    events.retain(|it| it.body["reason"] == "SourceNotFound");
    let of_runtime = |it: &&Recorded| it.body["regarding"]["name"] == "a";
    assert_eq!(events.iter().filter(of_runtime).count(), 1);
    assert_eq!(events.len(), 3, "one for each source, one for the runtime");
    let writes = cluster.take();
    assert!(
        !writes
            .iter()
            .any(|it| it.contains(" secrets ") || it.contains("bundles")),
        "{writes:?}"
    );
}

/// The webhook cannot become ready without the document, so the message names the missing object and the consequence.
#[tokio::test]
async fn document_that_never_existed_touches_nothing_until_it_is_created() {
    let mut env = Env::new();
    env.content.document = None;
    env.publish();
    let cluster = env.add("a").await;
    let foreign = installers("ConfigMap", "rt-bootstrapper-config");
    cluster.put(&foreign);
    let foreign = cluster.find(DOCUMENT);
    env.start();
    env.until_installed("a").await;
    env.settle().await;
    assert_eq!(cluster.find(DOCUMENT), foreign);
    assert!(!cluster.take().contains(&INSTALL[4].to_owned()));
    for kind in ["ConfigurationSynchronized", "Ready"] {
        assert_eq!(env.condition("a", kind), "False SourceNotFound");
    }
    let said = env.status("a")["conditions"].to_string();
    for part in [
        "ConfigMap kcp-system/rt-bootstrapper-config not found",
        "the webhook does not become ready",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let gauge = "source_not_found{source=\"configuration\",controller=\"direct\"}";
    assert!(env.metric(gauge, 1));
    let content = env.status("a")["configuration"].clone();
    assert!(content["configMapHash"].is_null(), "{content}");
    assert!(content["pullSecretHash"].is_string(), "{content}");
    env.content.registry("one.example");
    env.publish();
    env.until("said", |it| {
        it.status("a")["configuration"]["configMapHash"].is_string()
    })
    .await;
    env.until_ready("a").await;
    assert!(env.metric(gauge, 0));
    let transfer = "patch configmaps kyma-system/rt-bootstrapper-config";
    assert_eq!(cluster.take(), [transfer, INSTALL[4]]);
}

fn secret(kind: Option<&'static str>, docker_config: &'static str) -> SourceState<Arc<PullSecret>> {
    let config = Some(docker_config.as_bytes());
    SourceState::of(Some(read_pull_secret(&salt(), kind, config)))
}

fn bundle(text: &str) -> SourceState<Arc<TrustBundle>> {
    SourceState::of(Some(read_trust_bundle(&salt(), None, Some(text))))
}

fn document(text: Option<&str>) -> SourceState<Arc<Document>> {
    let data = text.map(|text| {
        let key = "rt-bootstrapper-config.json".to_owned();
        BTreeMap::from([(key, text.to_owned())])
    });
    SourceState::of(Some(read_configuration(&salt(), data.as_ref())))
}

const DOCKER_CONFIG: Option<&str> = Some("kubernetes.io/dockerconfigjson");

/// The condition names the invalid source and its error. A valid document is not written while an object that it
/// requires is invalid.
#[rstest]
#[case::another_type(
    |it: &mut Sources| it.pull_secret = secret(Some("Opaque"), r#"{"auths":{}}"#),
    &["invalid source pullSecret", "got Opaque"]
)]
#[case::no_type(
    |it: &mut Sources| it.pull_secret = secret(None, r#"{"auths":{}}"#),
    &["invalid source pullSecret", "got Opaque"]
)]
#[case::empty_credentials(
    |it: &mut Sources| it.pull_secret = secret(DOCKER_CONFIG, ""),
    &["invalid source pullSecret", ".dockerconfigjson: missing or empty"]
)]
#[case::empty_bundle(
    |it: &mut Sources| it.trust_bundle = bundle(""),
    &["invalid source trustBundle", "no PEM certificate found"]
)]
#[case::bundle(
    |it: &mut Sources| it.trust_bundle = bundle("no PEM"),
    &["invalid source trustBundle", "no PEM certificate found"]
)]
#[case::document(
    |it: &mut Sources| it.configuration = document(Some("{")),
    &["invalid source configuration", "rt-bootstrapper-config.json"]
)]
#[case::no_data(
    |it: &mut Sources| it.configuration = document(None),
    &["invalid source configuration", "rt-bootstrapper-config.json: missing or empty"]
)]
#[tokio::test]
async fn invalid_source_is_reported_and_nothing_is_written(
    #[case] spoil: impl Fn(&mut Sources),
    #[case] named: &[&str],
) {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let before = env.status("a")["configuration"].clone();
    env.content.registry("two.example");
    env.publish_bent(spoil);
    env.until_condition("a", "ConfigurationSynchronized", "False InvalidSource")
        .await;
    let conditions = env.status("a")["conditions"].to_string();
    for part in named {
        assert!(conditions.contains(part), "{part}: {conditions}");
    }
    env.settle().await;
    assert_eq!(clusters[0].take(), [""; 0]);
    let content = env.status("a")["configuration"].clone();
    for key in ["pullSecret", "trustBundle", "configuration"] {
        assert_eq!(content[key], before[key], "{key}");
    }
    let conditions = |env: &Env| progress(env, CONFIGURATION_LANE)["conditions"].to_string();
    env.until("no completed rollout", |it| {
        conditions(it).contains("InvalidSource") && !is_completed(it, CONFIGURATION_LANE)
    })
    .await;
    // A corrected source is rolled out.
    env.publish();
    env.until_ready("a").await;
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
    assert_eq!(clusters[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn the_record_comes_before_the_runtimes() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let refusal = env.kcp.fault("create configmaps").status(500);
    env.start();
    env.until("tried", |_| refusal.hits() > 0).await;
    env.settle().await;
    assert_eq!(cluster.take(), [""; 0]);
    assert_eq!(env.passes(), 0);
    let invalid = "direct_state_invalid";
    assert!(env.metric(invalid, 1));
    refusal.stop();
    env.until("it is saved", |it| it.metric(invalid, 0)).await;
}

/// The leader keeps the history of rolled-out sources in memory, and writes the ConfigMap again.
#[tokio::test]
async fn a_record_that_is_deleted_under_a_leader_loses_no_deletion() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let record = "rt-bootstrapper-direct-state";
    env.kcp.delete("configmaps", record);
    env.content.password = None;
    env.publish();
    env.until("removed", |_| {
        clusters[0].kyma("secrets/registry-credentials").is_none()
    })
    .await;
    let record = env.kcp.object("configmaps", record).unwrap();
    assert_eq!(record["data"]["lastSeen.pullSecret"], "deleted");
    assert!(record["data"]["lastSeen.configuration"].is_string());
}

#[tokio::test]
async fn a_runtime_that_serves_no_bundles_gets_the_rest_and_says_so() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.behave(|it| {
        let others = it.kinds.iter().copied();
        it.kinds = others.filter(|it| it.resource != TRUST_BUNDLES).collect();
    });
    env.start();
    env.until_condition(
        "a",
        "ConfigurationSynchronized",
        "False TrustBundleAPINotServed",
    )
    .await;
    env.until_condition("a", "Installed", "True Installed")
        .await;
    let map = cluster.kyma("configmaps/rt-bootstrapper-config").unwrap();
    let requires = "rt-bootstrapper.kyma-project.io/requires-trust-bundle";
    assert_eq!(map["metadata"]["annotations"][requires], "none");
}

/// The change of the source makes runtimes due, not the progress that the watch returns.
#[tokio::test]
async fn a_changed_source_is_applied_also_while_the_progress_cannot_be_written() {
    let mut env = Env::new();
    let progress = "create runtimebootstrapperrollouts";
    let refusal = env.kcp.fault(progress).status(500);
    let clusters = env.converge(&["a"]).await;
    env.content.registry("two.example");
    env.publish();
    env.until("written", |_| clusters[0].take() == [INSTALL[4]])
        .await;
    env.until("refused", |_| refusal.hits() > 0).await;
}
