//! Tests of the subcommand `plan` as a process with two API servers: its text and exit code, and that it writes nothing.
#![cfg(test)]

use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::apiserver::kinds::{BOOTSTRAPPERS, ROLLOUTS, RUNTIMES};
use testkit::apiserver::{ApiServer, Recorded};
use testkit::pki::Authority;
use testkit::tls::TlsServer;

/// KCP and one runtime, `a`.
struct Env {
    kcp: ApiServer,
    runtime: ApiServer,
    folder: TempDir,
    _tls: [TlsServer; 2],
}

async fn serve(authority: &Authority, server: &ApiServer) -> (TlsServer, String) {
    let leaf = authority.leaf("kube-apiserver").unwrap();
    let config = leaf.server_config(&["h2", "http/1.1"], None).unwrap();
    let tls = TlsServer::of(config, server.clone()).await.unwrap();
    let kubeconfig = tls.kubeconfig(authority, "hunter2");
    (tls, kubeconfig)
}

impl Env {
    async fn new() -> Self {
        let authority = Authority::new("kubernetes").unwrap();
        let kcp = ApiServer::with_kinds([&RUNTIMES, &BOOTSTRAPPERS, &ROLLOUTS]);
        kcp.namespace("kcp-system");
        let runtime = ApiServer::new();
        runtime.namespace("kyma-system");
        runtime.edit("namespaces", ("", "kube-system"), |it| {
            it["metadata"]["uid"] = json!("cluster-a");
        });
        let (kcp_tls, kubeconfig) = serve(&authority, &kcp).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let (runtime_tls, kubeconfig) = serve(&authority, &runtime).await;
        let docker = json!({"auths": {"registry.test": {"username": "u", "password": "hunter2"}}});
        for object in [
            json!({
                "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
                "metadata": {"name": "a", "labels": {"kyma-project.io/runtime-id": "id-a"}},
                "spec": {}, "status": {"state": "Ready"},
            }),
            json!({
                "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
                "metadata": {"name": "a"}, "spec": {},
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kubeconfig-id-a"},
                "data": {"config": STANDARD.encode(kubeconfig)},
            }),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials"},
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": STANDARD.encode(docker.to_string())},
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
                "data": {"rt-bootstrapper-config.json": "{\"overrides\": {\"docker.io\": \"one.example\"}}"},
            }),
        ] {
            put(&kcp, object);
        }
        Self {
            kcp,
            runtime,
            folder,
            _tls: [kcp_tls, runtime_tls],
        }
    }

    /// Runs `plan`, and checks that no API server has received a write.
    async fn plan(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runtime-bootstrapper"));
        command
            .args(["plan", "--allow-loopback-runtimes"])
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let Output {
            status,
            stdout,
            stderr,
        } = output.await.unwrap();
        for server in [&self.kcp, &self.runtime] {
            let requests = server.requests().into_iter();
            let writes: Vec<_> = requests
                .filter(Recorded::is_write)
                .map(|it| it.asked)
                .collect();
            assert!(writes.is_empty(), "{writes:?}");
        }
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

fn put(server: &ApiServer, mut object: Value) {
    object["metadata"]["namespace"] = json!("kcp-system");
    server.put(&object);
}

#[tokio::test]
async fn new_runtime_is_shown_with_its_steps_and_no_credential() {
    let env = Env::new().await;
    let (code, text, errors) = env.plan(&["a"]).await;
    assert_eq!((code, errors.as_str()), (3, ""), "{text}");
    for line in [
        "Runtime kcp-system/a\n",
        "  goal:        Sync\n",
        "  1. create   ConfigMap kyma-system/rt-bootstrapper-owner\n",
        "Lane configuration\n  1. create   Secret kyma-system/registry-credentials\n",
        "  2. create   ConfigMap kyma-system/rt-bootstrapper-config\n",
        "  2. create   Deployment kyma-system/rt-bootstrapper-controller-manager\n",
        "  Installed                 False    Installing",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let (code, json, _) = env.plan(&["a", "-o", "json"]).await;
    assert_eq!(code, 3);
    let plan: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(plan["runtime"], "kcp-system/a");
    assert_eq!(plan["runtimeId"], "id-a");
    assert_eq!(plan["lanes"][0]["steps"][0][0]["kind"], "Secret");
    let encoded = STANDARD.encode("hunter2");
    for secret in [
        "hunter2",
        encoded.trim_end_matches('='),
        "one.example",
        "BEGIN",
    ] {
        assert!(!text.contains(secret) && !json.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn differing_fields_and_hashes_are_shown_without_their_values() {
    let env = Env::new().await;
    let hash = "rt-bootstrapper.kyma-project.io/content-hash";
    env.runtime.put(&json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "registry-credentials", "namespace": "kyma-system",
            "annotations": {hash: "0123456789abcdef"},
        },
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode("{}")},
    }));
    let (code, text, _) = env.plan(&["a"]).await;
    assert_eq!(code, 3, "{text}");
    let (_, after) = text
        .split_once("apply    Secret kyma-system/registry-credentials\n")
        .unwrap_or_else(|| panic!("{text}"));
    let lines: Vec<&str> = after.lines().map(str::trim).take(3).collect();
    let path = format!("metadata.annotations[\"{hash}\"]");
    assert_eq!(lines[..2], ["data[\".dockerconfigjson\"]", &path], "{text}");
    assert!(lines[2].starts_with("hash 0123456789ab -> "), "{text}");
}

#[tokio::test]
async fn runtime_that_is_not_managed_has_nothing_to_write() {
    let env = Env::new().await;
    env.kcp.remove("runtimebootstrappers", "kcp-system", "a");
    let (code, text, _) = env.plan(&["a"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("not managed: no RuntimeBootstrapper"),
        "{text}"
    );
    let (code, text, _) = env.plan(&["a", "--direct-selector="]).await;
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("KCP\n  create RuntimeBootstrapper a\n"),
        "{text}"
    );
}

#[tokio::test]
async fn runtime_that_cannot_be_reached_is_a_failure_with_its_reason() {
    let env = Env::new().await;
    env.kcp.remove("secrets", "kcp-system", "kubeconfig-id-a");
    let (code, text, errors) = env.plan(&["a"]).await;
    assert_eq!((code, errors.as_str()), (1, ""), "{text}");
    assert!(
        text.contains("blocked:     Secret kubeconfig-id-a not found"),
        "{text}"
    );
    assert!(text.contains("KubeconfigNotFound"), "{text}");
}

#[rstest]
#[case::unknown_runtime(&["b"], 1, "Runtime kcp-system/b not found")]
#[case::no_name(&[], 2, "RUNTIME")]
#[case::invalid_name(&["A"], 2, "lower-case")]
#[case::unknown_format(&["a", "-o", "xml"], 2, "xml")]
#[tokio::test]
async fn errors_leave_standard_output_empty(
    #[case] arguments: &[&str],
    #[case] expected: i32,
    #[case] message: &str,
) {
    let env = Env::new().await;
    let (code, text, errors) = env.plan(arguments).await;
    assert_eq!((code, text.as_str()), (expected, ""), "{errors}");
    assert!(errors.contains(message), "{errors}");
}
