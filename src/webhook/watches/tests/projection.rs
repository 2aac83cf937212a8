//! Tests whether the trust bundle of a document can be mounted: at the start of a replica, and while it runs.

use tokio::time::sleep;

use super::*;

/// Returns the readiness check of the trust bundle, and its known presence.
fn bundle_state(watches: &Watches) -> (String, TrustBundlePresence) {
    let (_, report) = watches.readiness.report();
    let mut lines = report.lines();
    let line = lines.find_map(|it| it.strip_prefix("trust-bundle-watch: "));
    let presence = watches.snapshots.latest().trust_bundle.presence;
    (line.unwrap_or_default().to_owned(), presence)
}

#[track_caller]
fn assert_present(watches: &Watches) {
    let expected = ("ready".to_owned(), TrustBundlePresence::Present);
    assert_eq!(bundle_state(watches), expected);
}

/// Returns a replica with this document, and an API server with the bundles.
async fn bundle_replica(document: Option<&ConfigMap>) -> (ApiServer, Watches) {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    for name in [BUNDLE, "other"] {
        server.put(&json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle", "metadata": {"name": name},
            "spec": {"trustBundle": "PEM"},
        }));
    }
    let watches = watches_of(&server);
    ConfigurationLoader::new(&watches).load(document).await;
    let running = watches.clone();
    tokio::spawn(async move { watch_trust_bundle(&running).await });
    (server, watches)
}

/// Loads the document with another bundle.
async fn load_other_bundle(watches: &Watches, map: &ConfigMap) {
    let mut renamed = map.clone();
    let text = renamed.data.as_ref().unwrap()[CONFIG_KEY].replace(BUNDLE, "other");
    renamed.data = Some(BTreeMap::from([(CONFIG_KEY.to_owned(), text)]));
    ConfigurationLoader::new(watches).load(Some(&renamed)).await;
}

#[rstest]
#[case::no_dry_run("create pods")]
#[case::no_discovery(" /apis")]
#[tokio::test(start_paused = true)]
async fn one_failure_at_the_start_delays_the_trust_bundle(#[case] request: &str) {
    let (server, watches) = bundle_replica(Some(&versioned("1").0)).await;
    let _fault = server.fault(request).times(1).status(500);
    sleep(Duration::from_secs(3)).await;
    let (check, presence) = bundle_state(&watches);
    assert!(check.starts_with("not ready: cannot tell"), "{check}");
    assert_eq!(presence, TrustBundlePresence::Unknown);
    sleep(Duration::from_secs(3)).await;
    assert_present(&watches);
}

#[rstest]
#[case::no_dry_run("create pods")]
#[case::no_discovery(" /apis")]
#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_ask_is_ready_after_a_minute_and_mounts_nothing(
    #[case] request: &str,
) {
    let (server, watches) = bundle_replica(Some(&versioned("1").0)).await;
    let fault = server.fault(request).status(500);
    sleep(Duration::from_secs(55)).await;
    assert!(bundle_state(&watches).0.starts_with("not ready: "));
    sleep(Duration::from_secs(10)).await;
    let (check, presence) = bundle_state(&watches);
    assert!(check.starts_with("ready: cannot tell"), "{check}");
    assert_eq!(presence, TrustBundlePresence::NotProjected);
    let asked = server.count(request);
    sleep(Duration::from_mins(10)).await;
    let more = server.count(request) - asked;
    assert!((9..=11).contains(&more), "{more} in ten minutes");
    fault.stop();
    sleep(Duration::from_mins(1)).await;
    assert_present(&watches);
}

/// For example the permissions of an earlier version are installed.
#[tokio::test(start_paused = true)]
async fn a_replica_whose_dry_run_is_refused_mounts_the_trust_bundle_at_once() {
    let (server, watches) = bundle_replica(Some(&versioned("1").0)).await;
    let _fault = server.fault("create pods").status(403);
    sleep(Duration::from_secs(3)).await;
    assert_present(&watches);
}

/// All replicas get a document at the same time.
#[tokio::test(start_paused = true)]
async fn a_replica_that_runs_stays_ready_whatever_its_document_requires() {
    let (server, watches) = bundle_replica(None).await;
    sleep(Duration::from_mins(2)).await;
    let _fault = server.fault("create pods").times(1).status(500);
    let mut loader = ConfigurationLoader::new(&watches);
    loader.load(Some(&versioned("1").0)).await;
    sleep(Duration::from_secs(3)).await;
    let (check, presence) = bundle_state(&watches);
    assert!(check.starts_with("ready: cannot tell"), "{check}");
    assert_eq!(presence, TrustBundlePresence::NotProjected);
    sleep(Duration::from_secs(3)).await;
    assert_present(&watches);
}

/// The permissions contain the old name.
#[tokio::test(start_paused = true)]
async fn another_bundle_that_no_replica_may_read_makes_none_not_ready() {
    let (map, _, _) = versioned("1");
    let (server, watches) = bundle_replica(Some(&map)).await;
    sleep(Duration::from_secs(3)).await;
    let _fault = server.fault("list clustertrustbundles").status(403);
    load_other_bundle(&watches, &map).await;
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        let (check, _) = bundle_state(&watches);
        assert!(check.starts_with("ready: "), "{check}");
    }
}

#[rstest]
#[case::no_dry_run("create pods")]
#[case::no_discovery(" /apis")]
#[tokio::test(start_paused = true)]
async fn what_is_known_of_projection_holds_for_another_bundle(#[case] request: &str) {
    let (map, _, _) = versioned("1");
    let (server, watches) = bundle_replica(Some(&map)).await;
    sleep(Duration::from_secs(3)).await;
    let _fault = server.fault(request).status(500);
    load_other_bundle(&watches, &map).await;
    sleep(Duration::from_secs(3)).await;
    assert_present(&watches);
    let lists = server.requests_of("list clustertrustbundles");
    assert!(lists.iter().any(|it| it.uri.contains("other")), "{lists:?}");
}

/// For example a control plane is downgraded while its replicas and workers run. A Pod with the volume would be rejected,
/// or lose the certificates of its image.
#[tokio::test(start_paused = true)]
async fn a_gate_that_is_turned_off_takes_the_bundle_from_new_pods() {
    let (server, watches) = bundle_replica(Some(&versioned("1").0)).await;
    sleep(Duration::from_secs(3)).await;
    assert_present(&watches);
    server.behave(|it| it.dropped_projection = Some("clusterTrustBundle"));
    sleep(Duration::from_mins(6)).await;
    let (check, presence) = bundle_state(&watches);
    assert_eq!(presence, TrustBundlePresence::NotProjected);
    assert!(check.starts_with("ready: "), "{check}");
    // One API server is updated, the others are not.
    server.behave(|it| it.dropped_projection = None);
    sleep(Duration::from_secs(90)).await;
    assert_eq!(bundle_state(&watches).1, TrustBundlePresence::NotProjected);
    server.behave(|it| it.dropped_projection = Some("clusterTrustBundle"));
    sleep(Duration::from_mins(1)).await;
    server.behave(|it| it.dropped_projection = None);
    sleep(Duration::from_secs(110)).await;
    assert_eq!(bundle_state(&watches).1, TrustBundlePresence::NotProjected);
    sleep(Duration::from_secs(80)).await;
    assert_present(&watches);
}

/// An API server that does not respond gives no information.
#[tokio::test(start_paused = true)]
async fn a_bundle_that_is_mounted_stays_while_the_api_server_cannot_be_asked() {
    let (server, watches) = bundle_replica(Some(&versioned("1").0)).await;
    sleep(Duration::from_secs(3)).await;
    let asked = server.count("create pods");
    let _fault = server.fault("create pods").status(500);
    sleep(Duration::from_mins(30)).await;
    assert_present(&watches);
    assert_eq!(server.count("create pods"), asked + 6);
}
