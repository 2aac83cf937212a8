#![doc = include_str!("README.md")]
//!
//! # Inside
//! One task accepts, one task serves each connection. What a connection is doing right now is one
//! small value (`pulse`), written by the socket adapter (`wire`) and the request service
//! (`exchange`), read by the connection's clock (`connection`) and by the cap (`crowd`).
//!
//! What all request bodies hold together is counted in one place (`budget`).
//!
//! *Invariant*: every byte a peer may withhold has a deadline, and every byte it may send has a bound; of bodies, also in
//! sum over all peers.
//!
//! *Deliberately absent*: HTTP/2 and upgrades, metrics formats, certificate issuing and file watching,
//! a limit on a handler's own time.

mod body;
mod budget;
mod connection;
mod crowd;
mod exchange;
mod framing;
mod limits;
pub mod metrics;
mod pulse;
mod server;
mod statistics;
mod tls;
mod wire;

pub use exchange::PeerCertificates;
pub use limits::Limits;
pub use server::{Bound, Error, Options, Server};
pub use statistics::{Snapshot, Statistics};
pub use tls::{Identity, TlsError, TlsHandle, config_builder, identity_from_pem, server_config};
