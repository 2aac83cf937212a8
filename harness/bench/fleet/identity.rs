//! The identity of a simulated runtime (address, server name, certificate and credentials), and its conditions: its latency and
//! its faults.
//!
//! Random values depend only on the runtime and the number of its request, so that a run can be repeated.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clusters::control_plane::runtime_id;
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ServerConfig};
use rustls_pki_types::CertificateDer;
use serde_json::json;
use testkit::apiserver::Behavior;
use testkit::json::kubeconfig;
use testkit::pki;
use testkit::pki::rcgen::{CertificateParams, SanType};

pub(super) struct Identity {
    pub(super) id: String,
    address: Ipv4Addr,
    server_name: String,
    authority: Arc<pki::Authority>,
    valid: Arc<ServerConfig>,
}

#[derive(Default)]
pub(super) struct Accepted {
    token: Option<String>,
    certificate: Option<CertificateDer<'static>>,
}

impl Identity {
    pub(super) fn new(number: u32, authority: Arc<pki::Authority>) -> anyhow::Result<Self> {
        // The name has the format of Gardener's API servers; the domain is reserved for examples.
        let server_name = format!("api.c-{number:07x}.kyma.example");
        Ok(Self {
            id: runtime_id(usize::try_from(number)?),
            address: Ipv4Addr::from_bits(FIRST.to_bits() + number),
            valid: server(&authority, &server_name, |_| ())?,
            server_name,
            authority,
        })
    }

    /// Returns the TLS configuration of the server, with a certificate that may have expired.
    pub(super) fn server(&self, expired: bool) -> anyhow::Result<Arc<ServerConfig>> {
        if expired {
            return server(&self.authority, &self.server_name, pki::expired);
        }
        Ok(Arc::clone(&self.valid))
    }

    /// Returns a kubeconfig whose credentials are accepted from now on: a client certificate or a token.
    pub(super) fn kubeconfig(
        &self,
        port: u16,
        certificate: bool,
        accepted: &mut Accepted,
    ) -> anyhow::Result<String> {
        let user = if certificate {
            let leaf = self.authority.leaf(&self.id)?;
            accepted.certificate = Some(leaf.der.clone());
            json!({
                "client-certificate-data": BASE64.encode(&leaf.pem),
                "client-key-data": BASE64.encode(leaf.key_pem()),
            })
        } else {
            let new = || format!("{}-{:032x}", self.id, fastrand::u128(..));
            json!({"token": accepted.token.get_or_insert_with(new)})
        };
        let cluster = json!({
            "server": format!("https://{}:{port}", self.address),
            "tls-server-name": self.server_name,
            "certificate-authority-data": BASE64.encode(self.authority.pem()),
        });
        Ok(kubeconfig(&self.id, &cluster, &user))
    }
}

impl Accepted {
    pub(super) fn admits(
        &self,
        token: Option<&str>,
        certificate: Option<&CertificateDer<'_>>,
    ) -> bool {
        let is_certificate = certificate.is_some() && certificate == self.certificate.as_ref();
        is_certificate || (token.is_some() && token == self.token.as_deref())
    }
}

pub(super) fn number_of(address: IpAddr) -> Option<usize> {
    let IpAddr::V4(address) = address else {
        return None;
    };
    usize::try_from(address.to_bits().checked_sub(FIRST.to_bits())?).ok()
}

fn server(
    authority: &pki::Authority,
    name: &str,
    change: impl FnOnce(&mut CertificateParams),
) -> anyhow::Result<Arc<ServerConfig>> {
    let san = SanType::DnsName(name.try_into()?);
    let leaf = authority.leaf_with("kube-apiserver", |params| {
        params.subject_alt_names = vec![san];
        change(params);
    })?;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // The first choice of API servers, which are Go programs.
    let is_first = |suite| suite == CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider
        .cipher_suites
        .sort_by_key(|it| !is_first(it.suite()));
    let provider = Arc::new(provider);
    let roots = Arc::new(authority.roots());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![leaf.der.clone()], leaf.key_der())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    // As in Go, clients may resume sessions without state of the server.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    Ok(Arc::new(config))
}

#[derive(Clone, Default)]
pub(crate) struct Conditions {
    /// Whether the server accepts connections without handshakes and responses.
    pub(crate) silent: bool,
    /// One round trip. Each response takes one; a new connection takes two before that (TCP and TLS 1.3).
    pub(crate) latency: Duration,
    pub(crate) jitter: Duration,
    /// Faults of requests and their shares, per mille.
    pub(crate) faults: Vec<(Fault, u16)>,
    /// Delay between two pieces of 64 bytes of a body; zero sends bodies at once.
    pub(crate) drip: Duration,
    pub(crate) expired: bool,
    /// UID of `kube-system` in responses, to simulate another cluster at the same address.
    pub(crate) identity: Option<String>,
}

/// A fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "most faults are for tests"))]
pub(crate) enum Fault {
    /// Status 429 with this number of seconds in `Retry-After`.
    Throttled(u64),
    /// Status 500.
    Failing,
    /// Status 409 for writes of objects, as after a write by another client; other requests have no fault.
    Conflicting,
    /// No response.
    Stalled,
    /// The connection is reset before the request is executed.
    ResetBefore,
    /// The connection is reset after the request was executed.
    ResetAfter,
}

impl Conditions {
    #[cfg(test)]
    pub(crate) fn faulty(faults: &[(Fault, u16)]) -> Self {
        let faults = faults.to_vec();
        Self {
            faults,
            ..Self::default()
        }
    }

    /// Returns the conditions that the API server itself implements.
    pub(super) fn behavior(&self) -> Behavior {
        Behavior {
            identity: self.identity.clone(),
            ca_bundle: Some("Q0E="),
            ..Behavior::default()
        }
    }

    /// Returns the fault of a request, and the duration of its response.
    pub(super) fn draw(&self, runtime: &str, request: u64) -> (Option<Fault>, Duration) {
        let runtime = runtime.bytes().map(u64::from);
        let runtime = runtime.fold(0_u64, |seed, byte| seed.wrapping_mul(31) + byte);
        let mut random = fastrand::Rng::with_seed(runtime ^ request << 40);
        let mut drawn = random.u16(0..1000);
        let fault = self.faults.iter().find(|(_, share)| {
            let is_drawn = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            is_drawn
        });
        let fault = fault.map(|(fault, _)| *fault);
        let stalled = self.silent.then_some(Fault::Stalled);
        let takes = self.latency + self.jitter.mul_f64(random.f64());
        (stalled.or(fault), takes)
    }
}

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_their_shares_and_can_be_repeated() {
        let mut conditions = Conditions::faulty(&[(Fault::Failing, 100), (Fault::Stalled, 25)]);
        conditions.jitter = Duration::from_millis(40);
        let faults: Vec<_> = (0..10_000).map(|it| conditions.draw("a", it)).collect();
        let count = |wanted| faults.iter().filter(|(fault, _)| *fault == wanted).count();
        assert!((900..1100).contains(&count(Some(Fault::Failing))));
        assert!((150..350).contains(&count(Some(Fault::Stalled))));
        assert!((8_650..8_850).contains(&count(None)));
        let longest = faults.iter().map(|(_, takes)| *takes).max().unwrap();
        assert!((35..=40).contains(&longest.as_millis()), "{longest:?}");
        assert_eq!(conditions.draw("a", 77), faults[77]);
    }
}
