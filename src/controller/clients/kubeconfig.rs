//! The kubeconfig of a runtime, which is untrusted input.
//!
//! Invariants: only an https address, trust anchors and one inline credential of a document are used. No document
//! makes the controller run a program, open a file, use a proxy or skip a check. An error is a closed enum without
//! text of the document, so that it can appear in a status or a log. Work and memory are bounded by the size of the
//! document. Tokens and keys are zeroized when they are dropped; copies of the libraries that parse YAML, JSON and
//! PEM are not.
//!
//! Only the cluster and the user of the current context are checked; the rest is not used, but has to be valid. Not
//! in here: expiry (the handshake checks it), whether key and certificate match (the TLS library checks it), and
//! which addresses are allowed (names must be resolved for that). The format is client-go's `clientcmd/api/v1`.

use std::fmt;

use kube::config::{AuthInfo, Cluster};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use self::document::{current, read};
pub use self::server::{Server, ServerUrlError};

mod document;
mod material;
mod server;

#[cfg(test)]
mod tests;

/// Maximum size of a document, in bytes. A Secret cannot be larger; kubeconfigs of Gardener are below 10 kB.
pub const MAX_BYTES: usize = 1 << 20;

/// Address and credentials of one API server. `Debug` shows the address only.
pub struct Access {
    /// The address of the API server.
    pub server: Server,
    /// The name in the server's certificate: `tls-server-name`, or the host.
    pub server_name: ServerName<'static>,
    /// The CA certificates, never empty. The system roots are not used.
    pub authority: Vec<CertificateDer<'static>>,
    /// The credentials of the client.
    pub credentials: Credentials,
}

/// Credentials of the client. `Debug` shows the kind only; the memory is zeroized when the value is dropped.
pub enum Credentials {
    /// A bearer token: visible ASCII.
    Token(Zeroizing<String>),
    /// A client certificate.
    Certificate {
        /// The leaf first; never empty.
        chain: Vec<CertificateDer<'static>>,
        /// The key of the leaf, as in the document; whether they match is not checked yet.
        key: Zeroizing<PrivateKeyDer<'static>>,
    },
}

/// Reason why a document is invalid. The texts contain no text of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// The document exceeds [`MAX_BYTES`].
    #[error("larger than 1 MiB")]
    TooLarge,
    /// The document is not YAML, uses anchors, or exceeds the limits of nesting and nodes; with the line of the error, from 1.
    #[error("line {0}: not valid YAML of a kubeconfig")]
    Unreadable(u64),
    /// The document is YAML, and a field has another type than in a kubeconfig.
    #[error("not a kubeconfig: a field has an unexpected type")]
    Malformed,
    /// `kind` or `apiVersion` has another value.
    #[error("kind and apiVersion: expected Config of v1")]
    Foreign,
    /// Two entries of a section have the same name.
    #[error("{0}: duplicate name")]
    Duplicate(&'static str),
    /// `current-context`, or the entry that it refers to, does not exist.
    #[error("{0}: not found")]
    Missing(&'static str),
    /// The document uses a feature that is not allowed in untrusted input.
    #[error("{0} is not allowed")]
    Refused(&'static str),
    /// The address of the API server is invalid.
    #[error("server")]
    Server(#[source] ServerUrlError),
    /// `tls-server-name` is neither a DNS name nor an IP address.
    #[error("tls-server-name: not a valid DNS name or IP address")]
    ServerName,
    /// `certificate-authority-data` is missing; the system roots are not used instead.
    #[error("certificate-authority-data is missing")]
    NoAuthority,
    /// `certificate-authority-data` is not base64 of PEM certificates.
    #[error("certificate-authority-data: not a valid PEM certificate")]
    Authority,
    /// Every certificate in `certificate-authority-data` is a leaf. kubectl accepts the server's own leaf there; rustls
    /// requires the certificate that issued it.
    #[error(
        "certificate-authority-data: expected a CA certificate, got the certificate of a server"
    )]
    LeafAuthority,
    /// There is neither a token nor a client certificate.
    #[error("user has neither token nor client certificate")]
    NoCredentials,
    /// There are both a token and a client certificate; which one the API server would use is not defined.
    #[error("user has both a token and a client certificate")]
    TwoCredentials,
    /// The token is not a valid header value.
    #[error("token: not a valid bearer token")]
    Token,
    /// `client-certificate-data` is missing although there is a key, or is not base64 of PEM certificates.
    #[error("client-certificate-data: not a valid PEM certificate")]
    ClientCertificate,
    /// `client-key-data` is missing although there is a certificate, or is not base64 of an unencrypted PEM key.
    #[error("client-key-data: not a valid PEM key")]
    ClientKey,
}

/// Parses a kubeconfig.
///
/// # Errors
/// The document is invalid, uses a feature that is not allowed, or is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Access, KubeconfigError> {
    if bytes.len() > MAX_BYTES {
        return Err(KubeconfigError::TooLarge);
    }
    let (cluster, user) = current(read(bytes)?)?;
    refuse_cluster(&cluster)?;
    refuse_user(&user)?;
    let server = cluster
        .server
        .as_deref()
        .unwrap_or_default()
        .parse::<Server>()
        .map_err(KubeconfigError::Server)?;
    let server_name = server_name(&server, cluster.tls_server_name.as_deref())?;
    Ok(Access {
        server,
        server_name,
        authority: material::authority(cluster.certificate_authority_data.as_deref())?,
        credentials: credentials(&user)?,
    })
}

fn refuse_cluster(cluster: &Cluster) -> Result<(), KubeconfigError> {
    refuse(&[
        (is_set(cluster.certificate_authority.as_ref()), FILE),
        // `proxy-url` sends requests with credentials to another host.
        (is_set(cluster.proxy_url.as_ref()), "proxy-url"),
        (
            cluster.insecure_skip_tls_verify == Some(true),
            "insecure-skip-tls-verify",
        ),
    ])
}

fn refuse_user(user: &AuthInfo) -> Result<(), KubeconfigError> {
    let files = [&user.client_certificate, &user.client_key, &user.token_file];
    // Kubernetes 1.19 removed user names and passwords.
    let passwords = [user.username.as_deref(), shown(user.password.as_ref())];
    let is_any_set = |fields: &[Option<&str>]| fields.iter().any(|it| is_set(it.as_ref()));
    // If impersonation were ignored, requests would have more permissions than intended.
    let impersonates = is_set(user.impersonate.as_ref())
        || is_set(user.impersonate_uid.as_ref())
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    refuse(&[
        // `exec` runs a program.
        (user.exec.is_some(), "exec"),
        // client-go no longer supports `auth-provider`.
        (user.auth_provider.is_some(), "auth-provider"),
        (is_any_set(&files.map(|it| it.as_deref())), FILE),
        (is_any_set(&passwords), "username or password"),
        (impersonates, "impersonation"),
    ])
}

/// Name of the rejected feature: a field with the path of a local file, which client-go would read.
const FILE: &str = "a file path";

/// Returns an error for the first feature that the document uses.
fn refuse(features: &[(bool, &'static str)]) -> Result<(), KubeconfigError> {
    match features.iter().find(|(is_used, _)| *is_used) {
        Some((_, feature)) => Err(KubeconfigError::Refused(feature)),
        None => Ok(()),
    }
}

fn server_name(
    server: &Server,
    given: Option<&str>,
) -> Result<ServerName<'static>, KubeconfigError> {
    let name = given.filter(|it| !it.is_empty()).unwrap_or(server.host());
    ServerName::try_from(name.to_owned()).map_err(|_| KubeconfigError::ServerName)
}

fn credentials(user: &AuthInfo) -> Result<Credentials, KubeconfigError> {
    let token = shown(user.token.as_ref()).filter(|it| !it.is_empty());
    let chain = user.client_certificate_data.as_deref();
    let key = shown(user.client_key_data.as_ref());
    let has_certificate = is_set(chain.as_ref()) || is_set(key.as_ref());
    match token {
        Some(_) if has_certificate => Err(KubeconfigError::TwoCredentials),
        Some(token) => material::token(token).map(Credentials::Token),
        None if has_certificate => Ok(Credentials::Certificate {
            chain: material::client_chain(chain)?,
            key: material::client_key(key)?,
        }),
        None => Err(KubeconfigError::NoCredentials),
    }
}

/// Returns the text of a secret, for the checks of this module.
fn shown(secret: Option<&SecretString>) -> Option<&str> {
    secret.map(ExposeSecret::expose_secret)
}

/// Returns whether a field is set. client-go treats an empty string as absent.
fn is_set(field: Option<&impl AsRef<str>>) -> bool {
    field.is_some_and(|it| !it.as_ref().is_empty())
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("server", &self.server)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Token(_) => "Token(..)",
            Self::Certificate { .. } => "Certificate(..)",
        })
    }
}
