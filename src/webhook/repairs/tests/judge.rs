//! Tests of the judgment of one stored Pod.

use std::sync::Arc;

use api::bootstrapper::RestartCause;
use api::config::Document;
use policy::admission::{Configuration, Settings, TrustBundlePresence};
use policy::repairs::{Deviation, RevisionTimes};
use rstest::rstest;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::pod::{Basis, JudgedPod, StoredPod};
use super::CREATED;
use super::env::adapted_spec;
use crate::snapshot::ActiveRevision;

/// Judges a stored Pod by a configuration that rewrites images of `old.example` and mounts a trust bundle, both since the time
/// `CREATED`. The webhook is in Namespace `kyma-system`.
fn judged(pod: &Value, product_namespace: &str, fallback_policy: bool) -> Option<JudgedPod> {
    let mut document = json!({
        "overrides": {"old.example": "mirror.example"},
        "availableFeatures": [
            "rt-cfg.kyma-project.io/alter-img-registry",
            "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
        ],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
    });
    // A Pod without the volume lacks it.
    if pod["spec"]["volumes"].is_array() {
        document["clusterTrustBundle"] = json!({
            "name": "roots", "certWritePath": "ca.crt",
            "volumeName": "rt-bundle", "volumeMountPath": "/etc/ssl/certs",
        });
    }
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let active = ActiveRevision {
        configuration: Some(Arc::new(configuration)),
        trust_bundle: TrustBundlePresence::Present,
        ..ActiveRevision::default()
    };
    let pod: StoredPod = serde_json::from_str(&pod.to_string()).unwrap();
    pod.judge(None, &basis(&active, product_namespace, fallback_policy))
}

fn basis<'a>(
    active: &'a ActiveRevision,
    product_namespace: &'a str,
    fallback_policy: bool,
) -> Basis<'a> {
    let created = CREATED.parse().unwrap();
    Basis {
        active,
        product_namespace,
        revision: RevisionTimes {
            document: created,
            registries: None,
            credentials: None,
            bundle_exists: Some(created),
            bundle_content: Some(created),
        },
        fallback_policy,
    }
}

fn stored(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "creationTimestamp": CREATED},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

/// It has no marker, and proves all the same that new Pods come out adapted.
#[rstest]
#[case::by_the_policy("mirror.example/web:1", true, true)]
#[case::without_a_policy("mirror.example/web:1", false, false)]
#[case::not_adapted("old.example/web:1", true, false)]
#[case::nothing_to_adapt("other.example/web:1", true, false)]
fn a_pod_that_the_policy_adapted_is_adapted(
    #[case] image: &str,
    #[case] fallback_policy: bool,
    #[case] expected: bool,
) {
    let judged = judged(&stored(image), "kyma-system", fallback_policy).unwrap();
    assert_eq!(judged.tracked.adapted, expected);
}

/// Clocks of API servers may differ. Without this, an eviction that changes nothing would be repeated.
#[test]
fn a_pod_with_all_changes_that_is_outdated_does_not_prove_that_evictions_help() {
    let mut pod = stored("mirror.example/web:1");
    pod["metadata"]["annotations"] = json!({api::names::MARKER: "true"});
    pod["spec"] = adapted_spec();
    let tracked = judged(&pod, "kyma-system", false).unwrap().tracked;
    let outdated = Deviation::Outdated(RestartCause::TrustBundle);
    assert_eq!(
        (tracked.deviation, tracked.adapted),
        (Some(outdated), false)
    );
}

/// The API server does not send them, wherever the webhook is installed.
#[rstest]
#[case::in_another_namespace("kyma-system", true)]
#[case::in_the_namespace_of_the_webhook("shop", false)]
fn the_pods_of_the_webhook_are_not_missed(#[case] product_namespace: &str, #[case] expected: bool) {
    let mut pod = stored("old.example/web:1");
    let (key, value) = api::names::OWN_LABEL;
    pod["metadata"]["labels"] = json!({key: value});
    assert_eq!(judged(&pod, product_namespace, false).is_some(), expected);
}

/// Without this, the Pod would end the repairs of each leader in turn.
#[test]
fn a_pod_whose_text_makes_the_parser_panic_is_identified_and_not_judged() {
    let json = RawValue::from_string(stored("old.example/web:1").to_string()).unwrap();
    let pod = StoredPod::read(json, |_| panic!("part of the test"));
    let (key, reference) = (pod.key(), pod.reference());
    assert_eq!((&*key.namespace, &*key.name), ("shop", "web"));
    assert_eq!(reference.uid.as_deref(), Some("1"));
    let active = ActiveRevision::default();
    let judged = pod.judge_with(
        StoredPod::judge,
        None,
        &basis(&active, "kyma-system", false),
    );
    assert!(judged.is_err());
}
