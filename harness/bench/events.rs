//! `harness bench events`: latency, cost and capacity of the watcher and the listener, and losses after failures.
//!
//! The system under test (the product's watcher, or a listener) is the only process on one core. API servers, gateway and
//! operator are in this program on the other core, over loopback with TLS 1.3. A wrong response is an error, not a result.

mod delivery;
mod failures;
mod floods;
mod kcp;
mod listener;
mod rotation;
mod watcher;

use clap::ValueEnum;

pub(crate) use self::floods::{FloodArgs, flood};
pub(crate) use self::listener::{OperatorArgs, operate};
use crate::environment::Bench;
use crate::report::Table;

/// A part that can be measured separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Latency of a review while KCP is up, refuses connections and hangs.
    Admission,
    /// Time from the review to the operator.
    Delivery,
    /// Capacity of a listener.
    Listener,
    /// Loss after SIGKILL.
    Kills,
    /// Loss after an hour without KCP.
    Outage,
    /// Latency and memory while hostile clients hold connections and incomplete requests.
    Floods,
    /// Failed handshakes and loss while the CA of both sides is rotated.
    Rotation,
}

pub(crate) async fn measure(bench: &Bench, part: Part) -> anyhow::Result<Table> {
    match part {
        Part::Admission => Box::pin(delivery::admission(bench)).await,
        Part::Delivery => Box::pin(delivery::delivery(bench)).await,
        Part::Listener => Box::pin(listener::measure(bench)).await,
        Part::Kills => Box::pin(failures::kills(bench)).await,
        Part::Outage => Box::pin(failures::outage(bench)).await,
        Part::Floods => Box::pin(floods::measure(bench)).await,
        Part::Rotation => Box::pin(rotation::measure(bench)).await,
    }
}
