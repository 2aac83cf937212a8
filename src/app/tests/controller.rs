//! Tests of the component `controller` as a process without the Lease.
#![cfg(test)]

#[path = "controller/exhaustion.rs"]
mod exhaustion;
#[path = "support/ports.rs"]
mod ports;

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;
use testkit::apiserver::kinds::{
    BOOTSTRAPPERS, CERTIFICATES, GATEWAYS, KYMAS, ROLLOUTS, RUNTIMES, VIRTUAL_SERVICES, WATCHERS,
};
use testkit::apiserver::{ApiServer, Kind, Recorded};
use testkit::pki::Authority;
use testkit::tls::TlsServer;
use testkit::until::until;

use self::ports::{free_port, get, local};

/// Time limit of all waits, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const LEASE: &str = "rt-bootstrapper-controller";

/// A running controller and its KCP.
struct Env {
    kcp: ApiServer,
    _tls: TlsServer,
    _folder: TempDir,
    health: u16,
    metrics: u16,
    heartbeats: u16,
    child: Child,
}

impl Drop for Env {
    fn drop(&mut self) {
        // Both calls fail for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Env {
    /// Starts the environment with Istio. Another replica holds the Lease for an hour.
    async fn start(controllers: &str) -> Self {
        Self::start_with(controllers, &[&VIRTUAL_SERVICES, &GATEWAYS]).await
    }

    /// Starts the environment with these kinds of other installations.
    async fn start_with(controllers: &str, foreign: &[&'static Kind]) -> Self {
        let own = [&RUNTIMES, &BOOTSTRAPPERS, &ROLLOUTS, &WATCHERS, &KYMAS];
        let kcp = ApiServer::with_kinds(own.into_iter().chain(foreign.iter().copied()));
        kcp.namespace("kcp-system");
        kcp.namespace("istio-system");
        kcp.put(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": "kcp-system"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 1},
        }));
        kcp.put(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "rt-bootstrapper-config", "namespace": "kcp-system"},
            "data": {"rt-bootstrapper-config.json": "{\"overrides\": {\"docker.io\": \"one.example\"}}"},
        }));
        let authority = Authority::new("kubernetes").unwrap();
        let leaf = authority.leaf("kube-apiserver").unwrap();
        let config = leaf.server_config(&["h2", "http/1.1"], None).unwrap();
        let tls = TlsServer::of(config, kcp.clone()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = tls.kubeconfig(&authority, "t");
        std::fs::write(&kubeconfig, text).unwrap();
        let [health, metrics, heartbeats] = [(); 3].map(|()| free_port());
        let address = |port| local(port).to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_runtime-bootstrapper"))
            .args(["controller", "--controllers", controllers])
            .args(["--health-probe-bind-address", &address(health)])
            .args(["--metrics-bind-address", &address(metrics)])
            .args(["--heartbeat-bind-address", &address(heartbeats)])
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            kcp,
            _tls: tls,
            _folder: folder,
            health,
            metrics,
            heartbeats,
            child,
        }
    }

    async fn until(&self, what: &str, holds: impl Fn(&ApiServer) -> bool) {
        let reached = until(what, PATIENCE, || async {
            let requests = self.kcp.requests();
            let asked: Vec<String> = requests.iter().map(|it| it.asked.to_string()).collect();
            holds(&self.kcp)
                .then_some(())
                .ok_or_else(|| asked.join("\n"))
        });
        reached.await.unwrap();
    }

    /// Makes this replica the leader.
    fn lead(&self) {
        self.kcp.edit("leases", ("kcp-system", LEASE), |it| {
            it["spec"]["holderIdentity"] = json!("");
        });
    }

    /// Waits until the process is ready although these watches fail.
    async fn until_ready_despite(&self, watches: &[&str]) {
        let ready = async || {
            let answer = get(self.health, "/readyz").await?;
            let line = |it: &&str| format!("{it}: ready: failing since");
            let fail = watches.iter().all(|it| answer.body.contains(&line(it)));
            let ready = answer.status == 200 && fail;
            ready.then_some(()).ok_or(io::Error::other(answer.body))
        };
        until("ready", PATIENCE, ready).await.unwrap();
    }

    /// Returns the writes so far, except writes of the Lease.
    fn writes(&self) -> Vec<String> {
        let requests = self.kcp.requests().into_iter();
        let writes = requests.filter(|it: &Recorded| it.is_write() && !it.asked.is_of("* leases"));
        writes.map(|it| it.asked.to_string()).collect()
    }
}

#[rstest]
#[case::signal("signal", "rt-bootstrapper-signal-state")]
#[case::direct("direct", "rt-bootstrapper-direct-state")]
#[tokio::test]
async fn a_replica_reads_the_sources_only_as_the_leader(
    #[case] controllers: &str,
    #[case] state: &str,
) {
    let env = Env::start(controllers).await;
    env.until("the lease is asked for", |it| it.count("get leases") > 0)
        .await;
    // A leader reads the sources at once. The Lease is read again seconds later.
    let asked = env.kcp.count("get leases");
    env.until("the lease is asked for again", |it| {
        it.count("get leases") >= asked + 2
    })
    .await;
    assert_eq!(env.writes(), [""; 0]);
    let read = ["list configmaps", "watch configmaps"].map(|it| env.kcp.count(it));
    assert_eq!(read, [0, 0], "content of an earlier time");
    env.lead();
    let write = format!("create configmaps kcp-system/{state}");
    env.until("it leads", |it| it.count(&write) > 0).await;
}

/// Creates a Watcher and an Istio Gateway. If KCP does not serve a kind, its object is not created.
fn watch(kcp: &ApiServer) {
    kcp.put(&json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "gateway", "namespace": "kcp-system"},
        "spec": {"servers": [{"hosts": ["kcp.example"]}]},
    }));
    kcp.put(&json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"name": "one", "namespace": "kcp-system"},
        "spec": {
            "manager": "one", "field": "spec", "gateway": {"selector": {}},
            "resourceToWatch": {"group": "", "version": "v1", "resource": "configmaps"},
            "serviceInfo": {"name": "events", "port": 8082, "namespace": "kcp-system"},
        },
    }));
}

fn has_route(kcp: &ApiServer) -> bool {
    kcp.get("virtualservices", "kcp-system", "one").is_some()
}

#[tokio::test]
async fn watchers_alone_need_no_runtimes() {
    let env = Env::start("watchers").await;
    watch(&env.kcp);
    env.lead();
    env.until("the route is created", has_route).await;
    assert_eq!(env.kcp.count("* runtimes"), 0);
}

/// A rollout of the Deployment waits until the new leader is ready.
#[rstest]
#[case::without_istio(
    &[&CERTIFICATES],
    |it: &ApiServer| it.get("certificates", "istio-system", "one-webhook-tls").is_some(),
    &["gateways-watch", "virtualservices-watch", "certificate-gateways-watch"],
)]
#[case::without_cert_manager(
    &[&VIRTUAL_SERVICES, &GATEWAYS],
    has_route,
    &["certificates-watch"],
)]
#[tokio::test]
async fn a_leader_is_ready_and_works_without_the_kinds_of_another_installation(
    #[case] served: &[&'static Kind],
    #[case] works: fn(&ApiServer) -> bool,
    #[case] watches: &[&str],
) {
    let env = Env::start_with("watchers", served).await;
    watch(&env.kcp);
    env.kcp.put(&json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": "one", "namespace": "kcp-system",
            "labels": {"kyma-project.io/runtime-id": "id-one"},
            "annotations": {"skr-domain": "one.example"},
        },
    }));
    env.lead();
    env.until("the other part works", works).await;
    env.until_ready_despite(watches).await;
}

#[tokio::test]
async fn a_running_component_writes_no_core_files() {
    let env = Env::start("signal").await;
    env.until("it runs", |it| it.count("*") > 0).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", env.child.id())).unwrap();
    let mut lines = limits.lines();
    let line = lines.find_map(|it| it.strip_prefix("Max core file size"));
    let values: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(values, ["0", "0", "bytes"]);
}
