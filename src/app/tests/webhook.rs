//! Tests of the component `webhook` as a process, with a certificate in files.
#![cfg(test)]

#[path = "support/ports.rs"]
mod ports;

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use api::names;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::apiserver::ApiServer;
use testkit::flood::{Target, assert_withstands};
use testkit::json::config_map;
use testkit::metrics::Samples;
use testkit::pki::rcgen::SanType;
use testkit::pki::{Authority, client_config};
use testkit::tls::{RawTlsClient, TlsServer};
use testkit::until::until;

use self::ports::{free_port, get, local};

/// Time limit of all waits, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The name that an API server verifies.
const SERVER: &str = "rt-bootstrapper-webhook-service.kyma-system.svc";

/// A running webhook and its API server.
struct Env {
    child: Child,
    webhook: u16,
    health: u16,
    metrics: u16,
    client: ClientConfig,
    _kubernetes: TlsServer,
    _folder: TempDir,
}

impl Drop for Env {
    fn drop(&mut self) {
        // Both calls fail for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an API server with a configuration, and with the Namespace `shop`.
fn kubernetes() -> ApiServer {
    let kubernetes = ApiServer::new();
    let document = json!({
        "availableFeatures": ["rt-cfg.kyma-project.io/alter-img-registry"],
        "overrides": {"docker.io": "mirror.example"},
    });
    let document = document.to_string();
    let data = json!({"rt-bootstrapper-config.json": document});
    let namespace = names::SKR_NAMESPACE;
    kubernetes.put(&config_map(namespace, names::CONFIG_MAP, &data));
    kubernetes.namespace("shop");
    kubernetes
}

impl Env {
    /// Starts a webhook, with at most `open_files` files unless it raises this limit, and waits until it is ready.
    async fn start(open_files: u64) -> Self {
        let authority = Authority::new("kubernetes").unwrap();
        let leaf = authority.leaf("kube-apiserver").unwrap();
        let config = leaf.server_config(&["h2", "http/1.1"], None).unwrap();
        let tls = TlsServer::of(config, kubernetes()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let own = authority.leaf_with("webhook", |it| {
            it.subject_alt_names = vec![SanType::DnsName(SERVER.try_into().unwrap())];
        });
        let own = own.unwrap();
        write("tls.crt", &own.pem);
        write("tls.key", &own.key_pem());
        write("ca.crt", authority.pem());
        write("kubeconfig", &tls.kubeconfig(&authority, "t"));
        let [webhook, health, metrics] = [(); 3].map(|()| free_port());
        let address = |port| local(port).to_string();
        let limited = format!(r#"ulimit -Sn {open_files} && exec "$@""#);
        let child = Command::new("sh")
            .args(["-c", &limited, "sh"])
            .args([env!("CARGO_BIN_EXE_runtime-bootstrapper"), "webhook"])
            .args(["--webhook-bind-address", &address(webhook)])
            .args(["--health-probe-bind-address", &address(health)])
            .args(["--metrics-bind-address", &address(metrics)])
            .arg("--webhook-cert-path")
            .arg(folder.path())
            .env_clear()
            .env("KUBECONFIG", folder.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let env = Self {
            child,
            webhook,
            health,
            metrics,
            client: client_config(authority.roots(), None, &[]).unwrap(),
            _kubernetes: tls,
            _folder: folder,
        };
        env.ready().await;
        env
    }

    async fn ready(&self) {
        let ready = async || {
            let answer = get(self.health, "/readyz").await?;
            let ready = answer.status == 200;
            ready.then_some(()).ok_or(io::Error::other(answer.body))
        };
        until("ready", PATIENCE, ready).await.unwrap();
    }

    async fn connect(&self) -> RawTlsClient {
        let connecting =
            RawTlsClient::connect_tls(local(self.webhook), SERVER, self.client.clone());
        connecting.await.unwrap()
    }

    /// Returns the three ports as targets of a flood.
    fn targets(&self) -> [Target; 3] {
        let admission = Target {
            address: local(self.webhook),
            tls: Some((SERVER.to_owned(), self.client.clone())),
            request: format!("POST {}", names::WEBHOOK_PATH),
            header_bytes: 15_000,
        };
        let [health, metrics] = [(self.health, "/healthz"), (self.metrics, "/metrics")]
            .map(|(port, path)| Target::plain(local(port), path));
        [admission, health, metrics]
    }
}

/// Returns a request with a review of a Pod whose image is rewritten.
fn review() -> String {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "web", "namespace": "shop",
                    "annotations": {"rt-cfg.kyma-project.io/alter-img-registry": "true"},
                },
                "spec": {"containers": [{"name": "web", "image": "docker.io/library/nginx:1"}]},
            },
        },
    });
    let (path, body) = (names::WEBHOOK_PATH, review.to_string());
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// All kinds of clients at once, on all three ports: many times their limits of connections. The process starts with the limit
/// of open files that a container gets from systemd, which is as large as the limit of connections alone.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_probes_and_scrapes_are_answered_during_a_flood_of_all_ports() {
    let env = Env::start(1_024).await;
    let request = review();
    let (mut kept, mut sent) = (env.connect().await, 0);
    let ask = async || {
        // Like an API server, which keeps its connections, and opens further ones.
        if sent % 4 == 0 {
            kept = env.connect().await;
        }
        sent += 1;
        let answer = kept.ask(&request).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(answer["response"]["patch"].is_string(), "{answer}");
    };
    let flood = assert_withstands(env.child.id(), env.targets(), ask).await;
    let _flood = flood.unwrap();
    for (port, path) in [(env.health, "/healthz"), (env.health, "/readyz")] {
        assert_eq!(get(port, path).await.unwrap().status, 200);
    }
    let samples = get(env.metrics, "/metrics").await.unwrap();
    let samples = Samples::parse(&samples.body);
    for server in ["webhook", "health", "metrics"] {
        let of = |name| {
            let series = format!("rt_bootstrapper_server_{name}{{server={server:?}}}");
            samples.exact(&series)
        };
        assert!(of("connections_evicted_total") > Some(0.0), "{server}");
        assert_eq!(of("accept_errors_total"), Some(0.0), "{server}");
    }
}
