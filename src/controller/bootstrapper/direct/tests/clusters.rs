//! Whether a kubeconfig leads where it should, and whether we may write there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rstest::rstest;
use serde_json::{Value, json};

use super::skr::Skr;
use super::world::*;

#[tokio::test]
async fn older_kubeconfig_after_a_rotation_is_not_used() {
    let (world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().token = "second";
    skrs[0].lock().tokens.clear();
    world.connect("a", &skrs[0], "second");
    world
        .until("used", |_| !skrs[0].lock().tokens.is_empty())
        .await;
    world.settle().await;
    let tokens = skrs[0].lock().tokens.clone();
    assert!(tokens.iter().all(|it| it == "second"), "{tokens:?}");
    // An API server may answer by what it has at hand, but by nothing older than what we were told of.
    let told = world.kcp.get("secrets", "kubeconfig-id-a").unwrap();
    let asked = world.kcp.lock().kubeconfig_reads.last().copied();
    assert_eq!(
        asked.unwrap().to_string(),
        told["metadata"]["resourceVersion"]
    );
    assert_eq!(world.condition("a", "Ready"), "True Ready");
}

#[tokio::test]
async fn a_control_plane_that_was_put_back_to_a_backup_is_taken_as_it_is() {
    let (world, skrs) = World::converged(&["a"]).await;
    world.kcp.lock().put_back = true;
    skrs[0].lock().token = "second";
    world.connect("a", &skrs[0], "second");
    world.settle().await;
    assert_eq!(world.condition("a", "Ready"), "True Ready");
    assert_eq!(skrs[0].lock().tokens.last().unwrap(), "second");
}

/// The runtime's kubeconfig Secret holds this and nothing else.
fn kubeconfig_data(world: &World, data: &Value) {
    let mut secret = world.kcp.get("secrets", "kubeconfig-id-a").unwrap();
    secret["data"] = data.clone();
    world.kcp.put("secrets", secret);
}

/// Another authority than the one that issued the API server's certificate.
fn of_another_authority(skr: &Skr) -> String {
    let mut text: Value = serde_json::from_str(&kubeconfig(&skr.address(), "first")).unwrap();
    text["clusters"][0]["cluster"]["certificate-authority-data"] = json!(STANDARD.encode(roots()));
    text.to_string()
}

/// The address of somebody who takes calls and says nothing for as long as the test runs.
fn silence() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = Box::leak(Box::new(listener));
    format!("https://{}", listener.local_addr().unwrap())
}

/// Errors are distinct. Where the reason is the same the message tells them apart.
#[rstest]
#[case::no_secret(
    |it: &World, _: &Skr| it.kcp.delete("secrets", "kubeconfig-id-a"),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a not found"
)]
#[case::no_data(
    |it: &World, _: &Skr| kubeconfig_data(it, &Value::Null),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: no data"
)]
#[case::no_key(
    |it: &World, _: &Skr| kubeconfig_data(it, &json!({"another": "e30="})),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: key config is missing"
)]
#[case::empty(
    |it: &World, _: &Skr| it.kubeconfig("a", ""),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: key config is empty"
)]
#[case::unparsable(
    |it: &World, _: &Skr| it.kubeconfig("a", "{"),
    "InvalidKubeconfig",
    "kubeconfig rejected: line 1: not valid YAML"
)]
#[case::plain_http(
    |it: &World, _: &Skr| it.kubeconfig("a", &kubeconfig("http://127.0.0.1:1", "t")),
    "InvalidKubeconfig",
    "kubeconfig rejected: server: expected an https URL"
)]
#[case::a_place_for_no_runtime(
    |it: &World, _: &Skr| it.kubeconfig("a", &kubeconfig("https://169.254.169.254", "t")),
    "InvalidKubeconfig",
    "kubeconfig rejected: server: loopback, link-local and metadata addresses are not allowed"
)]
#[case::nobody_there(
    |it: &World, _: &Skr| it.kubeconfig("a", &kubeconfig("https://127.0.0.1:1", "t")),
    "ConnectionFailed",
    "connection failed: "
)]
#[case::no_answer(
    |it: &World, _: &Skr| it.kubeconfig("a", &kubeconfig(&silence(), "t")),
    "Timeout",
    "no connection within 500ms"
)]
#[case::another_authority(
    |it: &World, skr: &Skr| it.kubeconfig("a", &of_another_authority(skr)),
    "TLSHandshakeFailed",
    "TLS: certificate of the API server is not issued by the CA of the kubeconfig"
)]
#[case::credentials_of_no_use(
    |it: &World, skr: &Skr| it.connect("a", skr, "another"),
    "Unauthorized",
    "API server returned 401: credentials of the kubeconfig rejected"
)]
#[tokio::test]
async fn kubeconfig_that_does_not_work_is_reported_with_its_reason(
    #[case] spoil: impl Fn(&World, &Skr),
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    spoil(&world, &skrs[0]);
    world
        .until_condition("a", "Reachable", &format!("False {reason}"))
        .await;
    let conditions = world.status("a")["conditions"].to_string();
    assert!(conditions.contains(message), "{conditions}");
    // There is something to write, and the other one gets it.
    world.content.registry("two.example");
    world.publish();
    world
        .until("the other one is written", |_| {
            skrs[1].take() == [INSTALL[4]]
        })
        .await;
    world.settle().await;
    assert_eq!(world.condition("b", "Ready"), "True Ready");
    assert_eq!(skrs[0].take(), [""; 0]);
    // What it held when it was seen last stays said.
    assert!(world.status("a")["configuration"]["revision"].is_string());
    // A kubeconfig that comes back is used at once.
    world.connect("a", &skrs[0], "first");
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn a_fault_of_the_control_plane_says_nothing_about_the_runtime() {
    let (world, skrs) = World::converged(&["a"]).await;
    let before = world.status("a");
    let refused = |it: &World| it.written("refused read secrets");
    world.kcp.lock().refusals.insert("read secrets", (403, 3));
    let touch = json!({"metadata": {"annotations": {"touched": "now"}}});
    world.kcp.merge("runtimebootstrappers", "a", &touch);
    world.until("refused", |it| refused(it) == 3).await;
    let passes = world.passes();
    world.until("another pass", |it| it.passes() > passes).await;
    world.settle().await;
    assert_eq!(world.status("a"), before);
    assert_eq!(skrs[0].take(), [""; 0]);
}

#[tokio::test]
async fn two_kubeconfigs_that_lead_to_one_cluster_are_found_out_before_anything_is_written() {
    let (world, skrs) = World::converged(&["a"]).await;
    let _other = world.add("b").await;
    world.connect("b", &skrs[0], "first");
    world
        .until_condition("b", "IdentityVerified", "False ClusterAlreadyManaged")
        .await;
    world.settle().await;
    assert_eq!(skrs[0].take(), [""; 0]);
    assert_eq!(world.status("b")["clusterUID"], Value::Null);
    assert_eq!(world.condition("a", "Ready"), "True Ready");
}

#[tokio::test]
async fn a_rebuilt_cluster_waits_for_the_annotation() {
    let (world, _skrs) = World::converged(&["a"]).await;
    let rebuilt = Skr::new("cluster-new").await;
    world.connect("a", &rebuilt, "first");
    world
        .until_condition("a", "IdentityVerified", "False ClusterUIDChanged")
        .await;
    world.settle().await;
    assert_eq!(rebuilt.take(), [""; 0]);
    assert_eq!(world.status("a")["clusterUID"], "cluster-a");
    let accept = |uid: &str| {
        let annotation = json!({"rt-bootstrapper.kyma-project.io/accept-cluster-uid": uid});
        json!({"metadata": {"annotations": annotation}})
    };
    world
        .kcp
        .merge("runtimebootstrappers", "a", &accept("another"));
    world.settle().await;
    assert_eq!(rebuilt.take(), [""; 0]);
    world
        .kcp
        .merge("runtimebootstrappers", "a", &accept("cluster-new"));
    world.until_ready("a").await;
    assert_eq!(world.status("a")["clusterUID"], "cluster-new");
}

#[tokio::test]
async fn a_wrong_kubeconfig_does_not_keep_out_whom_the_cluster_belongs_to() {
    let (world, _skrs) = World::converged(&["a"]).await;
    let new = Skr::new("cluster-b").await;
    world.connect("a", &new, "first");
    world
        .until_condition("a", "IdentityVerified", "False ClusterUIDChanged")
        .await;
    world.kcp.put("runtimes", runtime("b", "id-b", &[]));
    world.connect("b", &new, "first");
    world
        .kcp
        .put("runtimebootstrappers", bootstrapper("b", &json!({})));
    world.until_ready("b").await;
}

#[tokio::test]
async fn a_foreign_marker_and_missing_rights_are_refused_before_anything_is_written() {
    let mut world = World::new();
    let skrs = world.add_all(&["a", "b"]).await;
    let marker = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-owner";
    let foreign = json!({"kind": "ConfigMap", "data": {"runtimeID": "x", "controlPlaneID": "y"}});
    skrs[0].lock().objects.insert(marker.to_owned(), foreign);
    skrs[1].lock().rules = json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]);
    world.start();
    world
        .until_condition("a", "IdentityVerified", "False OwnershipConflict")
        .await;
    world
        .until_condition("b", "Installed", "False InsufficientPermissions")
        .await;
    assert_eq!((skrs[0].take(), skrs[1].take()), (vec![], vec![]));
}

#[tokio::test]
async fn runtimes_without_an_id_or_with_the_same_id_are_reported_until_they_are_corrected() {
    let mut world = World::new();
    let skr = world.add("a").await;
    world.kcp.put("runtimes", runtime("nobody", "", &[]));
    world
        .kcp
        .put("runtimebootstrappers", bootstrapper("nobody", &json!({})));
    world.kcp.put("runtimes", runtime("twin", "id-a", &[]));
    world.start();
    let conflict = "False RuntimeIDConflict";
    world.until_condition("a", "Reachable", conflict).await;
    let text = "label kyma-project.io/runtime-id is shared with Runtime twin";
    assert!(world.status("a")["conditions"].to_string().contains(text));
    world
        .until_condition("nobody", "Reachable", "False RuntimeIDMissing")
        .await;
    assert_eq!(skr.take(), [""; 0]);
    world.kcp.delete("runtimes", "twin");
    world.until_ready("a").await;
    world.kcp.put("runtimes", runtime("twin", "id-a", &[]));
    world.until_condition("a", "Reachable", conflict).await;
}

#[tokio::test]
async fn resource_without_a_runtime_or_with_a_terminating_one_opens_no_connection() {
    let mut world = World::new();
    let skr = world.add("a").await;
    let mut leaving = runtime("a", "id-a", &[]);
    leaving["status"]["state"] = json!("Terminating");
    world.kcp.put("runtimes", leaving);
    world
        .kcp
        .put("runtimebootstrappers", bootstrapper("orphan", &json!({})));
    world.start();
    for name in ["a", "orphan"] {
        let wanted = "False RuntimeNotFound";
        world.until_condition(name, "Reachable", wanted).await;
        let text = format!("Runtime kcp-system/{name} not found");
        assert!(world.status(name)["conditions"].to_string().contains(&text));
    }
    assert_eq!(skr.lock().tokens, [""; 0]);
}

/// The definition bounds the UID in a status, so one that is longer would keep every later status away.
#[tokio::test]
async fn a_cluster_with_an_oversized_uid_is_refused_and_its_status_says_so() {
    let mut world = World::new();
    let skr = world.add("a").await;
    let kube_system = "/api/v1/namespaces/kube-system";
    skr.edit(kube_system, |it| {
        it["metadata"]["uid"] = json!("u".repeat(65));
    });
    world.start();
    world
        .until_condition("a", "IdentityVerified", "False ClusterUIDUnknown")
        .await;
    assert!(world.status("a")["clusterUID"].is_null());
    assert_eq!(skr.take(), [""; 0]);
    // The longest one is a UID like any other.
    skr.edit(kube_system, |it| {
        it["metadata"]["uid"] = json!("u".repeat(64));
    });
    world.until_ready("a").await;
}
