//! Why a runtime could not be spoken to.

/// Why a runtime's API server could not be spoken to. The texts hold nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// There is no `Runtime` of this name any more.
    #[error("there is no such Runtime")]
    RuntimeMissing,
    /// Two Runtimes have one runtime id, or this one has none.
    #[error("the Runtime's label does not identify it: {0}")]
    RuntimeUnidentified(String),
    /// There is no Secret with a kubeconfig, or the key is empty (the manager renews it in two steps).
    #[error("there is no kubeconfig: {0}")]
    KubeconfigMissing(String),
    /// The kubeconfig cannot be used, or must not be.
    #[error("the kubeconfig is refused: {0}")]
    KubeconfigInvalid(String),
    /// No connection.
    #[error("no connection: {0}")]
    ConnectionFailed(String),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// The certificates do not match.
    #[error("no trust: {0}")]
    TlsFailed(String),
    /// The credentials are refused.
    #[error("the credentials are refused")]
    Unauthorized,
    /// The API server answers with errors, or with nothing sensible.
    #[error("the API server is in trouble: {0}")]
    ServerFailed(String),
}
