//! Tests of the identity of the cluster of a kubeconfig, and of the permissions to write there.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Rights;

use super::env::*;
use crate::runtime_cluster::RuntimeCluster;

#[tokio::test]
async fn older_kubeconfig_after_a_rotation_is_not_used() {
    let (env, clusters) = Env::converged(&["a"]).await;
    clusters[0].expect_token("second");
    clusters[0].take();
    env.connect("a", &clusters[0], "second");
    env.until("used", |_| !clusters[0].tokens().is_empty())
        .await;
    env.settle().await;
    let tokens = clusters[0].tokens();
    assert!(tokens.iter().all(|it| it == "second"), "{tokens:?}");
    // The API server may respond from its cache, but not with a version older than the version that the watch reported.
    let told = env.kcp.object("secrets", "kubeconfig-id-a").unwrap();
    let read = env.kcp.requests_of("get secrets").pop().unwrap();
    let version = told["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(
        read.uri.ends_with(&format!("resourceVersion={version}")),
        "{}",
        read.uri
    );
    assert_eq!(env.condition("a", "Ready"), "True Ready");
}

#[tokio::test]
async fn a_control_plane_that_was_put_back_to_a_backup_is_taken_as_it_is() {
    let (env, clusters) = Env::converged(&["a"]).await;
    clusters[0].expect_token("second");
    drop(env.kcp.take_requests());
    // The API server has not reached the version that the watch reported before.
    env.kcp.fault("get secrets").times(1).status(504);
    env.connect("a", &clusters[0], "second");
    env.until("the kubeconfig is read again", |it| {
        it.kcp.requests_of("get secrets").len() >= 2
    })
    .await;
    env.settle().await;
    let reads = env.kcp.requests_of("get secrets");
    let versions = [&reads[0], &reads[1]].map(|it| it.uri.contains("resourceVersion="));
    assert_eq!(versions, [true, false]);
    assert_eq!(env.condition("a", "Ready"), "True Ready");
    assert_eq!(clusters[0].tokens().last().unwrap(), "second");
}

/// Replaces the data of the kubeconfig Secret of the runtime.
fn kubeconfig_data(env: &Env, data: &Value) {
    let mut secret = env.kcp.object("secrets", "kubeconfig-id-a").unwrap();
    secret["data"] = data.clone();
    env.kcp.put(secret);
}

/// Returns a kubeconfig with another CA than the issuer of the API server's certificate.
fn of_another_authority(cluster: &RuntimeCluster) -> String {
    let mut text: Value = serde_json::from_str(&kubeconfig(&cluster.address(), "first")).unwrap();
    text["clusters"][0]["cluster"]["certificate-authority-data"] = json!(STANDARD.encode(roots()));
    text.to_string()
}

/// Returns the address of a server that accepts connections and sends no data until the test ends.
fn silence() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = Box::leak(Box::new(listener));
    format!("https://{}", listener.local_addr().unwrap())
}

/// Errors are distinct. If the reasons are equal, the messages differ.
#[rstest]
#[case::no_secret(
    |it: &Env, _: &RuntimeCluster| it.kcp.delete("secrets", "kubeconfig-id-a"),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a not found"
)]
#[case::no_data(
    |it: &Env, _: &RuntimeCluster| kubeconfig_data(it, &Value::Null),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: no data"
)]
#[case::no_key(
    |it: &Env, _: &RuntimeCluster| kubeconfig_data(it, &json!({"another": "e30="})),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: key config is missing"
)]
#[case::empty(
    |it: &Env, _: &RuntimeCluster| it.kubeconfig("a", ""),
    "KubeconfigNotFound",
    "Secret kubeconfig-id-a: key config is empty"
)]
#[case::unparsable(
    |it: &Env, _: &RuntimeCluster| it.kubeconfig("a", "{"),
    "InvalidKubeconfig",
    "kubeconfig rejected: line 1: not valid YAML"
)]
#[case::plain_http(
    |it: &Env, _: &RuntimeCluster| it.kubeconfig("a", &kubeconfig("http://127.0.0.1:1", "t")),
    "InvalidKubeconfig",
    "kubeconfig rejected: server: expected an https URL"
)]
#[case::a_place_for_no_runtime(
    |it: &Env, _: &RuntimeCluster| it.kubeconfig("a", &kubeconfig("https://169.254.169.254", "t")),
    "InvalidKubeconfig",
    "kubeconfig rejected: server: loopback, link-local and metadata addresses are not allowed"
)]
#[case::no_server(
    |it: &Env, _: &RuntimeCluster| it.kubeconfig("a", &kubeconfig("https://127.0.0.1:1", "t")),
    "ConnectionFailed",
    "connection failed: "
)]
#[case::another_authority(
    |it: &Env, cluster: &RuntimeCluster| it.kubeconfig("a", &of_another_authority(cluster)),
    "TLSHandshakeFailed",
    "TLS: certificate of the API server is not issued by the CA of the kubeconfig"
)]
#[case::credentials_of_no_use(
    |it: &Env, cluster: &RuntimeCluster| it.connect("a", cluster, "another"),
    "Unauthorized",
    "API server returned 401: credentials of the kubeconfig rejected"
)]
#[tokio::test]
async fn kubeconfig_that_does_not_work_is_reported_with_its_reason(
    #[case] spoil: impl Fn(&Env, &RuntimeCluster),
    #[case] reason: &str,
    #[case] message: &str,
) {
    let (env, clusters) = Env::converged(&["a", "b"]).await;
    spoil(&env, &clusters[0]);
    is_reported_until_it_is_corrected(env, &clusters, reason, message).await;
}

#[tokio::test]
async fn kubeconfig_of_a_server_that_sends_no_data_is_reported_with_its_timeout() {
    let mut env = Env::new();
    // The other runtime connects in this time also on a loaded machine.
    env.connect_timeout = Duration::from_secs(3);
    let clusters = env.converge(&["a", "b"]).await;
    env.kubeconfig("a", &kubeconfig(&silence(), "t"));
    is_reported_until_it_is_corrected(env, &clusters, "Timeout", "no connection within 3s").await;
}

/// Checks that the kubeconfig of the first of two runtimes is reported, and that the other runtime is synchronized.
async fn is_reported_until_it_is_corrected(
    mut env: Env,
    clusters: &[RuntimeCluster],
    reason: &str,
    message: &str,
) {
    env.until_condition("a", "Reachable", &format!("False {reason}"))
        .await;
    let conditions = env.status("a")["conditions"].to_string();
    assert!(conditions.contains(message), "{conditions}");
    // The change requires a write, which the other runtime receives.
    env.content.registry("two.example");
    env.publish();
    env.until("the other one is written", |_| {
        clusters[1].take() == [INSTALL[4]]
    })
    .await;
    env.more_passes(3).await;
    env.until_ready("b").await;
    assert_eq!(clusters[0].take(), [""; 0]);
    // The status still contains the last observed configuration.
    assert!(env.status("a")["configuration"]["revision"].is_string());
    // A corrected kubeconfig is used immediately.
    env.connect("a", &clusters[0], "first");
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn a_fault_of_the_control_plane_says_nothing_about_the_runtime() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let before = env.status("a");
    let refusal = env.kcp.fault("get secrets").times(3).status(403);
    // A reconcile that KCP interrupts does not count.
    let passes = env.passes();
    env.touch("a");
    env.until("refused", |_| refusal.hits() == 3).await;
    env.until_passes(passes + 1).await;
    env.settle().await;
    assert_eq!(env.status("a"), before);
    assert_eq!(clusters[0].take(), [""; 0]);
}

#[tokio::test]
async fn two_kubeconfigs_that_lead_to_one_cluster_are_found_out_before_anything_is_written() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let _other = env.add("b").await;
    env.connect("b", &clusters[0], "first");
    env.until_condition("b", "IdentityVerified", "False ClusterAlreadyManaged")
        .await;
    env.more_passes(3).await;
    assert_eq!(clusters[0].take(), [""; 0]);
    assert_eq!(env.status("b")["clusterUID"], Value::Null);
    assert_eq!(env.condition("a", "Ready"), "True Ready");
}

#[tokio::test]
async fn a_rebuilt_cluster_waits_for_the_annotation() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let rebuilt = RuntimeCluster::new("cluster-new").await;
    env.connect("a", &rebuilt, "first");
    env.until_condition("a", "IdentityVerified", "False ClusterUIDChanged")
        .await;
    env.more_passes(3).await;
    assert_eq!(rebuilt.take(), [""; 0]);
    assert_eq!(env.status("a")["clusterUID"], "cluster-a");
    let accept = |uid: &str| {
        let annotation = json!({"rt-bootstrapper.kyma-project.io/accept-cluster-uid": uid});
        json!({"metadata": {"annotations": annotation}})
    };
    env.kcp
        .merge("runtimebootstrappers", "a", &accept("another"));
    env.more_passes(3).await;
    assert_eq!(rebuilt.take(), [""; 0]);
    env.kcp
        .merge("runtimebootstrappers", "a", &accept("cluster-new"));
    env.until_ready("a").await;
    assert_eq!(env.status("a")["clusterUID"], "cluster-new");
}

/// Returns the output of the documented command that reads names of `RuntimeBootstrapper`s and messages of their conditions, and
/// returns the arguments of `kubectl annotate`.
fn documented_annotations(conditions: &str) -> String {
    let docs = include_str!("../../../../docs/controller.md");
    let (_, command) = docs.split_once("sed -nE '").unwrap();
    let (expression, _) = command.split_once('\'').unwrap();
    let mut sed = Command::new("sed");
    sed.args(["-nE", expression]);
    sed.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = sed.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(conditions.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_documented_command_accepts_rebuilt_clusters_and_those_of_a_restored_control_plane() {
    let names = ["a", "b", "c"];
    let (env, clusters) = Env::converged(&names).await;
    let rebuilt = RuntimeCluster::new("cluster-new").await;
    env.connect("a", &rebuilt, "first");
    clusters[1].change("configmaps kyma-system/rt-bootstrapper-owner", |it| {
        it["data"]["controlPlaneID"] = json!("before-the-restore");
    });
    env.touch("b");
    env.until_condition("a", "IdentityVerified", "False ClusterUIDChanged")
        .await;
    env.until_condition("b", "IdentityVerified", "False OwnershipConflict")
        .await;
    let line = |name: &&str| {
        let conditions = env.status(name)["conditions"].clone();
        let mut conditions = conditions.as_array().unwrap().iter();
        let verified = conditions.find(|it| it["type"] == "IdentityVerified");
        format!(
            "{name} {}\n",
            verified.unwrap()["message"].as_str().unwrap()
        )
    };
    let found = documented_annotations(&names.iter().map(line).collect::<String>());
    let key = "rt-bootstrapper.kyma-project.io/accept-cluster-uid";
    assert_eq!(found, format!("a {key}=cluster-new\nb {key}=cluster-b\n"));
    for arguments in found.lines() {
        let (name, annotation) = arguments.split_once(' ').unwrap();
        let (key, uid) = annotation.split_once('=').unwrap();
        let patch = json!({"metadata": {"annotations": {key: uid}}});
        env.kcp.merge("runtimebootstrappers", name, &patch);
        env.until_ready(name).await;
    }
}

/// Otherwise the deletion of a `RuntimeBootstrapper` would delete objects of KCP with the same names.
#[tokio::test]
async fn a_kubeconfig_that_leads_to_the_control_plane_is_refused_on_the_way_in_and_out() {
    let env = Env::converged(&["a"]).await.0;
    let kcp = RuntimeCluster::new("kcp-uid").await;
    env.connect("a", &kcp, "first");
    let refused = "False OwnershipConflict";
    env.until_condition("a", "IdentityVerified", refused).await;
    let text = "the kubeconfig leads to the control plane itself";
    assert!(env.status("a")["conditions"].to_string().contains(text));
    env.kcp.delete("runtimebootstrappers", "a");
    // The first one may have started before the deletion.
    env.more_passes(2).await;
    assert_eq!(kcp.take(), [""; 0]);
}

#[tokio::test]
async fn a_wrong_kubeconfig_does_not_exclude_the_owner_of_the_cluster() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let new = RuntimeCluster::new("cluster-b").await;
    env.connect("a", &new, "first");
    env.until_condition("a", "IdentityVerified", "False ClusterUIDChanged")
        .await;
    env.kcp.put(runtime("b", "id-b", &[]));
    env.connect("b", &new, "first");
    env.kcp.put(bootstrapper("b", &json!({})));
    env.until_ready("b").await;
}

fn foreign_marker() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-owner", "namespace": "kyma-system"},
        "data": {"runtimeID": "id-a", "controlPlaneID": "y"},
    })
}

/// Both control planes find no marker, and the other control plane creates the marker first.
#[tokio::test]
async fn of_two_control_planes_with_one_kubeconfig_one_writes() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let creation = cluster.fault("create configmaps").times(1);
    creation.before(|server| server.put(&foreign_marker()));
    env.start();
    env.until_condition("a", "IdentityVerified", "False OwnershipConflict")
        .await;
    assert_eq!(cluster.take(), [INSTALL[0]]);
    assert_eq!(
        cluster.kyma("configmaps/rt-bootstrapper-owner").unwrap()["data"]["controlPlaneID"],
        "y"
    );
}

#[tokio::test]
async fn a_foreign_marker_and_missing_rights_are_refused_before_anything_is_written() {
    let mut env = Env::new();
    let clusters = env.add_all(&["a", "b"]).await;
    clusters[0].put(&foreign_marker());
    clusters[1].behave(|it| it.rights = Rights::with_verbs(&["get", "list"]));
    env.start();
    env.until_condition("a", "IdentityVerified", "False OwnershipConflict")
        .await;
    env.until_condition("b", "Installed", "False InsufficientPermissions")
        .await;
    assert_eq!((clusters[0].take(), clusters[1].take()), (vec![], vec![]));
}

#[tokio::test]
async fn runtimes_without_an_id_or_with_the_same_id_are_reported_until_they_are_corrected() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    env.kcp.put(runtime("unlabeled", "", &[]));
    env.kcp.put(bootstrapper("unlabeled", &json!({})));
    env.kcp.put(runtime("other", "id-a", &[]));
    env.start();
    let conflict = "False RuntimeIDConflict";
    env.until_condition("a", "Reachable", conflict).await;
    let text = "label kyma-project.io/runtime-id is shared with Runtime other";
    assert!(env.status("a")["conditions"].to_string().contains(text));
    env.until_condition("unlabeled", "Reachable", "False RuntimeIDMissing")
        .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.kcp.delete("runtimes", "other");
    env.until_ready("a").await;
    env.kcp.put(runtime("other", "id-a", &[]));
    env.until_condition("a", "Reachable", conflict).await;
}

#[tokio::test]
async fn resource_without_a_runtime_or_with_a_terminating_one_opens_no_connection() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    let mut leaving = runtime("a", "id-a", &[]);
    leaving["status"]["state"] = json!("Terminating");
    env.kcp.put(leaving);
    env.kcp.put(bootstrapper("orphan", &json!({})));
    env.start();
    for name in ["a", "orphan"] {
        let wanted = "False RuntimeNotFound";
        env.until_condition(name, "Reachable", wanted).await;
        let text = format!("Runtime kcp-system/{name} not found");
        assert!(env.status(name)["conditions"].to_string().contains(&text));
    }
    assert_eq!(cluster.tokens(), [""; 0]);
}

/// The CustomResourceDefinition bounds the UID in a status, so the API server would reject every status with a longer UID. A line
/// break would add a line to the input of the documented command, which could annotate another `RuntimeBootstrapper`.
#[rstest]
#[case::oversized(&"u".repeat(65))]
#[case::several_lines("u\nb is expected by annotation key=value")]
#[case::quote("u'u")]
#[tokio::test]
async fn a_cluster_with_an_invalid_uid_is_refused_and_its_status_says_so(#[case] uid: &str) {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    cluster.set_uid(uid);
    env.start();
    env.until_condition("a", "IdentityVerified", "False ClusterUIDUnknown")
        .await;
    assert!(env.status("a")["clusterUID"].is_null());
    assert_eq!(cluster.take(), [""; 0]);
    // A UID of the maximum length is valid.
    cluster.set_uid(&"u".repeat(64));
    env.until_ready("a").await;
}
