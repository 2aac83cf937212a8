//! Runs the watcher as a separate process, with its own certificates, spool and ports.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::Value;
use tempfile::TempDir;
use testkit::flood::Target;
use testkit::metrics::Samples;
use testkit::pki::{Authority, client_config};
use testkit::tls::{RawClient, RawTlsClient};
use testkit::until::until;

use super::ports::{free_port, get, local};

/// Time limit of all waits, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a command of the watcher without any settings in the environment.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runtime-bootstrapper"));
    command.arg("watcher").env_clear().stdin(Stdio::null());
    command
}

/// The files of one watcher.
pub(crate) struct Folder {
    root: TempDir,
    pub(crate) authority: Authority,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self {
            root: tempfile::tempdir().unwrap(),
            authority: Authority::new("kyma").unwrap(),
        };
        std::fs::create_dir(folder.path("spool")).unwrap();
        std::fs::write(folder.path("ca.crt"), folder.authority.pem()).unwrap();
        folder.certify();
        folder
    }

    /// Writes a new certificate with a new key for the watcher.
    pub(crate) fn certify(&self) {
        let leaf = self.authority.leaf("watcher").unwrap();
        std::fs::write(self.path("tls.key"), leaf.key_pem()).unwrap();
        std::fs::write(self.path("tls.crt"), leaf.pem).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        self.command_with_delay("2s")
    }

    /// Returns a command with this time between SIGTERM and the end of serving.
    pub(crate) fn command_with_delay(&self, shutdown_delay: &str) -> Command {
        let mut command = command();
        command
            .env("CA_CERT", self.path("ca.crt"))
            .env("TLS_CERT", self.path("tls.crt"))
            .env("TLS_KEY", self.path("tls.key"))
            // The discard port, on which no server listens.
            .env("KCP_ADDR", "127.0.0.1:9")
            .env("KCP_CONTRACT", "v2")
            .env("WATCHER_SPOOL_DIR", self.path("spool"))
            .args(["--shutdown-delay-duration", shutdown_delay]);
        command
    }
}

/// A running watcher.
pub(crate) struct Running {
    child: Child,
    pub(crate) webhook: u16,
    pub(crate) metrics: u16,
    pub(crate) health: u16,
    client: ClientConfig,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts a watcher and waits until it is ready.
    pub(crate) async fn start(folder: &Folder) -> Self {
        let running = Self::begin(folder);
        running.ready().await;
        running
    }

    pub(crate) fn begin(folder: &Folder) -> Self {
        Self::begin_with(folder.command(), folder)
    }

    /// Starts a watcher with a command with other settings.
    pub(crate) fn begin_with(mut command: Command, folder: &Folder) -> Self {
        let [webhook, metrics, health] = [(); 3].map(|()| free_port());
        let child = command
            .env("WEBHOOK_PORT", webhook.to_string())
            .env("METRICS_PORT", metrics.to_string())
            .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            child,
            webhook,
            metrics,
            health,
            client: client_config(folder.authority.roots(), None, &[]).unwrap(),
        }
    }

    /// Waits until the watcher is ready.
    pub(crate) async fn ready(&self) {
        let ready = async || {
            let answer = get(self.health, "/readyz").await?;
            let ready = answer.status == 200;
            ready.then_some(()).ok_or(io::Error::other(answer.body))
        };
        until("ready", PATIENCE, ready).await.unwrap();
    }

    pub(crate) fn kill(&self, signal: &str) {
        let line = format!("kill -{signal} {}", self.child.id());
        let killed = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(killed.success());
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = || self.child.try_wait().unwrap();
        let ended = until("the end of the process", PATIENCE, || {
            std::future::ready(status())
        });
        ended.await.unwrap()
    }

    /// Opens a TLS connection to the admission endpoint.
    pub(crate) fn connect(&self) -> impl Future<Output = RawTlsClient> + Send + use<> {
        let (address, config) = (local(self.webhook), self.client.clone());
        async move {
            let connected = RawTlsClient::connect_tls(address, "localhost", config).await;
            connected.unwrap()
        }
    }

    /// Sends bytes that are not TLS to the admission endpoint, until it closes the connection.
    pub(crate) async fn send_garbage(&self) {
        let mut client = RawClient::connect(local(self.webhook)).await.unwrap();
        client.send([0; 64]).await.unwrap();
        // The connection is reset if the server has not read all bytes.
        let _ = client.rest().await;
    }

    /// Connects to the admission endpoint as a client that trusts another CA.
    pub(crate) async fn reject_certificate(&self) {
        let other = Authority::new("other").unwrap();
        let config = client_config(other.roots(), None, &[]).unwrap();
        let connected = RawTlsClient::connect_tls(local(self.webhook), "localhost", config);
        assert!(connected.await.is_err());
    }

    /// Returns the response to a review for the manager `kyma`.
    pub(crate) async fn ask(&self, review: &Value) -> Value {
        let answer = self.connect().await.ask(request(review)).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Sends the review until the response states that the event is in the spool. While the disk takes longer than 2 ms,
    /// the response states that the event is in memory only.
    pub(crate) async fn ask_until_spooled(&self, review: &Value) {
        let spooled = async || {
            let answer = self.ask(review).await;
            assert_eq!(answer["response"]["allowed"], true);
            answer["response"]["status"]["message"] == "event queued for KCP"
        };
        until("an answer of a spooled event", PATIENCE, spooled)
            .await
            .unwrap();
    }

    /// Returns the samples on /metrics.
    pub(crate) async fn samples(&self) -> Samples {
        let answer = get(self.metrics, "/metrics").await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        Samples::parse(&answer.body)
    }

    /// Returns the ID of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the three ports as targets of a flood.
    pub(crate) fn targets(&self) -> [Target; 3] {
        let admission = Target {
            address: local(self.webhook),
            tls: Some(("localhost".to_owned(), self.client.clone())),
            request: "POST /validate/kyma".to_owned(),
            header_bytes: 15_000,
        };
        let [health, metrics] = [(self.health, "/healthz"), (self.metrics, "/metrics")]
            .map(|(port, path)| Target::plain(local(port), path));
        [admission, health, metrics]
    }
}

/// Returns a request with a review for the manager `kyma`.
pub(crate) fn request(review: &Value) -> String {
    let body = review.to_string();
    let length = body.len();
    format!("POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
}
