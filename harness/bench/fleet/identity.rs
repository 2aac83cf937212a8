//! Who a runtime is to its clients: name, certificate, credentials, kubeconfig.
//!
//! All runtimes share one port, one authority and one wildcard leaf, `*.fleet.test`; the kubeconfig's
//! `tls-server-name` (SNI) says which of them is meant. What tells them apart is the credentials, which open one
//! runtime only, and the uid of `kube-system`. Invariant: credentials of an earlier epoch stop working when the runtime
//! rotates. Deliberately absent: a leaf a runtime (10,000 keys would be minted for nobody who looks at them).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{CertificateParams, SanType};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ServerConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::pki;

use clusters::control_plane::runtime_id;

use super::{Digest, digest, short};

/// How clients of the fleet show who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "camelCase")]
pub enum Credentials {
    /// A bearer token.
    #[default]
    Token,
    /// A client certificate, minted when the kubeconfig is asked for.
    Certificate,
}

/// The authority and what it has signed for the servers.
#[derive(Debug)]
pub(super) struct Authority {
    own: pki::Authority,
    pub(super) valid: Arc<ServerConfig>,
    pub(super) expired: Arc<ServerConfig>,
}

impl Authority {
    pub(super) fn new() -> anyhow::Result<Self> {
        let authority = pki::Authority::new("authority of the fleet")?;
        let name = |params: &mut CertificateParams| {
            let name = format!("*.{DOMAIN}").try_into();
            params.subject_alt_names = name.map(SanType::DnsName).into_iter().collect();
        };
        let valid = authority.leaf_with("runtimes", name)?;
        let expired = authority.leaf_with("runtimes", |params| {
            name(params);
            pki::expired(params);
        })?;
        Ok(Self {
            valid: server(&authority, &valid)?,
            expired: server(&authority, &expired)?,
            own: authority,
        })
    }

    pub(super) fn pem(&self) -> &str {
        self.own.pem()
    }

    /// A client certificate: the user of a kubeconfig, and the digest by which it is known again.
    pub(super) fn client(&self, runtime_id: &str) -> anyhow::Result<(Value, Digest)> {
        let leaf = self.own.leaf(runtime_id)?;
        let user = json!({
            "client-certificate-data": BASE64.encode(&leaf.pem),
            "client-key-data": BASE64.encode(leaf.key_pem()),
        });
        Ok((user, digest(&leaf.der)))
    }
}

fn server(authority: &pki::Authority, leaf: &pki::Leaf) -> anyhow::Result<Arc<ServerConfig>> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    // An API server is a Go program, and those choose this one themselves.
    provider
        .cipher_suites
        .sort_by_key(|it| it.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
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
    // Tickets need no memory, so that thousands of clients may resume.
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    Ok(Arc::new(config))
}

/// The credentials that a runtime accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    /// Goes up with every rotation.
    pub(super) epoch: u32,
    /// Of the client certificate, if one was minted.
    pub(super) certificate: Option<Digest>,
}

/// The token that opens a runtime.
pub(super) fn token(secret: &Digest, runtime_id: &str, epoch: u32) -> String {
    let mut hash = Sha256::new_with_prefix(secret);
    hash.update(format!("{runtime_id} {epoch}"));
    BASE64.encode(short(hash))
}

/// What the kubeconfig of a runtime says.
pub(super) struct Access<'a> {
    pub(super) runtime_id: &'a str,
    pub(super) port: u16,
    pub(super) authority: &'a str,
    pub(super) user: serde_json::Value,
}

impl Access<'_> {
    pub(super) fn kubeconfig(&self) -> String {
        let Self {
            runtime_id,
            port,
            authority,
            user,
        } = self;
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"),
            "tls-server-name": server_name(runtime_id),
            "certificate-authority-data": BASE64.encode(authority),
        });
        // JSON is YAML.
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": runtime_id,
            "contexts": [{"name": runtime_id, "context": {"cluster": runtime_id, "user": runtime_id}}],
            "clusters": [{"name": runtime_id, "cluster": cluster}],
            "users": [{"name": runtime_id, "user": user}],
        })
        .to_string()
    }
}

/// The number of the runtime that a client means.
pub(super) fn runtime_number(server_name: &str) -> Option<usize> {
    let id = server_name.strip_suffix(DOMAIN)?.strip_suffix('.')?;
    let number = usize::from_str_radix(id.rsplit('-').next()?, 16).ok()?;
    (runtime_id(number) == id).then_some(number)
}

pub(super) fn server_name(runtime_id: &str) -> String {
    format!("{runtime_id}.{DOMAIN}")
}

/// Reserved for tests by RFC 6761.
const DOMAIN: &str = "fleet.test";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_name_leads_to_one_runtime() {
        for number in [0, 1, 9_999, 70_000] {
            let name = server_name(&runtime_id(number));
            assert_eq!(runtime_number(&name), Some(number));
        }
        for foreign in [
            "fleet.test",
            "x.fleet.test",
            "f1ee7000-0000-4000-8000-0.fleet.test",
        ] {
            assert_eq!(runtime_number(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_token_opens_one_runtime_for_one_epoch() {
        let secret = digest(b"secret");
        let (one, two) = (runtime_id(1), runtime_id(2));
        let tokens: std::collections::BTreeSet<String> = [
            token(&secret, &one, 0),
            token(&secret, &one, 1),
            token(&secret, &two, 0),
            token(&digest(b"other"), &one, 0),
        ]
        .into();
        assert_eq!(tokens.len(), 4);
        assert!(tokens.contains(&token(&secret, &one, 0)));
    }
}
