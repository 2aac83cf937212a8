//! A runtime's kubeconfig, read as what it is: input from a stranger.
//!
//! Invariants: of a document only an https address, trust anchors and one inline credential come through, and nothing
//! in it makes us run a program, open a file, use a proxy or skip a check. An error is a closed enum without a word of
//! the document, so it can stand in a status or a log whatever somebody pasted where. Work and memory are bounded by
//! the document's size. Tokens and keys are zeroized when they are dropped; what the libraries that read YAML, JSON and PEM
//! copy while they read is not.
//!
//! Only what the current context names is judged; what else the document holds is never used, but it has to have the form of a
//! kubeconfig. Deliberately absent:
//! expiry (it needs a clock; the handshake checks it), whether key and certificate match (it needs cryptography; the
//! client stack checks it), and which addresses may be contacted (names must be resolved for that).
//!
//! A kubeconfig out of a Secret is hostile input; the format is client-go's `clientcmd/api/v1`.

use std::fmt;

use kube::config::{AuthInfo, Cluster};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use self::document::{current, read};
pub use self::server::{Server, ServerFault};

mod document;
mod material;
mod server;

#[cfg(test)]
mod tests;

/// The largest document, in bytes. A Secret cannot be larger; Gardener's are below 10 kB.
pub const MAX_BYTES: usize = 1 << 20;

/// How to reach one API server and as whom. `Debug` shows the server alone.
pub struct Access {
    /// Where the API server is.
    pub server: Server,
    /// The name that its certificate must carry: `tls-server-name`, or the host.
    pub server_name: ServerName<'static>,
    /// Who may vouch for it; never empty, and nobody else may (no system roots).
    pub authority: Vec<CertificateDer<'static>>,
    /// Who we are there.
    pub credentials: Credentials,
}

/// The one credential. `Debug` shows its kind alone; its memory is zeroized when it is dropped.
pub enum Credentials {
    /// A bearer token: visible ASCII.
    Token(Zeroizing<String>),
    /// A client certificate.
    Certificate {
        /// The leaf first; never empty.
        chain: Vec<CertificateDer<'static>>,
        /// The leaf's key, as the document says; nobody compared them yet.
        key: Zeroizing<PrivateKeyDer<'static>>,
    },
}

/// Why a document gives no access. No text of the document is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    /// It is larger than [`MAX_BYTES`].
    #[error("larger than 1 MiB")]
    TooLarge,
    /// It is no YAML of the right form, or it uses anchors, or more nesting and nodes than any kubeconfig has.
    #[error("line {line}: not valid YAML of a kubeconfig")]
    Unreadable {
        /// Where reading ended, from 1; 0 if unknown.
        line: u64,
    },
    /// `kind` or `apiVersion` says that it is something else.
    #[error("kind and apiVersion: expected Config of v1")]
    Foreign,
    /// Two entries of a section have one name.
    #[error("{0}: duplicate name")]
    Duplicate(Entry),
    /// `current-context`, or what it leads to, is not in the document.
    #[error("{0}: not found")]
    Missing(Entry),
    /// It asks for something that is never done for a stranger.
    #[error("{0} is not allowed")]
    Refused(Feature),
    /// The address of the API server cannot be used.
    #[error("server")]
    Server(#[source] ServerFault),
    /// `tls-server-name` is neither a DNS name nor an IP address.
    #[error("tls-server-name: not a valid DNS name or IP address")]
    ServerName,
    /// There is no `certificate-authority-data`; the system's roots are never used instead.
    #[error("certificate-authority-data is missing")]
    NoAuthority,
    /// `certificate-authority-data` is not base64 of PEM certificates.
    #[error("certificate-authority-data: not a valid PEM certificate")]
    Authority,
    /// Every certificate given as authority is a leaf. kubectl accepts the server's own leaf there; TLS here needs
    /// the certificate that issued it.
    #[error(
        "certificate-authority-data: expected a CA certificate, got the certificate of a server"
    )]
    LeafAuthority,
    /// Neither a token nor a client certificate.
    #[error("user has neither token nor client certificate")]
    NoCredentials,
    /// A token and a client certificate: which one would count is the server's secret.
    #[error("user has both a token and a client certificate")]
    TwoCredentials,
    /// The token cannot be sent in a header.
    #[error("token: not a valid bearer token")]
    Token,
    /// `client-certificate-data` is missing beside a key, or not base64 of PEM certificates.
    #[error("client-certificate-data: not a valid PEM certificate")]
    ClientCertificate,
    /// `client-key-data` is missing beside a certificate, or not base64 of an unencrypted PEM key.
    #[error("client-key-data: not a valid PEM key")]
    ClientKey,
}

/// A part of a kubeconfig that others refer to by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `current-context` and `contexts`.
    Context,
    /// `clusters`.
    Cluster,
    /// `users`.
    User,
}

/// What a kubeconfig may ask of kubectl, and not of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `exec`: running a program.
    Exec,
    /// `auth-provider`: code of old clients.
    AuthProvider,
    /// `certificate-authority`, `client-certificate`, `client-key` or `tokenFile`: reading our disk.
    File,
    /// `proxy-url`: sending our credentials' traffic elsewhere.
    Proxy,
    /// `insecure-skip-tls-verify`.
    SkippedVerification,
    /// `username`, `password`: gone from Kubernetes 1.19.
    Password,
    /// `as`, `as-uid`, `as-groups`, `as-user-extra`; ignoring it would use more permissions than intended.
    Impersonation,
}

/// Reads a kubeconfig.
///
/// # Errors
/// The document cannot be read, asks for something refused, or lacks what a call needs.
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
    let asked = [
        (
            is_set(cluster.certificate_authority.as_ref()),
            Feature::File,
        ),
        (is_set(cluster.proxy_url.as_ref()), Feature::Proxy),
        (
            cluster.insecure_skip_tls_verify == Some(true),
            Feature::SkippedVerification,
        ),
    ];
    refuse(&asked)
}

fn refuse_user(user: &AuthInfo) -> Result<(), KubeconfigError> {
    let files = [&user.client_certificate, &user.client_key, &user.token_file];
    let passwords = [user.username.as_deref(), shown(user.password.as_ref())];
    let impersonates = is_set(user.impersonate.as_ref())
        || is_set(user.impersonate_uid.as_ref())
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
    let asked = [
        (user.exec.is_some(), Feature::Exec),
        (user.auth_provider.is_some(), Feature::AuthProvider),
        (files.iter().any(|it| is_set(it.as_ref())), Feature::File),
        (
            passwords.iter().any(|it| is_set(it.as_ref())),
            Feature::Password,
        ),
        (impersonates, Feature::Impersonation),
    ];
    refuse(&asked)
}

fn refuse(asked: &[(bool, Feature)]) -> Result<(), KubeconfigError> {
    match asked.iter().find(|(asks, _)| *asks) {
        Some((_, feature)) => Err(KubeconfigError::Refused(*feature)),
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

/// A secret is shown to the checks of this module only.
fn shown(secret: Option<&SecretString>) -> Option<&str> {
    secret.map(ExposeSecret::expose_secret)
}

/// client-go takes an empty string for absent.
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

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Context => "current-context",
            Self::Cluster => "cluster of the current context",
            Self::User => "user of the current context",
        })
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Exec => "exec",
            Self::AuthProvider => "auth-provider",
            Self::File => "a path of a file",
            Self::Proxy => "proxy-url",
            Self::SkippedVerification => "insecure-skip-tls-verify",
            Self::Password => "username or password",
            Self::Impersonation => "impersonation",
        })
    }
}
