//! Sources that change, go, or never were.

use std::collections::BTreeMap;

use policy::convergence::sources::{
    ConfigMapView, Document, PullSecret, Reading, SecretView, Sources, TrustBundle,
    TrustBundleView, read_configuration, read_pull_secret, read_trust_bundle,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::world::*;

#[rstest]
#[case::pull_secret(|it: &mut Content| it.password = Some("two"), &[INSTALL[2], INSTALL[4]])]
#[case::bundle(|it: &mut Content| it.roots = Some(roots()), &[INSTALL[3], INSTALL[4]])]
#[case::document(|it: &mut Content| it.registry("two.example"), &[INSTALL[4]])]
#[tokio::test]
async fn changed_source_is_applied_alone_and_the_document_last(
    #[case] change: impl Fn(&mut Content),
    #[case] expected: &[&str],
) {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    let before = world.status("a")["configuration"]["revision"].clone();
    change(&mut world.content);
    world.publish();
    for (name, skr) in ["a", "b"].iter().zip(&skrs) {
        let changed = |it: &World| {
            let version = &it.status(name)["configuration"]["revision"];
            *version != before && version.is_string()
        };
        world.until("another version", changed).await;
        assert_eq!(skr.take(), expected);
    }
    world.settle().await;
    assert!(skrs.iter().all(|it| it.take().is_empty()));
}

#[tokio::test]
async fn what_changes_together_is_one_version() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    world.content.password = Some("two");
    world.publish();
    // Long enough that the first one is seen alone.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    world.content.registry("two.example");
    world.publish();
    let registry = |_: &World| {
        let map = skrs[0].kyma("configmaps/rt-bootstrapper-config").unwrap();
        map.to_string().contains("two.example")
    };
    world.until("the last of both", registry).await;
    world.settle().await;
    assert_eq!(skrs[0].take(), [INSTALL[2], INSTALL[4]]);
}

#[tokio::test]
async fn a_document_loses_the_keys_that_its_source_lost() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    skrs[0].edit(
        "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config",
        |it| {
            it["data"]["foreign"] = json!("key");
        },
    );
    world.content.registry("two.example");
    world.publish();
    world
        .until("written", |_| {
            let map = skrs[0].kyma("configmaps/rt-bootstrapper-config").unwrap();
            map["data"]["foreign"].is_null()
        })
        .await;
}

#[tokio::test]
async fn rolled_out_source_that_is_deleted_is_removed_also_without_a_leader_at_the_deletion() {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    world.content.password = None;
    world.publish();
    world
        .until("removed", |_| {
            skrs.iter()
                .all(|it| it.kyma("secrets/registry-credentials").is_none())
        })
        .await;
    world.settle().await;
    for skr in &skrs {
        let delete = "delete Secret/registry-credentials";
        assert_eq!(
            skr.take(),
            [INSTALL[4], delete],
            "first nothing requires it"
        );
    }
    world
        .until("said", |it| {
            it.status("a")["configuration"]["pullSecretHash"].is_null()
        })
        .await;
    world.stop().await;
    world.content.roots = None;
    world.publish();
    world.start();
    world
        .until("removed", |_| {
            skrs.iter().all(|it| it.get(BUNDLE).is_none())
        })
        .await;
}

/// A flag that is changed or mistyped: the leader that comes up with it finds nothing under the new name.
#[tokio::test]
async fn source_that_is_absent_under_another_name_keeps_its_copies() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    world.stop().await;
    world.content.names.pull_secret = Some("pul".to_owned());
    world.content.password = None;
    world.publish();
    world.start();
    world.pass("a").await;
    let said = world.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "False SourceNotFound");
    assert!(skrs[0].kyma("secrets/registry-credentials").is_some());
    assert_eq!(skrs[0].take(), [""; 0]);
    let record = world.kcp.get("configmaps", "rt-bootstrapper-direct-state");
    assert_eq!(record.unwrap()["data"]["lastSeen.pullSecret.name"], "pull");
}

/// What today's installer wrote counts as ours: its source's deletion would take it away.
fn installers(kind: &str) -> Value {
    let managed = json!([{"manager": "kim-bootstrapper", "operation": "Apply", "fieldsV1": {}}]);
    let metadata = json!({"uid": "u", "resourceVersion": "1", "managedFields": managed});
    json!({"kind": kind, "metadata": metadata})
}

#[tokio::test]
async fn source_that_never_existed_touches_nothing() {
    let mut world = World::new();
    world.content.password = None;
    world.content.roots = None;
    world.publish();
    let skr = world.add("a").await;
    let secret = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";
    let foreign = installers("Secret");
    skr.lock()
        .objects
        .insert(secret.to_owned(), foreign.clone());
    world.start();
    world.until_installed("a").await;
    world.settle().await;
    assert_eq!(skr.get(secret), Some(foreign));
    for kind in ["ConfigurationSynchronized", "Ready"] {
        assert_eq!(world.condition("a", kind), "False SourceNotFound");
    }
    let said = world.status("a")["conditions"].to_string();
    for object in ["Secret kcp-system/pull", "ClusterTrustBundle roots"] {
        assert!(said.contains(&format!("{object} not found")), "{said}");
    }
    assert!(world.written("create events") == 2);
    let writes = skr.take();
    assert!(
        !writes
            .iter()
            .any(|it| it.contains("Secret") || it.contains("Bundle")),
        "{writes:?}"
    );
}

/// The webhook cannot become ready without it, so what is said is what is missing, and what that means.
#[tokio::test]
async fn document_that_never_existed_touches_nothing_until_it_is_created() {
    let mut world = World::new();
    world.content.document = None;
    world.publish();
    let skr = world.add("a").await;
    let path = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";
    let foreign = installers("ConfigMap");
    skr.lock().objects.insert(path.to_owned(), foreign.clone());
    world.start();
    world.until_installed("a").await;
    world.settle().await;
    assert_eq!(skr.get(path), Some(foreign));
    assert!(!skr.take().contains(&INSTALL[4].to_owned()));
    for kind in ["ConfigurationSynchronized", "Ready"] {
        assert_eq!(world.condition("a", kind), "False SourceNotFound");
    }
    let said = world.status("a")["conditions"].to_string();
    for part in [
        "ConfigMap kcp-system/rt-bootstrapper-config not found",
        "the webhook does not become ready",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let gauge = "source_not_found{source=\"configuration\",controller=\"direct\"}";
    assert!(world.metrics().contains(&format!("{gauge} 1")));
    let content = world.status("a")["configuration"].clone();
    assert!(content["configMapHash"].is_null(), "{content}");
    assert!(content["pullSecretHash"].is_string(), "{content}");
    world.content.registry("one.example");
    world.publish();
    world
        .until("said", |it| {
            it.status("a")["configuration"]["configMapHash"].is_string()
        })
        .await;
    world.until_ready("a").await;
    assert!(world.metrics().contains(&format!("{gauge} 0")));
    let transfer = "transfer ConfigMap/rt-bootstrapper-config";
    assert_eq!(skr.take(), [transfer, INSTALL[4]]);
}

fn secret(kind: Option<&'static str>, docker_config: &'static str) -> Reading<PullSecret> {
    let view = SecretView {
        r#type: kind,
        docker_config: Some(docker_config.as_bytes()),
    };
    read_pull_secret(&salt(), Some(view))
}

fn bundle(text: &str) -> Reading<TrustBundle> {
    let view = TrustBundleView {
        signer_name: None,
        trust_bundle: Some(text),
    };
    read_trust_bundle(&salt(), Some(view))
}

fn document(text: Option<&str>) -> Reading<Document> {
    let data = text.map(|text| {
        let key = "rt-bootstrapper-config.json".to_owned();
        BTreeMap::from([(key, text.to_owned())])
    });
    let view = ConfigMapView {
        data: data.as_ref(),
    };
    read_configuration(&salt(), Some(view))
}

const DOCKER_CONFIG: Option<&str> = Some("kubernetes.io/dockerconfigjson");

/// The condition names the source and what is wrong with it, and a document that is good by itself
/// does not go over without its parts.
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
    let (mut world, skrs) = World::converged(&["a"]).await;
    let before = world.status("a")["configuration"].clone();
    world.content.registry("two.example");
    world.publish_bent(spoil);
    world
        .until_condition("a", "ConfigurationSynchronized", "False InvalidSource")
        .await;
    let conditions = world.status("a")["conditions"].to_string();
    for part in named {
        assert!(conditions.contains(part), "{part}: {conditions}");
    }
    world.settle().await;
    assert_eq!(skrs[0].take(), [""; 0]);
    let content = world.status("a")["configuration"].clone();
    for key in ["pullSecret", "trustBundle", "configuration"] {
        assert_eq!(content[key], before[key], "{key}");
    }
    // What is mended goes out.
    world.publish();
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn the_record_comes_before_the_runtimes() {
    let mut world = World::new();
    let skr = world.add("a").await;
    world
        .kcp
        .lock()
        .refusals
        .insert("create configmaps", (500, usize::MAX));
    world.start();
    world
        .until("tried", |it| it.written("refused create configmaps") > 0)
        .await;
    world.settle().await;
    assert_eq!(skr.take(), [""; 0]);
    assert_eq!(world.passes(), 0);
}

/// What was rolled out is known as long as this leader lives, and is written down again.
#[tokio::test]
async fn a_record_that_is_deleted_under_a_leader_loses_no_deletion() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    let record = "rt-bootstrapper-direct-state";
    world.kcp.delete("configmaps", record);
    world.content.password = None;
    world.publish();
    world
        .until("removed", |_| {
            skrs[0].kyma("secrets/registry-credentials").is_none()
        })
        .await;
    let record = world.kcp.get("configmaps", record).unwrap();
    assert_eq!(record["data"]["lastSeen.pullSecret"], "deleted");
    assert!(record["data"]["lastSeen.configuration"].is_string());
}

#[tokio::test]
async fn a_runtime_that_serves_no_bundles_gets_the_rest_and_says_so() {
    let mut world = World::new();
    let skr = world.add("a").await;
    skr.lock().trust_bundles = None;
    world.start();
    world
        .until_condition(
            "a",
            "ConfigurationSynchronized",
            "False TrustBundleAPINotServed",
        )
        .await;
    world
        .until_condition("a", "Installed", "True Installed")
        .await;
    let map = skr.kyma("configmaps/rt-bootstrapper-config").unwrap();
    let requires = "rt-bootstrapper.kyma-project.io/requires-trust-bundle";
    assert_eq!(map["metadata"]["annotations"][requires], "none");
}
