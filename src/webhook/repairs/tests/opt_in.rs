//! Tests of the time since when a Namespace opts in: by its annotations, and by its labels where a selector reads them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::opt_in::NamespaceTimes;
use super::MISSED;
use super::env::*;
use crate::snapshot::KnownNamespace;

const MISSED_IN_OTHER: &str = r#"missed_pods{namespace="other",reason="ImageRewritten"}"#;
const KEY: &str = "rt-cfg.kyma-project.io/alter-img-registry";

/// Returns the field manager of the opt-in, which owns further fields of the metadata.
fn manager(others: &Value) -> Value {
    let mut fields = json!({"f:annotations": {".": {}, format!("f:{KEY}"): {}}});
    if let (Some(fields), Some(others)) = (fields.as_object_mut(), others.as_object()) {
        fields.extend(others.clone());
    }
    json!([{
        "manager": "kubectl-annotate", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": fields},
    }])
}

fn opt_in(env: &Environment, name: &str) {
    env.server.edit("namespaces", ("", name), |namespace| {
        namespace["metadata"]["annotations"] = json!({KEY: "true"});
        namespace["metadata"]["managedFields"] = manager(&json!({}));
    });
}

fn put_pod(env: &Environment, name: &str) {
    env.server.put(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "other"},
        "spec": {"containers": [{"name": "c", "image": "old.example/web:1"}]},
    }));
}

/// A client that continuously writes labels and annotations must not hide missed Pods of a Namespace that the document covers.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_label_that_decides_nothing_hides_no_missed_pod(#[values(false, true)] selector: bool) {
    let env = Environment::start(EvictionSettings::default()).await;
    if selector {
        env.select_namespaces();
        sleep(Duration::from_secs(10)).await;
    }
    env.put_pod("web", false);
    sleep(Duration::from_secs(10)).await;
    env.server.edit("namespaces", ("", "shop"), |namespace| {
        namespace["metadata"]["labels"] = json!({"team": "a"});
        namespace["metadata"]["managedFields"] = json!([{
            "manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}},
        }]);
    });
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(MISSED), Some(1.0));
}

/// In a cluster with thousands of Namespaces, some client changes labels all the time.
#[rstest]
#[tokio::test(start_paused = true)]
async fn pods_are_listed_for_a_changed_label_only_if_a_selector_reads_labels(
    #[values(false, true)] selector: bool,
) {
    let env = Environment::start(EvictionSettings::default()).await;
    env.server.namespace("other");
    if selector {
        env.select_namespaces();
    }
    sleep(Duration::from_secs(30)).await;
    env.server.take_requests();
    env.server.edit("namespaces", ("", "other"), |namespace| {
        namespace["metadata"]["labels"] = json!({"team": "a"});
    });
    sleep(Duration::from_secs(10)).await;
    assert_eq!(env.server.count("list pods other/"), usize::from(selector));
}

/// Returns an environment with a Pod from before the opt-in of its Namespace, and a missed one from after it.
async fn opted_in_between() -> Environment {
    let env = Environment::start(EvictionSettings::default()).await;
    put_pod(&env, "before");
    sleep(Duration::from_secs(10)).await;
    opt_in(&env, "other");
    sleep(Duration::from_secs(10)).await;
    put_pod(&env, "after");
    env.until(MISSED_IN_OTHER, Some(1.0)).await;
    env
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_opts_in_covers_its_new_pods_only() {
    let env = opted_in_between().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(MISSED_IN_OTHER), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_opts_in_while_no_replica_runs_covers_its_new_pods_only() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.server.namespace("other");
    put_pod(&env, "before");
    sleep(Duration::from_secs(10)).await;
    opt_in(&env, "other");
    sleep(Duration::from_secs(10)).await;
    put_pod(&env, "after");
    env.lead(EvictionSettings::default()).await;
    env.until(MISSED_IN_OTHER, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(MISSED_IN_OTHER), Some(1.0));
}

/// A client may replace the managed fields, and with them the time of the opt-in. A Pod from before it must not be evicted. A
/// Pod that opted in itself when it was created is missed.
#[rstest]
#[case::while_a_leader_runs(true, false, Some(1.0))]
#[case::while_no_replica_runs(false, false, None)]
#[case::with_a_pod_that_opts_in(false, true, Some(1.0))]
#[tokio::test(start_paused = true)]
async fn an_opt_in_without_managed_fields_covers_no_pod_from_before_it(
    #[case] is_observed: bool,
    #[case] pod_opts_in: bool,
    #[case] missed: Option<f64>,
) {
    let mut env = opted_in_between().await;
    // One opted in when it was created. Nothing tells when the other one did.
    if pod_opts_in {
        for (name, managers) in [("own", manager(&json!({}))), ("later", json!([{}]))] {
            put_pod(&env, name);
            env.server.edit("pods", ("other", name), |pod| {
                pod["metadata"]["annotations"] = json!({KEY: "true"});
                pod["metadata"]["managedFields"] = managers;
            });
        }
    }
    if !is_observed {
        env.stop().await;
    }
    env.server.edit("namespaces", ("", "other"), |namespace| {
        namespace["metadata"]["managedFields"] = managed("f:spec");
    });
    if !is_observed {
        env.lead(EvictionSettings::default()).await;
    }
    // The record has the time after a minute.
    sleep(Duration::from_mins(2)).await;
    assert_eq!(env.value(MISSED_IN_OTHER), missed);
    if is_observed {
        env.stop().await;
        env.lead(EvictionSettings::default()).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(env.value(MISSED_IN_OTHER), missed, "the next leader");
    }
}

/// The document requests the trust bundle for this Namespace. A Pod may opt out of it, and a Namespace cannot.
#[tokio::test(start_paused = true)]
async fn a_later_annotation_of_a_namespace_hides_no_pod_that_the_document_covers() {
    let env = Environment::start(EvictionSettings::default()).await;
    sleep(Duration::from_secs(10)).await;
    env.server.put(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "mirror.example/web:1"}]},
    }));
    let missed = r#"missed_pods{namespace="shop",reason="TrustBundleMounted"}"#;
    env.until(missed, Some(1.0)).await;
    sleep(Duration::from_secs(10)).await;
    opt_in(&env, "shop");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(missed), Some(1.0));
}

/// The client that opted a Namespace in writes one of its labels. Field managers then tell the time of the label.
#[tokio::test(start_paused = true)]
async fn a_later_write_by_the_client_that_opted_in_hides_no_missed_pod_from_the_next_leader() {
    let mut env = opted_in_between().await;
    sleep(Duration::from_secs(10)).await;
    env.server.edit("namespaces", ("", "other"), |namespace| {
        namespace["metadata"]["labels"] = json!({"team": "a"});
        namespace["metadata"]["managedFields"] = manager(&json!({"f:labels": {"f:team": {}}}));
    });
    sleep(Duration::from_secs(30)).await;
    // Two more leaders, the second of which never saw the time of the opt-in.
    for _ in 0..2 {
        env.stop().await;
        env.lead(EvictionSettings::default()).await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(env.value(MISSED_IN_OTHER), Some(1.0));
    }
}

/// A Namespace of the same name opts in after the creation of its first Pods, as the one before it did not.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_deleted_namespace_is_not_that_of_its_successor() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.server.namespace("other");
    opt_in(&env, "other");
    sleep(Duration::from_secs(10)).await;
    env.server.edit("namespaces", ("", "other"), |namespace| {
        namespace["metadata"]["labels"] = json!({"team": "a"});
        namespace["metadata"]["managedFields"] = manager(&json!({"f:labels": {"f:team": {}}}));
    });
    sleep(Duration::from_secs(30)).await;
    env.stop().await;
    env.server.remove("namespaces", "", "other");
    sleep(Duration::from_secs(10)).await;
    env.server.namespace("other");
    put_pod(&env, "before");
    sleep(Duration::from_secs(10)).await;
    opt_in(&env, "other");
    env.lead(EvictionSettings::default()).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(MISSED_IN_OTHER), None);
}

/// A Secret has at most 1 MiB.
#[test]
fn the_stored_times_of_namespaces_are_bounded() {
    let namespace = |annotated| KnownNamespace {
        annotated: Some(Timestamp::from_second(annotated).unwrap()),
        has_earlier_times: true,
        ..KnownNamespace::default()
    };
    let namespaces = (0..10_000).map(|number| {
        let known = Arc::new(namespace(1_800_000_000 + number));
        (format!("{number:0>63}"), known)
    });
    let namespaces: HashMap<String, _> = namespaces.collect();
    let mut times = NamespaceTimes::default();
    assert!(times.follow(&namespaces, false));
    assert!(!times.follow(&namespaces, false), "no change, no write");
    let json = times.json(200_000).unwrap();
    assert!((100_000..200_000).contains(&json.len()), "{}", json.len());
    let (name, later) = (format!("{:0>63}", 0), namespace(1_900_000_000));
    let kept = NamespaceTimes::parse(&json).kept(&name, &later).annotated;
    assert_eq!(kept, namespaces[&name].annotated);
}

fn annotated_at(seconds: i64) -> KnownNamespace {
    KnownNamespace {
        annotated: Some(Timestamp::from_second(seconds).unwrap()),
        has_earlier_times: true,
        ..KnownNamespace::default()
    }
}

fn only(namespace: KnownNamespace) -> HashMap<String, Arc<KnownNamespace>> {
    HashMap::from([("shop".to_owned(), Arc::new(namespace))])
}

/// The annotation was removed and set again while the record was not updated.
#[rstest]
#[case::not_observed(false, 1_800_000_000)]
#[case::observed(true, 1_900_000_000)]
fn a_change_that_the_process_has_observed_has_its_own_time(
    #[case] is_observed: bool,
    #[case] expected: i64,
) {
    let mut times = NamespaceTimes::default();
    assert!(times.follow(&only(annotated_at(1_800_000_000)), false));
    let mut later = annotated_at(1_900_000_000);
    later.observed.annotations = is_observed;
    let kept = times.kept("shop", &later).annotated;
    assert_eq!(kept.map(Timestamp::as_second), Some(expected));
}

/// Labels may change often, and each change of the record is a write.
#[rstest]
#[case::without_a_selector(false)]
#[case::with_a_selector(true)]
fn labels_are_stored_for_a_selector_only(#[case] has_selector: bool) {
    let labelled = |value: &str, seconds| {
        let mut namespace = annotated_at(1_800_000_000);
        let label = ("team".to_owned(), value.to_owned());
        namespace.view.labels = BTreeMap::from([label]);
        namespace.labelled = Some(Timestamp::from_second(seconds).unwrap());
        only(namespace)
    };
    let mut times = NamespaceTimes::default();
    assert!(times.follow(&labelled("a", 1_800_000_001), has_selector));
    let is_changed = times.follow(&labelled("b", 1_800_000_002), has_selector);
    assert_eq!(is_changed, has_selector);
}
