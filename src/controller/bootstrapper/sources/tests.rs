//! The sources against an API server.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::convergence::Kind;
use policy::convergence::sources::{Reading, Summary};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::bootstrapper::fake::store::key;
use crate::bootstrapper::signal::tests::kcp::Kcp;

pub(in crate::bootstrapper) fn config_map(note: &str) -> Value {
    let document = json!({"overrides": {"docker.io": format!("{note}.example")}}).to_string();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
        "data": {"rt-bootstrapper-config.json": document},
    })
}

pub(in crate::bootstrapper) fn pull_secret(password: &str) -> Value {
    let config = json!({"auths": {"registry.example": {"username": "u", "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(config.to_string())},
    })
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["root.example".to_owned()]).unwrap();
    parameters.self_signed(&key).unwrap().pem()
}

fn trust_bundle(version: &str, pem: &str) -> Value {
    json!({
        "apiVersion": format!("certificates.k8s.io/{version}"), "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": pem},
    })
}

struct World {
    published: Published,
    readiness: Readiness,
    _running: JoinHandle<()>,
}

impl World {
    async fn start(kcp: &Kcp) -> Self {
        Self::start_with(kcp, Some("pull"), Some("roots")).await
    }

    async fn start_with(kcp: &Kcp, secret: Option<&str>, bundle: Option<&str>) -> Self {
        let readiness = Readiness::default();
        let client = kcp.client();
        let options = SourceOptions {
            salt: salt(&client, &readiness).await,
            client,
            names: SourceNames {
                pull_secret: secret.map(str::to_owned),
                trust_bundle: bundle.map(str::to_owned),
                ..SourceNames::default()
            },
            readiness: readiness.clone(),
            metrics: SourceMetrics::default(),
        };
        let (published, running) = watch(options);
        Self {
            published,
            readiness,
            _running: tokio::spawn(running),
        }
    }

    /// What is published once everything has settled.
    async fn settled(&mut self) -> Option<Arc<Sources>> {
        sleep(Duration::from_mins(20)).await;
        self.published.borrow_and_update().clone()
    }

    async fn summaries(&mut self) -> [Summary; 3] {
        let sources = self.settled().await.expect("published");
        Kind::ALL.map(|kind| sources.summary(kind))
    }

    /// Whether something new is published.
    async fn news(&mut self) -> bool {
        sleep(Duration::from_mins(20)).await;
        let news = self.published.has_changed().unwrap();
        self.published.mark_unchanged();
        news
    }
}

fn filled() -> Kcp {
    let kcp = Kcp::new();
    kcp.put("configmaps", config_map("a"));
    kcp.put("secrets", pull_secret("one"));
    kcp.put(
        "clustertrustbundles",
        trust_bundle("v1beta1", &certificate()),
    );
    kcp
}

#[tokio::test(start_paused = true)]
async fn each_source_is_read_and_its_changes_arrive_at_once() {
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    let first = world.summaries().await;
    assert!(
        first.iter().all(|it| matches!(it, Summary::Valid(_))),
        "{first:?}"
    );
    assert!(world.readiness.is_ready(), "{:?}", world.readiness.report());
    let changes = [
        ("secrets", pull_secret("two")),
        (
            "clustertrustbundles",
            trust_bundle("v1beta1", &certificate()),
        ),
        ("configmaps", config_map("b")),
    ];
    for (index, (plural, object)) in changes.into_iter().enumerate() {
        let before = world.summaries().await;
        let began = Instant::now();
        kcp.put(plural, object);
        world.published.changed().await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(100));
        let after = world.summaries().await;
        for kind in 0..3 {
            assert_eq!(
                before[kind] != after[kind],
                kind == index,
                "{plural} {kind}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_object_of_the_kind_is_not_read() {
    // The API server fails the test at a list without a name; here is what is left: another object of the kind.
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    world.settled().await;
    let mut other = config_map("b");
    other["metadata"]["name"] = json!("other");
    kcp.put("configmaps", other);
    assert!(!world.news().await);
}

#[tokio::test(start_paused = true)]
async fn creation_and_deletion_behind_a_broken_watch_are_seen() {
    let kcp = Kcp::new();
    let mut world = World::start(&kcp).await;
    assert_eq!(world.summaries().await, [Summary::Absent; 3]);
    kcp.put("secrets", pull_secret("one"));
    assert!(matches!(world.summaries().await[0], Summary::Valid(_)));
    kcp.delete("secrets", "pull");
    assert_eq!(world.summaries().await[0], Summary::Absent);
    kcp.behind_the_watch("secrets", |store| {
        store.store(key("secrets", "pull"), pull_secret("two"));
    });
    assert!(matches!(world.summaries().await[0], Summary::Valid(_)));
    kcp.behind_the_watch("secrets", |store| {
        store.remove(&key("secrets", "pull"));
    });
    assert_eq!(world.summaries().await[0], Summary::Absent);
}

#[tokio::test(start_paused = true)]
async fn change_of_metadata_alone_is_no_change() {
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    world.settled().await;
    let noted = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    kcp.merge("configmaps", "rt-bootstrapper-config", &noted);
    kcp.merge("secrets", "pull", &noted);
    kcp.merge("clustertrustbundles", "roots", &noted);
    // A watch that begins anew lists the same again.
    kcp.behind_the_watch("secrets", |_| {});
    assert!(!world.news().await);
}

#[tokio::test(start_paused = true)]
async fn optional_source_without_a_name_is_not_requested() {
    let kcp = filled();
    let mut world = World::start_with(&kcp, None, None).await;
    let [secret, bundle, configuration] = world.summaries().await;
    assert!(matches!(configuration, Summary::Valid(_)));
    assert_eq!([secret, bundle], [Summary::Unmanaged; 2]);
    let (ready, report) = world.readiness.report();
    assert!(ready && report.contains("sources: ready\n"), "{report}");
    let asked = kcp.lock().reads.clone();
    assert!(asked.iter().all(|it| it == "configmaps"), "{asked:?}");
}

#[rstest]
#[case::config_map("configmaps")]
#[case::secret("secrets")]
#[case::bundle("clustertrustbundles")]
#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_all_three_are_known(#[case] plural: &'static str) {
    let kcp = filled();
    kcp.lock().unreadable.insert(plural);
    let mut world = World::start(&kcp).await;
    assert!(world.settled().await.is_none());
    assert!(!world.readiness.is_ready());
    kcp.lock().unreadable.clear();
    assert!(world.settled().await.is_some());
    assert!(world.readiness.is_ready(), "{:?}", world.readiness.report());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_can_be_read_no_more_is_not_taken_for_deleted() {
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    let before = world.summaries().await;
    kcp.lock()
        .unreadable
        .extend(["secrets", "clustertrustbundles", "configmaps"]);
    for plural in ["secrets", "clustertrustbundles", "configmaps"] {
        kcp.behind_the_watch(plural, |_| {});
    }
    assert!(!world.news().await);
    assert_eq!(world.summaries().await, before);
    let (ready, report) = world.readiness.report();
    assert!(ready && report.contains("403"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_used_says_why_and_is_no_deletion() {
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    world.settled().await;
    let mut opaque = pull_secret("two");
    opaque["type"] = json!("Opaque");
    kcp.put("secrets", opaque);
    let sources = world.settled().await.unwrap();
    assert!(matches!(sources.pull_secret, Reading::Invalid(_)));
    assert!(sources.configuration.valid().is_some());
    let (ready, report) = world.readiness.report();
    assert!(
        ready && report.contains("sources: ready: pullSecret: "),
        "{report}"
    );
    assert!(report.contains("Opaque"), "{report}");
    kcp.put("secrets", pull_secret("two"));
    world.settled().await;
    assert!(world.readiness.report().1.contains("sources: ready\n"));
}

#[tokio::test(start_paused = true)]
async fn trust_bundle_is_read_at_the_version_that_is_served() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let kcp = filled();
        let group: &'static str = match version {
            "v1" => "certificates.k8s.io/v1",
            "v1beta1" => "certificates.k8s.io/v1beta1",
            _ => "certificates.k8s.io/v1alpha1",
        };
        kcp.lock().served = [(group, "clustertrustbundles")].into();
        let mut world = World::start(&kcp).await;
        assert!(
            matches!(world.summaries().await[1], Summary::Valid(_)),
            "{version}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgraded_control_plane_is_watched_at_its_new_version() {
    let kcp = filled();
    let mut world = World::start(&kcp).await;
    let before = world.summaries().await;
    kcp.lock().served = [("certificates.k8s.io/v1", "clustertrustbundles")].into();
    assert!(!world.news().await);
    assert_eq!(world.summaries().await, before);
    kcp.put("clustertrustbundles", trust_bundle("v1", &certificate()));
    assert_ne!(world.summaries().await[1], before[1]);
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_the_bundles_api_has_none_until_it_serves_it() {
    let kcp = filled();
    kcp.lock().served.clear();
    let mut world = World::start(&kcp).await;
    assert_eq!(world.summaries().await[1], Summary::Unmanaged);
    let (ready, report) = world.readiness.report();
    assert!(ready && report.contains("sources: ready\n"), "{report}");
    assert!(
        report.contains("API of ClusterTrustBundles not served"),
        "{report}"
    );
    kcp.lock().served = [("certificates.k8s.io/v1", "clustertrustbundles")].into();
    assert!(matches!(world.summaries().await[1], Summary::Valid(_)));
    // And bundles that it cannot show any more are not deleted.
    kcp.lock().served.clear();
    assert!(matches!(world.summaries().await[1], Summary::Valid(_)));
}

#[tokio::test(start_paused = true)]
async fn hashes_wait_for_the_identity_of_the_control_plane() {
    let kcp = filled();
    let kube_system = kcp.object("namespaces", "kube-system").unwrap();
    kcp.lock().unreadable.insert("namespaces");
    let readiness = Readiness::default();
    let client = kcp.client();
    let asking = tokio::spawn({
        let readiness = readiness.clone();
        async move { salt(&client, &readiness).await }
    });
    sleep(Duration::from_mins(1)).await;
    assert!(!asking.is_finished() && !readiness.is_ready());
    kcp.lock().unreadable.clear();
    assert_eq!(
        asking.await.unwrap().control_plane(),
        Salt::new(kube_system["metadata"]["uid"].as_str().unwrap()).control_plane()
    );
    assert!(readiness.is_ready());
}
