#![doc = include_str!("README.md")]

mod authentication;
mod certificate;
mod component;
mod endpoint;
#[cfg(test)]
mod fixture;
#[cfg(feature = "kube")]
mod kube;
mod liveness;
#[cfg(feature = "metrics")]
mod metrics;
mod queue;
mod rejection;
#[cfg(feature = "tls")]
mod tls;
mod xfcc;

#[cfg(feature = "kube")]
pub use self::kube::{CaSecretError, KymaDomains};
pub use authentication::{
    Authentication, CertificateCheck, ClientIdentity, RuntimeIdFromCommonName, SanPinning,
    SkrDomainLookup, Verifier, VerifyError,
};
pub use certificate::{ClientCertificate, RuntimeId, TrustAnchors, TrustAnchorsError};
pub use component::{
    BoundListener, Builder, Error, Listener, Options, Transport, register_listener_component,
};
pub use liveness::{LastRejection, Liveness, RuntimeLiveness, Totals, WatcherLiveness};
pub use queue::{Event, Notification, Notifications, UnresponsiveReason};
#[cfg(feature = "tls")]
pub use tls::{GatewayTlsError, gateway_tls};
pub use xfcc::{TrustedHops, XFCC_BYTES, XFCC_HEADER};

#[cfg(feature = "tls")]
pub use serve::TlsHandle;
#[cfg(feature = "tls")]
pub use serve::pair::CertificatePair;
pub use watcher_types as wire;
