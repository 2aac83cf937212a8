//! Tests with documents, Secrets and trust bundles as the watches observe them, one revision after the other.

mod projection;
mod stored;

use std::collections::BTreeMap;
use std::time::Duration;

use api::kcp::{CONTENT_HASH, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use policy::admission::{PullSecret, TrustBundlePresence};
use rstest::rstest;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use testkit::apiserver::{ApiServer, Kind, Recorded};
use testkit::until::until;

use super::configuration::ConfigurationLoader;
use super::fixtures::watches_of;
use super::objects::{served, set_pull_secret, trust_bundle_name, watch_trust_bundle};
use super::*;
use crate::snapshot::ObservedObject;

fn watches() -> Watches {
    watches_of(&ApiServer::new())
}

fn config_map(key: &str, text: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some("rt-bootstrapper-config".into()),
            namespace: Some("kyma-system".into()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_valid_document_comes_into_force_and_a_broken_one_does_not() {
    let watches = watches();
    let mut loader = ConfigurationLoader::new(&watches);
    assert!(!watches.readiness.is_ready());

    loader
        .load(Some(&config_map(
            CONFIG_KEY,
            r#"{"overrides":{"a.io":"b.io"}}"#,
        )))
        .await;
    let good = watches.snapshots.configuration().unwrap();
    assert!(watches.readiness.is_ready());

    loader.load(Some(&config_map(CONFIG_KEY, "{"))).await;
    assert_eq!(watches.snapshots.configuration().unwrap(), good);
    assert!(
        watches.readiness.is_ready(),
        "it goes on with the last good one"
    );
    assert!(
        watches
            .readiness
            .report()
            .1
            .contains("the last valid one is active")
    );
    assert_eq!(watches.metrics.last_reload_successful.get(), 0);

    loader.load(None).await;
    assert_eq!(watches.snapshots.configuration().unwrap(), good);

    loader
        .load(Some(&config_map(CONFIG_KEY, r#"{"overrides":{}}"#)))
        .await;
    assert_ne!(watches.snapshots.configuration().unwrap(), good);
    assert_eq!(watches.metrics.last_reload_successful.get(), 1);
}

/// A document may contain as many unknown keys as fit into a ConfigMap.
#[tokio::test]
async fn notices_of_a_document_are_bounded_in_number_and_length() {
    let keys: Vec<String> = (0..1000)
        .map(|it| format!(r#""{}{it}":1"#, "x".repeat(500)))
        .collect();
    let document = format!(r#"{{"overrides":{{}},{}}}"#, keys.join(","));
    let watches = watches();
    let map = config_map(CONFIG_KEY, &document);
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    let (_, report) = watches.readiness.report();
    let line = report
        .lines()
        .find(|it| it.starts_with("configuration: "))
        .unwrap();
    assert!(line.ends_with("and 993 more"), "{line}");
    assert!(line.len() < 2_000, "{}", line.len());
}

#[rstest]
#[case::absent(None, "ConfigMap not found")]
#[case::another_key(
    Some(config_map("other", "{}")),
    "key rt-bootstrapper-config.json is missing"
)]
#[case::broken(Some(config_map(CONFIG_KEY, "{")), "invalid")]
#[case::contradictory(
    Some(config_map(CONFIG_KEY, r#"{"overrides":{},"availableFeatures":["x"]}"#)),
    "unknown feature"
)]
#[tokio::test]
async fn without_a_valid_document_it_is_not_ready_and_says_why(
    #[case] map: Option<ConfigMap>,
    #[case] why: &str,
) {
    let watches = watches();
    ConfigurationLoader::new(&watches).load(map.as_ref()).await;
    let (ready, report) = watches.readiness.report();
    assert!(!ready);
    assert!(report.contains(why), "{report}");
    assert_eq!(watches.snapshots.configuration(), None);
}

#[tokio::test]
async fn a_new_name_is_noticed_and_any_other_change_is_not() {
    let watches = watches();
    let name = |watches: &Watches| {
        let configuration = watches.snapshots.configuration();
        configuration.map(|it| it.pull_secret().name.clone())
    };
    let mut differs = Box::pin(watches.differs(&None, name));
    assert!(futures::poll!(&mut differs).is_pending());
    watches
        .snapshots
        .set_trust_bundle(policy::admission::TrustBundlePresence::Present);
    assert!(
        futures::poll!(&mut differs).is_pending(),
        "another part of the snapshots"
    );
    let map = config_map(CONFIG_KEY, r#"{"overrides":{}}"#);
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    assert!(futures::poll!(&mut differs).is_ready());
}

static NAMESPACES: Kind = Kind::new("v1", "namespaces", "Namespace");
static PODS: Kind = Kind::new("v1", "pods", "Pod").namespaced();
static BUNDLES: Kind = bundles("certificates.k8s.io/v1");
static BETA_BUNDLES: Kind = bundles("certificates.k8s.io/v1beta1");
static REQUESTS: Kind = Kind::new(
    "certificates.k8s.io/v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
);

const fn bundles(api_version: &'static str) -> Kind {
    Kind::new(api_version, "clustertrustbundles", "ClusterTrustBundle")
}

#[rstest]
#[case::newest(&[&BUNDLES, &BETA_BUNDLES], Some("v1"))]
#[case::beta(&[&REQUESTS, &BETA_BUNDLES], Some("v1beta1"))]
#[case::group_without_it(&[&REQUESTS], None)]
#[case::no_group(&[], None)]
#[tokio::test]
async fn the_served_version_is_discovered(
    #[case] kinds: &[&'static Kind],
    #[case] expected: Option<&str>,
) {
    let server = ApiServer::new();
    server.behave(|it| it.kinds = kinds.into());
    let kind = served(&server.client()).await.unwrap();
    assert_eq!(kind.map(|it| it.version).as_deref(), expected);
}

#[rstest]
#[case::newest(&[&NAMESPACES, &PODS, &BUNDLES, &BETA_BUNDLES], "v1")]
#[case::beta(&[&NAMESPACES, &PODS, &REQUESTS, &BETA_BUNDLES], "v1beta1")]
#[tokio::test]
async fn the_bundle_is_watched_in_the_version_that_is_served_and_its_content_digested(
    #[case] kinds: &[&'static Kind],
    #[case] version: &str,
) {
    let server = ApiServer::new();
    server.behave(|it| it.kinds = kinds.into());
    server.namespace("kyma-system");
    let api_version = format!("certificates.k8s.io/{version}");
    server.put(&json!({
        "apiVersion": api_version, "kind": "ClusterTrustBundle", "metadata": {"name": BUNDLE},
        "spec": {"trustBundle": "PEM"},
    }));
    let watches = Watches {
        client: server.client(),
        ..watches()
    };
    let (map, _, _) = versioned("1");
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    let present = || async {
        let presence = watches.snapshots.latest().trust_bundle.presence;
        presence == TrustBundlePresence::Present
    };
    tokio::select! {
        () = watch_trust_bundle(&watches) => panic!("the watch ended"),
        observed = until("the bundle is observed", Duration::from_secs(20), present) => observed.unwrap(),
    }
    let requests = server.requests_of("list|watch clustertrustbundles");
    let path = format!("/apis/{api_version}/");
    let is_served = |it: &Recorded| it.uri.contains(&path);
    assert!(
        !requests.is_empty() && requests.iter().all(is_served),
        "{requests:?}"
    );
    let digest = watches.snapshots.latest().trust_bundle.content;
    assert_eq!(digest, Some(Sha256::digest("PEM").into()));
}

const PULL_SECRET: &str = "registry-credentials";
const BUNDLE: &str = "trust";

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Returns document, Secret and bundle of one version, as the controller writes them.
fn versioned(version: &str) -> (ConfigMap, Secret, PartialObjectMeta<ClusterTrustBundle>) {
    let document = json!({
        "overrides": {"a.io": format!("v{version}.io")},
        "clusterTrustBundle": {
            "name": BUNDLE, "certWritePath": "ca.pem", "volumeMountPath": "/certs", "volumeName": "certs",
        },
    });
    let mut map = config_map(CONFIG_KEY, &document.to_string());
    map.metadata.annotations = Some(annotations(&[
        (CONTENT_HASH, "of the document"),
        (REQUIRES_PULL_SECRET, version),
        (REQUIRES_TRUST_BUNDLE, version),
    ]));
    let metadata = |name: &str| ObjectMeta {
        name: Some(name.into()),
        annotations: Some(annotations(&[(CONTENT_HASH, version)])),
        ..ObjectMeta::default()
    };
    let content = json!({"auths": {(format!("v{version}.io")): {}}}).to_string();
    let secret = Secret {
        metadata: metadata(PULL_SECRET),
        type_: Some("kubernetes.io/dockerconfigjson".into()),
        data: Some(BTreeMap::from([(
            ".dockerconfigjson".into(),
            ByteString(content.into_bytes()),
        )])),
        ..Secret::default()
    };
    let bundle = PartialObjectMeta {
        metadata: metadata(BUNDLE),
        ..PartialObjectMeta::default()
    };
    (map, secret, bundle)
}

fn content(watches: &Watches) -> String {
    let secret = watches.snapshots.active().pull_secret.content.clone();
    String::from_utf8(secret.unwrap().docker_config.clone()).unwrap()
}

#[tokio::test]
async fn a_version_applies_from_its_last_part_on_and_missing_parts_are_reported() {
    let watches = watches();
    let snapshots = &watches.snapshots;
    let mut loader = ConfigurationLoader::new(&watches);
    let mut report = Box::pin(report_mismatch(&watches));
    let (map, secret, bundle) = versioned("1");
    loader.load(Some(&map)).await;
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    snapshots.set_trust_bundle(ObservedObject::of(&bundle.metadata));
    assert!(futures::poll!(&mut report).is_pending());
    let one = snapshots.configuration().unwrap();
    loader.load(Some(&map)).await;
    let again = snapshots.configuration().unwrap();
    assert!(std::sync::Arc::ptr_eq(&one, &again), "an equal one");
    let told = |watches: &Watches| watches.readiness.report().1;
    assert!(told(&watches).contains("configuration-version: ready\n"));

    let (map, secret, bundle) = versioned("2");
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    loader.load(Some(&map)).await;
    assert!(futures::poll!(&mut report).is_pending());
    assert_eq!(snapshots.configuration().unwrap(), one);
    assert!(content(&watches).contains("v1.io"));
    assert_eq!(watches.metrics.revision_mismatch.get(), 1);
    assert_eq!(watches.metrics.last_reload_successful.get(), 1);
    assert!(watches.readiness.is_ready());
    let text = told(&watches);
    assert!(
        text.contains("ready: the trust bundle belongs to another revision; the previous revision"),
        "{text}"
    );

    snapshots.set_trust_bundle(ObservedObject::of(&bundle.metadata));
    assert!(futures::poll!(&mut report).is_pending());
    assert_ne!(snapshots.configuration().unwrap(), one);
    assert!(content(&watches).contains("v2.io"));
    assert_eq!(watches.metrics.revision_mismatch.get(), 0);
    assert!(told(&watches).contains("configuration-version: ready\n"));
}

#[tokio::test]
async fn a_document_that_cannot_be_used_brings_no_requirements_and_a_deleted_one_takes_them_away() {
    let watches = watches();
    let snapshots = &watches.snapshots;
    let mut loader = ConfigurationLoader::new(&watches);
    let (map, secret, _) = versioned("1");
    loader.load(Some(&map)).await;
    snapshots.set_trust_bundle(TrustBundlePresence::Present);
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    let one = snapshots.configuration().unwrap();

    let (mut broken, secret, _) = versioned("2");
    broken.data = Some(BTreeMap::from([(CONFIG_KEY.to_owned(), "{".to_owned())]));
    loader.load(Some(&broken)).await;
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    assert!(content(&watches).contains("v1.io"));

    loader.load(None).await;
    assert_eq!(snapshots.configuration().unwrap(), one);
    assert!(content(&watches).contains("v2.io"));
    assert_eq!(snapshots.mismatch(), None);
}

/// Without a configuration, copies of a Secret that does not exist are deleted, unless the ConfigMap requires the Secret.
#[rstest]
#[case::not_observed(&[], "", false)]
#[case::invalid_document(&[Some("{")], "", true)]
#[case::config_map_not_found(&[None], "", true)]
#[case::secret_required(&[Some("{")], "hash", false)]
#[case::secret_required_and_config_map_deleted(&[Some("{"), None], "hash", true)]
#[case::revision_without_pull_secret(&[Some("{")], "none", true)]
#[tokio::test]
async fn an_unusable_document_states_whether_the_secret_is_required(
    #[case] documents: &[Option<&str>],
    #[case] required: &str,
    #[case] is_revoked: bool,
) {
    let watches = watches();
    let mut loader = ConfigurationLoader::new(&watches);
    set_pull_secret(&watches.snapshots, PULL_SECRET, None);
    for document in documents {
        let map = document.map(|text| {
            let mut map = config_map(CONFIG_KEY, text);
            map.metadata.annotations = Some(annotations(&[(REQUIRES_PULL_SECRET, required)]));
            map
        });
        loader.load(map.as_ref()).await;
    }
    assert_eq!(watches.snapshots.active().lacks_pull_secret(), is_revoked);
}

#[tokio::test]
async fn an_unusable_or_missing_secret_counts_by_what_it_carries() {
    let watches = watches();
    let snapshots = &watches.snapshots;
    let (map, secret, _) = versioned("1");
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    snapshots.set_trust_bundle(TrustBundlePresence::Present);
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));

    set_pull_secret(snapshots, PULL_SECRET, None);
    assert!(content(&watches).contains("v1.io"));
    let mut unusable = secret.clone();
    unusable.data = None;
    set_pull_secret(snapshots, PULL_SECRET, Some(unusable.clone()));
    assert!(snapshots.active().pull_secret.content.is_none());
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    assert!(content(&watches).contains("v1.io"));
}

#[tokio::test]
async fn a_secret_that_no_kubelet_can_parse_is_invalid_until_it_is_repaired() {
    let watches = watches();
    let snapshots = &watches.snapshots;
    let (map, secret, _) = versioned("1");
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    snapshots.set_trust_bundle(TrustBundlePresence::Present);

    let mut invalid = secret.clone();
    let value = ByteString(br#"{"auths":{"v1.io":{"auth":"%"}}}"#.to_vec());
    invalid.data = Some(BTreeMap::from([(DOCKER_CONFIG_KEY.to_owned(), value)]));
    invalid.metadata.namespace = Some("kyma-system".to_owned());
    set_pull_secret(snapshots, PULL_SECRET, Some(invalid.clone()));
    let source = &snapshots.active().pull_secret;
    assert_eq!(*source.known_in("kyma-system"), PullSecret::Invalid);
    assert_eq!(*source.known_in("shop"), PullSecret::Unknown);
    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    assert!(content(&watches).contains("v1.io"));
}

#[tokio::test]
async fn the_watches_follow_the_names_of_the_newest_document() {
    let watches = watches();
    let (map, secret, bundle) = versioned("1");
    let mut loader = ConfigurationLoader::new(&watches);
    loader.load(Some(&map)).await;
    set_pull_secret(&watches.snapshots, PULL_SECRET, Some(secret.clone()));
    watches
        .snapshots
        .set_trust_bundle(ObservedObject::of(&bundle.metadata));
    let (map, _, _) = versioned("2");
    let mut renamed = map.clone();
    let text = renamed.data.as_ref().unwrap()[CONFIG_KEY].replace(BUNDLE, "other");
    renamed.data = Some(BTreeMap::from([(CONFIG_KEY.to_owned(), text)]));
    loader.load(Some(&renamed)).await;
    assert_eq!(trust_bundle_name(&watches).as_deref(), Some("other"));
    let in_force = watches.snapshots.configuration().unwrap();
    assert_eq!(crate::snapshot::bundle_name(&in_force), Some(BUNDLE));
    assert_eq!(
        watches.snapshots.active().trust_bundle,
        TrustBundlePresence::Present
    );
}

/// For example the permissions of the replicas contain the old name. All replicas get a document at the same time, or are replaced
/// one after the other.
#[rstest]
#[case::while_it_runs(false)]
#[case::at_the_start(true)]
#[tokio::test(start_paused = true)]
async fn another_pull_secret_that_no_replica_may_read_makes_none_not_ready(
    #[case] at_the_start: bool,
) {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let watches = watches_of(&server);
    let running = watches.clone();
    let load = async || {
        let document = r#"{"overrides": {}, "imagePullSecret": {"name": "other"}}"#;
        let map = config_map(CONFIG_KEY, document);
        ConfigurationLoader::new(&watches).load(Some(&map)).await;
        server.fault("list secrets").status(403)
    };
    if at_the_start {
        load().await;
    }
    tokio::spawn(async move { objects::watch_pull_secret(&running).await });
    let state = || {
        let (_, report) = watches.readiness.report();
        let mut lines = report.lines();
        let line = lines.find_map(|it| it.strip_prefix("pull-secret-watch: "));
        line.unwrap_or_default().to_owned()
    };
    tokio::time::sleep(Duration::from_secs(3)).await;
    if !at_the_start {
        assert_eq!(state(), "ready");
        load().await;
    }
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(state().starts_with("ready: "), "{}", state());
    }
    let lists = server.requests_of("list secrets");
    assert!(lists.iter().any(|it| it.uri.contains("other")), "{lists:?}");
}

#[tokio::test]
async fn the_start_and_the_end_of_a_wait_are_reported() {
    let watches = watches();
    let snapshots = &watches.snapshots;
    let mut tell = Box::pin(report_mismatch(&watches));
    let (map, secret, bundle) = versioned("1");
    ConfigurationLoader::new(&watches).load(Some(&map)).await;
    snapshots.set_trust_bundle(ObservedObject::of(&bundle.metadata));
    assert!(futures::poll!(&mut tell).is_pending());
    assert_eq!(
        watches.metrics.revision_mismatch.get(),
        0,
        "a start that is under way"
    );

    set_pull_secret(snapshots, PULL_SECRET, None);
    assert!(futures::poll!(&mut tell).is_pending());
    assert_eq!(watches.metrics.revision_mismatch.get(), 1);
    let (_, report) = watches.readiness.report();
    let expected = "ready: the pull Secret is missing; no revision was active";
    assert!(report.contains(expected), "{report}");

    set_pull_secret(snapshots, PULL_SECRET, Some(secret.clone()));
    assert!(futures::poll!(&mut tell).is_pending());
    assert_eq!(watches.metrics.revision_mismatch.get(), 0);
}
