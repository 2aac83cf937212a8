//! Runs the role as a process of its own, with its own certificates, spool and ports.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The role, with nothing set that was set for us.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runtime-bootstrapper"));
    command.arg("watcher").env_clear().stdin(Stdio::null());
    command
}

/// What a watcher is given.
pub(crate) struct Folder {
    root: TempDir,
    authority: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let folder = Self {
            root: tempfile::tempdir().unwrap(),
            authority: authority.der().clone(),
            issuer: Issuer::new(params, key),
        };
        std::fs::create_dir(folder.path("spool")).unwrap();
        std::fs::write(folder.path("ca.crt"), authority.pem()).unwrap();
        folder.certify();
        folder
    }

    /// A new certificate with a new key for the watcher.
    pub(crate) fn certify(&self) {
        let (certificate, key) = self.signed();
        std::fs::write(self.path("tls.key"), key.serialize_pem()).unwrap();
        std::fs::write(self.path("tls.crt"), certificate.pem()).unwrap();
    }

    /// Another one, for KCP.
    pub(crate) fn certificate(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let (certificate, key) = self.signed();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }

    fn signed(&self) -> (Certificate, KeyPair) {
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    pub(crate) fn authority(&self) -> &CertificateDer<'static> {
        &self.authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = command();
        command
            .env("CA_CERT", self.path("ca.crt"))
            .env("TLS_CERT", self.path("tls.crt"))
            .env("TLS_KEY", self.path("tls.key"))
            // The discard port: nobody listens.
            .env("KCP_ADDR", "127.0.0.1:9")
            .env("KCP_CONTRACT", "v2")
            .env("WATCHER_SPOOL_DIR", self.path("spool"))
            .arg("--shutdown-delay-duration=2s");
        command
    }
}

/// A watcher that runs.
pub(crate) struct Running {
    child: Child,
    pub(crate) webhook: u16,
    pub(crate) metrics: u16,
    pub(crate) health: u16,
    authority: CertificateDer<'static>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Begins, and is ready.
    pub(crate) fn start(folder: &Folder) -> Self {
        let running = Self::begin(folder);
        running.until("ready", |it| plain(it.health, "/readyz").0 == 200);
        running
    }

    pub(crate) fn begin(folder: &Folder) -> Self {
        Self::begin_with(folder.command(), folder)
    }

    /// Begins by a command that differs in something.
    pub(crate) fn begin_with(mut command: Command, folder: &Folder) -> Self {
        let [webhook, metrics, health] = free_ports();
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
            authority: folder.authority.clone(),
        }
    }

    /// Asks until it holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        answered(what, || holds(self).then_some(()));
    }

    pub(crate) fn kill(&self, signal: &str) {
        let line = format!("kill -{signal} {}", self.child.id());
        let killed = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(killed.success());
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        answered("its end", || self.child.try_wait().unwrap())
    }

    /// A TLS connection to the admission endpoint.
    pub(crate) fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", self.webhook)).unwrap();
        StreamOwned::new(session, stream)
    }

    /// The answer to a review for the manager `kyma`.
    /// Asks until the answer says that the event is in the spool: where the disk takes longer than 2 ms, it is answered as
    /// kept in memory only.
    pub(crate) fn ask_until_spooled(&self, review: &Value) {
        self.until("answered as spooled", |it| {
            let answer = it.ask(review);
            assert_eq!(answer["response"]["allowed"], true);
            answer["response"]["status"]["message"] == "event queued for KCP"
        });
    }

    pub(crate) fn ask(&self, review: &Value) -> Value {
        let body = review.to_string();
        let request = format!(
            "POST /validate/kyma HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, answer) = read_answer(&mut self.connect(), &request);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The most memory that the process has had resident since its start, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let peak = peak.unwrap().trim().trim_end_matches(" kB");
        peak.parse().unwrap()
    }
}

/// Status and body of a GET without TLS; 0 if nobody answers.
pub(crate) fn plain(port: u16, path: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return (0, String::new());
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    read_answer(&mut stream, &request)
}

fn read_answer(stream: &mut (impl Read + Write), request: &str) -> (u16, String) {
    // Whoever ends in the middle gives no answer.
    let mut answer = Vec::new();
    let sent = stream.write_all(request.as_bytes());
    let _ = sent.and_then(|()| stream.read_to_end(&mut answer));
    let answer = String::from_utf8(answer).unwrap();
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return (0, String::new());
    };
    let status = head.split(' ').nth(1).unwrap();
    (status.parse().unwrap(), body.to_owned())
}

/// Asks until there is an answer.
fn answered<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "never {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three ports that nobody has. Somebody may take one before we do; that would be a failure with a clear text.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
