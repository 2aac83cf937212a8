//! Tests of the sources against an in-process API server.

use std::time::Duration;

use policy::sync::ObjectNames;
use policy::sync::sources::SourceState;
use policy::sync::{Hash, SourceKind};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Kind as Resource;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::fixture::{ControlPlane, Mode, config_map, pull_secret, trust_bundle};

const fn bundles(api_version: &'static str) -> Resource {
    Resource::new(api_version, "clustertrustbundles", "ClusterTrustBundle")
}

static V1: Resource = bundles("certificates.k8s.io/v1");
static V1BETA1: Resource = bundles("certificates.k8s.io/v1beta1");
static V1ALPHA1: Resource = bundles("certificates.k8s.io/v1alpha1");

/// The versions of ClusterTrustBundle, with the best version first.
static BUNDLES: [&Resource; 3] = [&V1, &V1BETA1, &V1ALPHA1];

struct Env {
    published: Published,
    readiness: Readiness,
    running: JoinHandle<()>,
}

impl Env {
    async fn start(kcp: &ControlPlane) -> Self {
        Self::start_with(kcp, Some("pull"), Some("roots")).await
    }

    async fn start_with(kcp: &ControlPlane, secret: Option<&str>, bundle: Option<&str>) -> Self {
        let readiness = Readiness::default();
        let client = kcp.client();
        let options = SourceOptions {
            salt: salt(&client, &readiness).await,
            client,
            names: ObjectNames {
                pull_secret: secret.map(str::to_owned),
                trust_bundle: bundle.map(str::to_owned),
                ..ObjectNames::on_kcp()
            },
            readiness: readiness.clone(),
            metrics: SourceMetrics::default(),
        };
        let (published, running) = watch(options);
        Self {
            published,
            readiness,
            running: tokio::spawn(running),
        }
    }

    /// Returns the published sources after all changes were processed.
    async fn settled(&mut self) -> Option<Arc<Sources>> {
        sleep(Duration::from_mins(20)).await;
        self.published.borrow_and_update().clone()
    }

    async fn summaries(&mut self) -> [SourceState<Hash>; 3] {
        let sources = self.settled().await.expect("published");
        SourceKind::ALL.map(|kind| sources.get(kind))
    }

    /// Returns whether new sources were published.
    async fn news(&mut self) -> bool {
        sleep(Duration::from_mins(20)).await;
        let news = self.published.has_changed().unwrap();
        self.published.mark_unchanged();
        news
    }
}

fn filled() -> ControlPlane {
    let kcp = ControlPlane::new(Mode::Signal);
    kcp.put(config_map("a.example"));
    kcp.put(pull_secret("one"));
    kcp.put(trust_bundle());
    kcp
}

#[tokio::test(start_paused = true)]
async fn each_source_is_read_and_its_changes_arrive_at_once() {
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    let first = env.summaries().await;
    assert!(
        first.iter().all(|it| matches!(it, SourceState::Valid(_))),
        "{first:?}"
    );
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
    let changes = [pull_secret("two"), trust_bundle(), config_map("b.example")];
    for (index, object) in changes.into_iter().enumerate() {
        let before = env.summaries().await;
        let began = Instant::now();
        kcp.put(object);
        env.published.changed().await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(100));
        let after = env.summaries().await;
        for kind in 0..3 {
            assert_eq!(before[kind] != after[kind], kind == index, "{index} {kind}");
        }
    }
}

/// Another replica leads after the end of a term.
#[tokio::test(start_paused = true)]
async fn nothing_is_reported_after_the_watches_ended() {
    for served in [true, false] {
        let kcp = filled();
        if !served {
            serve_no_bundles(&kcp);
        }
        let mut invalid = config_map("a.example");
        invalid["data"]["rt-bootstrapper-config.json"] = json!("{");
        kcp.put(invalid);
        let mut env = Env::start(&kcp).await;
        env.settled().await;
        assert!(env.readiness.report().1.contains("configuration: "));
        env.running.abort();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(
            env.readiness.report(),
            (true, "control-plane-identity: ready\n".to_owned())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn other_object_of_the_kind_is_not_read() {
    // The Role allows only lists by name. This test creates another object of the same kind.
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    env.settled().await;
    let mut other = config_map("b.example");
    other["metadata"]["name"] = json!("other");
    kcp.put(other);
    assert!(!env.news().await);
}

#[tokio::test(start_paused = true)]
async fn creation_and_deletion_behind_a_broken_watch_are_seen() {
    let kcp = ControlPlane::new(Mode::Signal);
    let mut env = Env::start(&kcp).await;
    assert_eq!(env.summaries().await, [const { SourceState::Absent }; 3]);
    kcp.put(pull_secret("one"));
    assert!(matches!(env.summaries().await[0], SourceState::Valid(_)));
    kcp.delete("secrets", "pull");
    assert_eq!(env.summaries().await[0], SourceState::Absent);
    kcp.put(pull_secret("two"));
    kcp.store().expire_watches();
    assert!(matches!(env.summaries().await[0], SourceState::Valid(_)));
    kcp.delete("secrets", "pull");
    kcp.store().expire_watches();
    assert_eq!(env.summaries().await[0], SourceState::Absent);
}

#[tokio::test(start_paused = true)]
async fn change_of_metadata_alone_is_no_change() {
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    env.settled().await;
    let noted = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    kcp.merge("configmaps", "rt-bootstrapper-config", &noted);
    kcp.merge("secrets", "pull", &noted);
    kcp.merge("clustertrustbundles", "roots", &noted);
    // A watch that restarts lists the same objects again.
    kcp.store().expire_watches();
    assert!(!env.news().await);
}

#[tokio::test(start_paused = true)]
async fn optional_source_without_a_name_is_not_requested() {
    let kcp = filled();
    let mut env = Env::start_with(&kcp, None, None).await;
    let [secret, bundle, configuration] = env.summaries().await;
    assert!(matches!(configuration, SourceState::Valid(_)));
    assert_eq!([secret, bundle], [const { SourceState::Unmanaged }; 2]);
    let (ready, report) = env.readiness.report();
    assert!(ready && report.contains("sources: ready\n"), "{report}");
    assert!(kcp.count("list|watch configmaps") > 1);
    assert_eq!(kcp.count("* secrets|clustertrustbundles"), 0);
    assert_eq!(kcp.count("* /apis/certificates.k8s.io/v1"), 0);
}

#[rstest]
#[case::config_map("configmaps")]
#[case::secret("secrets")]
#[case::bundle("clustertrustbundles")]
#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_all_three_are_known(#[case] plural: &'static str) {
    let kcp = filled();
    let forbidden = kcp.forbid_reads(plural);
    let mut env = Env::start(&kcp).await;
    assert!(env.settled().await.is_none());
    assert!(!env.readiness.is_ready());
    forbidden.stop();
    assert!(env.settled().await.is_some());
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_can_be_read_no_more_is_not_taken_for_deleted() {
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    let before = env.summaries().await;
    let _forbidden = kcp.forbid_reads("secrets|clustertrustbundles|configmaps");
    kcp.store().expire_watches();
    assert!(!env.news().await);
    assert_eq!(env.summaries().await, before);
    let (ready, report) = env.readiness.report();
    assert!(ready && report.contains("403"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_used_says_why_and_is_no_deletion() {
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    env.settled().await;
    let mut opaque = pull_secret("two");
    opaque["type"] = json!("Opaque");
    kcp.put(opaque);
    let sources = env.settled().await.unwrap();
    assert!(matches!(sources.pull_secret, SourceState::Invalid(_)));
    assert!(sources.configuration.valid().is_some());
    let (ready, report) = env.readiness.report();
    assert!(
        ready && report.contains("sources: ready: pullSecret: "),
        "{report}"
    );
    assert!(report.contains("Opaque"), "{report}");
    kcp.put(pull_secret("two"));
    env.settled().await;
    assert!(env.readiness.report().1.contains("sources: ready\n"));
}

/// Makes the control plane serve ClusterTrustBundles in this version only, and stores this bundle.
fn serve_bundles(kcp: &ControlPlane, version: &'static Resource, mut bundle: Value) {
    kcp.behave(|it| {
        let others = it.kinds.iter().copied();
        let others = others.filter(|it| it.resource != "clustertrustbundles");
        it.kinds = others.chain([version]).collect();
    });
    bundle["apiVersion"] = json!(version.api_version);
    kcp.put(bundle);
    kcp.store().expire_watches();
}

fn serve_no_bundles(kcp: &ControlPlane) {
    for version in BUNDLES {
        kcp.serve(version, false);
    }
    kcp.store().expire_watches();
}

#[rstest]
#[case::v1(BUNDLES[0])]
#[case::v1beta1(BUNDLES[1])]
#[case::v1alpha1(BUNDLES[2])]
#[tokio::test(start_paused = true)]
async fn trust_bundle_is_read_at_the_version_that_is_served(#[case] version: &'static Resource) {
    let kcp = filled();
    serve_bundles(&kcp, version, trust_bundle());
    let mut env = Env::start(&kcp).await;
    assert!(matches!(env.summaries().await[1], SourceState::Valid(_)));
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_control_plane_is_watched_at_its_new_version() {
    let kcp = filled();
    let mut env = Env::start(&kcp).await;
    let before = env.summaries().await;
    let bundle = kcp.object("clustertrustbundles", "roots").unwrap();
    serve_bundles(&kcp, BUNDLES[0], bundle);
    assert!(!env.news().await);
    assert_eq!(env.summaries().await, before);
    let mut changed = trust_bundle();
    changed["apiVersion"] = json!(BUNDLES[0].api_version);
    kcp.put(changed);
    assert_ne!(env.summaries().await[1], before[1]);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_the_bundles_api_has_none_until_it_serves_it() {
    let kcp = filled();
    serve_no_bundles(&kcp);
    let mut env = Env::start(&kcp).await;
    assert_eq!(env.summaries().await[1], SourceState::Unmanaged);
    let (ready, report) = env.readiness.report();
    assert!(ready && report.contains("sources: ready\n"), "{report}");
    assert!(
        report.contains("API of ClusterTrustBundles not served"),
        "{report}"
    );
    serve_bundles(&kcp, BUNDLES[0], trust_bundle());
    assert!(matches!(env.summaries().await[1], SourceState::Valid(_)));
    // A bundle that is no longer served does not count as deleted.
    serve_no_bundles(&kcp);
    assert!(matches!(env.summaries().await[1], SourceState::Valid(_)));
}

#[tokio::test(start_paused = true)]
async fn hashes_wait_for_the_identity_of_the_control_plane() {
    let kcp = filled();
    let kube_system = kcp.object("namespaces", "kube-system").unwrap();
    let forbidden = kcp.forbid_reads("namespaces");
    let readiness = Readiness::default();
    let client = kcp.client();
    let asking = tokio::spawn({
        let readiness = readiness.clone();
        async move { salt(&client, &readiness).await }
    });
    sleep(Duration::from_mins(1)).await;
    assert!(!asking.is_finished() && !readiness.is_ready());
    forbidden.stop();
    assert_eq!(
        asking.await.unwrap().control_plane(),
        Salt::new(kube_system["metadata"]["uid"].as_str().unwrap()).control_plane()
    );
    assert!(readiness.is_ready());
}
