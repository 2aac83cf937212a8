#![doc = include_str!("README.md")]
//!
//! # Inside
//! A request meets, in this order: the server (`plain`, or the crate `serve` for TLS), the route (`endpoint`), the header
//! of the gateway (`xfcc` reads it, `forwarded` picks the client's certificate), the check of the certificate
//! (`certificate`, `authorities`), the operator's word on it (`verifier`), the body (`api::event`), the queue. Each may
//! refuse; `answer` says how that is told. `liveness` and `metrics` keep count.
//!
//! *Invariant*: what was answered 200 reaches the operator; whoever cannot be served is told so at once.
//!
//! *Deliberately absent*: which object an event concerns, Kubernetes clients, certificate files, persistence, HTTP/2.

mod answer;
mod authentication;
mod authorities;
mod certificate;
mod component;
mod endpoint;
#[cfg(test)]
mod fixture;
mod forwarded;
mod liveness;
mod metrics;
mod plain;
mod queue;
#[cfg(feature = "kube")]
mod reconcile;
mod tls;
mod verifier;
mod xfcc;

pub use authentication::{Authentication, CertificateCheck};
pub use authorities::{Authorities, AuthoritiesError};
pub use certificate::{ClientCertificate, RuntimeId};
pub use component::{Bound, Error, Listener, Options, Transport, register_listener_component};
pub use forwarded::{TrustedHops, XFCC_BYTES, XFCC_HEADER};
pub use liveness::{Liveness, RuntimeLiveness, WatcherLiveness};
pub use queue::{Event, Events};
pub use tls::{GatewayTlsError, gateway_tls};
pub use verifier::{
    Claim, Refusal, RuntimeIdFromCommonName, SanPinning, SkrDomainLookup, Verifier,
};

pub use api::event as wire;
pub use serve::{Identity, TlsHandle, identity_from_pem};
