//! Tests of the states of stored Pods, with decisions of the webhook.

use api::bootstrapper::RestartCause;
use api::config::Document;
use api::{Feature, FeatureSet};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::review::{self, Subject};
use crate::admission::*;
use crate::image::Keyring;
use crate::repairs::*;

const SECRET: &str = r#"{"auths":{"mirror.example":{"auth":"dTpw"}}}"#;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns the times of a revision: the document is from second 100, the registries from 110, the credentials from
/// 200, the bundle from 120, and its content from 300.
fn revision() -> RevisionTimes {
    RevisionTimes {
        document: at(100),
        registries: Some(at(110)),
        credentials: Some(at(200)),
        bundle_exists: Some(at(120)),
        bundle_content: Some(at(300)),
    }
}

fn configuration() -> Configuration {
    let document = json!({
        "availableFeatures": [
            "rt-cfg.kyma-project.io/alter-img-registry",
            "rt-cfg.kyma-project.io/add-img-pull-secret",
            "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
        ],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
        "overrides": {"old.example": "mirror.example"},
        "clusterTrustBundle": {
            "name": "kyma.example:bundle:v1", "certWritePath": "ca.crt",
            "volumeName": "rt-bundle", "volumeMountPath": "/etc/ssl/certs",
        },
    });
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    Configuration::new(&Document::parse(&document.to_string()).unwrap(), &settings).unwrap()
}

/// Calls `then` with the decision on the Pod.
fn decided<T>(namespace: &str, pod: &Value, then: impl FnOnce(&Decision<'_>) -> T) -> T {
    let secret = PullSecret::Known(Keyring::parse(SECRET.as_bytes()).unwrap());
    decided_with(&secret, namespace, pod, then)
}

fn decided_with<T>(
    secret: &PullSecret,
    namespace: &str,
    pod: &Value,
    then: impl FnOnce(&Decision<'_>) -> T,
) -> T {
    let configuration = configuration();
    let context = Context {
        configuration: &configuration,
        namespace: None,
        pull_secret: secret,
        trust_bundle: TrustBundlePresence::Present,
        fallback_policy: false,
    };
    let body = review::of_created_pod(namespace, &pod.to_string());
    let Subject::Pod(request) = review::parse(body.as_bytes()).unwrap().subject else {
        panic!("not a Pod")
    };
    then(&decide_unsent(
        &request,
        api::names::SKR_NAMESPACE,
        None,
        &context,
    ))
}

/// Returns a Pod without changes of the webhook, or with all changes if `adapted` is true.
fn pod(adapted: bool) -> Value {
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "old.example/web:1"}]},
    });
    if adapted {
        let patch = decided("shop", &pod, |it| it.patch.json().unwrap().to_vec());
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        json_patch::patch(&mut pod, &patch).unwrap();
    }
    pod
}

fn judged(namespace: &str, pod: &Value, created: i64, opted_in: Option<i64>) -> PodState {
    let times = PodTimes {
        created: at(created),
        opted_in: opted_in.map(at),
        selected: None,
        has_other_bundle: false,
        required: FeatureSet::EMPTY,
    };
    decided(namespace, pod, |it| judge(it, times, &revision()))
}

fn outdated(cause: RestartCause) -> PodState {
    PodState::Deviates(Deviation::Outdated(cause))
}

/// At the creation of the Pod its image needed no Secret. The Secret was deleted afterwards.
#[test]
fn a_pod_without_the_name_of_a_secret_that_does_not_exist_was_not_missed() {
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "public.example/web:1"}]},
    });
    let patch = decided("shop", &pod, |it| it.patch.json().unwrap().to_vec());
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut pod, &patch).unwrap();
    let times = PodTimes {
        created: at(500),
        opted_in: None,
        selected: None,
        has_other_bundle: false,
        required: FeatureSet::EMPTY,
    };
    let revision = RevisionTimes {
        registries: None,
        credentials: None,
        ..revision()
    };
    let state = decided_with(&PullSecret::Unknown, "shop", &pod, |it| {
        assert!(it.changed());
        judge(it, times, &revision)
    });
    assert_eq!(state, PodState::Current);
}

#[rstest]
#[case::older_than_the_document_and_the_bundle(99, outdated(RestartCause::TrustBundle))]
#[case::of_the_second_of_the_bundle(120, outdated(RestartCause::TrustBundle))]
#[case::newer_than_all(121, PodState::Deviates(Deviation::Missed(Code::ImageRewritten)))]
#[case::much_newer(1000, PodState::Deviates(Deviation::Missed(Code::ImageRewritten)))]
fn a_pod_that_lacks_changes_was_missed_or_is_older(#[case] created: i64, #[case] state: PodState) {
    assert_eq!(judged("shop", &pod(false), created, None), state);
}

#[rstest]
#[case::older(99, outdated(RestartCause::Configuration))]
#[case::of_the_same_second(100, outdated(RestartCause::Configuration))]
#[case::newer(101, PodState::Deviates(Deviation::Missed(Code::ImageRewritten)))]
fn only_the_parts_that_a_pod_lacks_make_it_outdated(#[case] created: i64, #[case] state: PodState) {
    let mut pod = pod(true);
    pod["spec"]["containers"][0]["image"] = json!("old.example/web:1");
    assert_eq!(judged("shop", &pod, created, None), state);
}

#[rstest]
#[case::after_everything(301, PodState::Current)]
#[case::before_the_content_of_the_bundle(250, outdated(RestartCause::TrustBundle))]
fn an_adapted_pod_is_current_until_content_changes(#[case] created: i64, #[case] state: PodState) {
    assert_eq!(judged("shop", &pod(true), created, None), state);
}

#[test]
fn a_pod_whose_mount_is_its_own_is_outdated_only_by_the_pull_secret() {
    let mut pod = pod(true);
    pod["spec"]["volumes"] = json!([]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "own", "mountPath": "/etc/ssl/certs"}]);
    assert_eq!(judged("shop", &pod, 250, None), PodState::Current);
    assert_eq!(
        judged("shop", &pod, 200, None),
        outdated(RestartCause::PullSecret)
    );
}

#[test]
fn an_annotation_of_others_does_not_make_a_pod_adapted() {
    let mut pod = pod(false);
    pod["metadata"]["annotations"] = json!({api::names::MARKER: "true"});
    let state = judged("shop", &pod, 500, None);
    let missed = PodState::Deviates(Deviation::Missed(Code::ImageRewritten));
    assert_eq!(state, missed);
}

/// Its opt-in, and the labels of its Namespace, were changed later; the document requested the feature before.
#[rstest]
#[case::with_this_feature(
    Feature::RegistryRewrite,
    PodState::Deviates(Deviation::Missed(Code::ImageRewritten))
)]
#[case::with_another_feature(Feature::Landscape, PodState::OptedInLater)]
fn a_pod_that_the_document_covers_is_missed_although_it_opted_in_later(
    #[case] required: Feature,
    #[case] state: PodState,
) {
    let times = PodTimes {
        created: at(500),
        opted_in: Some(at(600)),
        selected: Some(at(600)),
        has_other_bundle: false,
        required: FeatureSet::from_iter([required]),
    };
    let judged = decided("shop", &pod(false), |it| judge(it, times, &revision()));
    assert_eq!(judged, state);
}

/// The document named another bundle, or another path of it, before second 100.
#[rstest]
#[case::bundle(
    "kyma.example:bundle:v0",
    "ca.crt",
    99,
    outdated(RestartCause::TrustBundle)
)]
#[case::path(
    "kyma.example:bundle:v1",
    "old.crt",
    99,
    outdated(RestartCause::TrustBundle)
)]
#[case::of_the_pod_itself("kyma.example:bundle:v0", "ca.crt", 301, PodState::Current)]
fn a_pod_with_an_earlier_bundle_is_outdated(
    #[case] bundle: &str,
    #[case] path: &str,
    #[case] created: i64,
    #[case] state: PodState,
) {
    let mut pod = pod(true);
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    let volume = volumes.iter_mut().find(|it| it["name"] == "rt-bundle");
    let source = &mut volume.unwrap()["projected"]["sources"][0]["clusterTrustBundle"];
    (source["name"], source["path"]) = (bundle.into(), path.into());
    let body = review::of_created_pod("shop", &pod.to_string());
    let Subject::Pod(request) = review::parse(body.as_bytes()).unwrap().subject else {
        panic!("not a Pod")
    };
    let times = PodTimes {
        created: at(created),
        opted_in: None,
        selected: None,
        has_other_bundle: has_other_trust_bundle(&configuration(), &request.object),
        required: FeatureSet::EMPTY,
    };
    let judged = decided("shop", &pod, |it| judge(it, times, &revision()));
    assert_eq!(judged, state);
}

#[rstest]
#[case::namespace_opted_in_before(
    Some(499),
    PodState::Deviates(Deviation::Missed(Code::ImageRewritten))
)]
#[case::in_the_same_second(Some(500), PodState::OptedInLater)]
#[case::afterwards(Some(501), PodState::OptedInLater)]
fn a_pod_from_before_the_opt_in_was_not_missed(
    #[case] opted_in: Option<i64>,
    #[case] state: PodState,
) {
    assert_eq!(judged("shop", &pod(false), 500, opted_in), state);
}

/// Labels of a Namespace determine only the pull Secret.
#[rstest]
#[case::selected_before(
    true,
    499,
    PodState::Deviates(Deviation::Missed(Code::PullSecretRequired))
)]
#[case::selected_in_the_same_second(true, 500, PodState::OptedInLater)]
#[case::selected_later(true, 501, PodState::OptedInLater)]
#[case::lacks_other_changes_too(
    false,
    501,
    PodState::Deviates(Deviation::Missed(Code::ImageRewritten))
)]
fn a_pod_from_before_the_selection_of_its_namespace_misses_no_pull_secret(
    #[case] has_the_rest: bool,
    #[case] selected: i64,
    #[case] state: PodState,
) {
    let mut pod = pod(has_the_rest);
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("imagePullSecrets");
    }
    let times = PodTimes {
        created: at(500),
        opted_in: None,
        selected: Some(at(selected)),
        has_other_bundle: false,
        required: FeatureSet::EMPTY,
    };
    assert_eq!(
        decided("shop", &pod, |it| judge(it, times, &revision())),
        state
    );
}

#[rstest]
#[case::another_namespace("other", json!({}))]
#[case::excluded_namespace("kube-system", json!({}))]
#[case::mirror_pod("shop", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}))]
fn a_pod_that_is_not_covered_is_never_missed(#[case] namespace: &str, #[case] extra: Value) {
    let mut pod = pod(false);
    json_patch::merge(&mut pod, &extra);
    assert_eq!(judged(namespace, &pod, 500, None), PodState::NotCovered);
}
