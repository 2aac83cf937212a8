//! Causes for which the condition `Reachable` is false.

use api::kcp::RUNTIME_ID;

/// Reason why a runtime is not reachable. The texts contain no secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// The `Runtime` does not exist, or is being deleted.
    #[error("Runtime {0} not found")]
    RuntimeNotFound(String),
    /// The `Runtime` has no runtime ID.
    #[error("label {RUNTIME_ID} is missing")]
    RuntimeIDMissing,
    /// Other Runtimes have the same runtime ID; the text names one of them.
    #[error("label {RUNTIME_ID} is shared with Runtime {0}")]
    RuntimeIDConflict(String),
    /// The Secret with the kubeconfig does not exist or is empty (KIM renews it in two steps).
    #[error("{0}")]
    KubeconfigNotFound(String),
    /// The kubeconfig is malformed or uses a feature that is not allowed.
    #[error("kubeconfig rejected: {0}")]
    InvalidKubeconfig(String),
    /// The connection cannot be established or was aborted.
    #[error("connection failed: {0}")]
    ConnectionFailed(String),
    /// No connection or no response within the time limit, which the text contains.
    #[error("{0}")]
    Timeout(String),
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    TLSHandshakeFailed(String),
    /// The API server rejects the credentials.
    #[error("API server returned 401: credentials of the kubeconfig rejected")]
    Unauthorized,
    /// The API server returns an error, or a response that is not a response of the Kubernetes API.
    #[error("{0}")]
    APIServerError(String),
}
