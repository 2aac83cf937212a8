#![doc = include_str!("README.md")]
//!
//! # Internals
//! One task accepts connections, and one task serves each connection. The current state of a connection is one small value
//! (`state`). The socket adapter (`io`) and the request service (`service`) write it. The timeouts of the connection
//! (`connection`) and the limiter of connections and header bytes (`limiter`) read it. The memory of all request bodies is
//! counted in one module (`budget`).
//!
//! *Invariant*: each byte that a client may withhold has a deadline, and the number of bytes that a client may send is
//! limited. The sum of the headers and bodies of all clients is limited, too.

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
