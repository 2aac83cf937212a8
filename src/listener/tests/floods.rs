//! Flood of a listener with TLS in both directions. The listener runs in a separate process, so that its memory can be measured.

use std::env;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use runtime_watcher_listener::{
    CertificateCheck, CertificatePair, Listener, RuntimeIdFromCommonName, TlsHandle, Transport,
    TrustAnchors, gateway_tls,
};
use testkit::flood::{Target, assert_withstands};
use testkit::pki::rcgen::SanType;
use testkit::pki::{Authority, Leaf, client_config};
use testkit::tls::RawTlsClient;
use tokio_util::sync::CancellationToken;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const GATEWAY: &str = "spiffe://cluster.local/ns/istio-system/sa/gateway";
const NEIGHBOR: &str = "spiffe://cluster.local/ns/shop/sa/shop";

/// Environment variable with the CA, which signs the certificates of the mesh and of runtimes.
const CA: &str = "TEST_CA";
/// Environment variables with the certificate of the listener.
const CERTIFICATE: &str = "TEST_CERTIFICATE";
const KEY: &str = "TEST_KEY";

/// The listener of the other test, in a separate process. It takes no notification: the heartbeats of the test cause only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process of the listener in the other test"]
async fn listener_process() -> Result<()> {
    let (ca, certificate, key) = (env::var(CA)?, env::var(CERTIFICATE)?, env::var(KEY)?);
    let pair = CertificatePair::from_pem(certificate.as_bytes(), key.as_bytes())?;
    let tls = TlsHandle::new(gateway_tls(&pair, ca.as_bytes())?);
    let anchors = TrustAnchors::from_pem(ca.as_bytes())?;
    let (listener, _notifications) = Listener::builder(([127, 0, 0, 1], 0).into(), "kyma")
        .authentication(CertificateCheck::new(anchors, RuntimeIdFromCommonName))
        .options(|it| {
            it.transport = Transport::MutualTls {
                tls,
                gateway: GATEWAY.to_owned(),
            };
        })
        .build()?;
    let bound = listener.bind().await?;
    println!("\n{}", bound.local_addr());
    Ok(bound.run(CancellationToken::new()).await?)
}

/// A running listener.
struct Running {
    child: Child,
    address: SocketAddr,
    authority: Authority,
    /// Open until the process has ended, because the process writes a line after a minute.
    _output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start() -> Result<Self> {
        let authority = Authority::new("mesh")?;
        let own = authority.leaf("listener")?;
        let mut child = Command::new(env::current_exe()?)
            .args(["--ignored", "--nocapture", "--exact", "listener_process"])
            .env(CA, authority.pem())
            .env(CERTIFICATE, &own.pem)
            .env(KEY, own.key_pem())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let mut output = BufReader::new(output);
        let lines = output.by_ref().lines();
        let mut lines = lines.map_while(std::result::Result::ok);
        let address = lines.find_map(|it| it.parse().ok());
        let address = address.ok_or("the listener has ended")?;
        Ok(Self {
            child,
            address,
            authority,
            _output: output,
        })
    }

    fn workload(&self, spiffe: &str) -> Result<Leaf> {
        let name = SanType::URI(spiffe.try_into()?);
        let leaf = self.authority.leaf_with("workload", |it| {
            it.subject_alt_names = vec![name];
        });
        Ok(leaf?)
    }

    /// Returns a heartbeat of a runtime, in the format in which the gateway forwards it.
    fn heartbeat(&self) -> Result<String> {
        let certificate = self.authority.leaf("r1")?.pem;
        let certificate = utf8_percent_encode(&certificate, NON_ALPHANUMERIC);
        let body =
            r#"{"bootId":"b1","sequence":0,"spoolDepth":0,"oldestAgeSeconds":0,"version":"1"}"#;
        let length = body.len();
        Ok(format!(
            "POST /v2/kyma/event/heartbeat HTTP/1.1\r\nHost: kcp\r\n\
             X-Forwarded-Client-Cert: Cert=\"{certificate}\"\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }
}

/// The clients of the flood are another workload of the mesh, or send no certificate.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_with_tls_is_answered_during_a_flood_of_all_kinds_at_once() -> Result<()> {
    let running = Running::start()?;
    let roots = || running.authority.roots();
    let neighbor = client_config(roots(), Some(&running.workload(NEIGHBOR)?), &[])?;
    let gateway = client_config(roots(), Some(&running.workload(GATEWAY)?), &[])?;
    let target = Target {
        address: running.address,
        tls: Some(("localhost".to_owned(), neighbor)),
        request: "POST /v2/kyma/event".to_owned(),
        header_bytes: 70_000,
    };
    let connect = || RawTlsClient::connect_tls(running.address, "localhost", gateway.clone());
    let request = running.heartbeat()?;
    let (mut kept, mut sent) = (connect().await?, 0);
    let beat = async || {
        if sent % 4 == 0 {
            kept = connect().await.unwrap();
        }
        sent += 1;
        let answer = kept.ask(&request).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    assert_withstands(running.child.id(), [target], beat).await?;
    Ok(())
}
