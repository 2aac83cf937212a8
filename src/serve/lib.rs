#![doc = include_str!("README.md")]
//!
//! # Inside
//! One task accepts, one task serves each connection. What a connection is doing right now is one small value (`state`),
//! written by the socket adapter (`io`) and the request service (`service`), read by the connection's clock (`connection`)
//! and by the limiter of connections and header bytes (`limiter`). What all request bodies hold together is counted in one
//! place (`budget`).
//!
//! *Invariant*: every byte a peer may withhold has a deadline, and every byte it may send has a bound; of headers and bodies
//! also in sum over all peers.

mod body;
mod budget;
mod connection;
mod framing;
mod io;
mod limiter;
mod limits;
pub mod metrics;
#[cfg(feature = "tls")]
pub mod pair;
mod server;
mod service;
mod state;
#[cfg(feature = "tls")]
mod tls;

pub use limits::Limits;
pub use metrics::{Counter, Statistics};
pub use server::{BoundServer, Error, Options, Server, Transport};
#[cfg(feature = "tls")]
pub use tls::{PeerCertificates, TlsHandle, config_builder, server_config};
