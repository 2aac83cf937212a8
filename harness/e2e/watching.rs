//! The watching suite: KCP with the gateway, five managers and the example operator, and a runtime with two replicas of the
//! watcher.
//!
//! Scenarios share one [`Watching`] and run in parallel. Each has its own Namespace on the runtime, which identifies its
//! events. A scenario that stops, kills or rotates something is `@serial`, and its clean-up restores the state after
//! [`Watching::start`].

mod certificates;
mod delivery;
mod environment;
pub(crate) mod manager;
mod runtime;
mod view;

pub(crate) use certificates::OTHER_RUNTIME;
pub use environment::Watching;
pub(crate) use runtime::REPLICAS;
pub use view::start;
pub(crate) use view::{Kymas, View};

use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::sidecar;

/// Runtime ID, the common name of the watcher's certificate.
pub(crate) const RUNTIME: &str = "4d7c1c0e-8f0f-4d34-9d0a-1f6b1d6e8a55";
/// Domain of the runtime: annotation `skr-domain` of its Kyma on KCP, and a name in the watcher's certificate.
pub(crate) const DOMAIN: &str = "one.skr.landscape.test";
/// Heartbeat interval of watchers and listeners, instead of a minute.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// Delay of follow-up events, instead of five seconds.
pub(crate) const FOLLOW_UP_DELAY: Duration = Duration::from_secs(2);
/// Manager of the field spec of Kymas.
pub(crate) const LIFECYCLE: &str = "lifecycle-manager";
/// Manager that accepts a runtime by its domain.
const PINNED: &str = "pinned-manager";
/// All managers. The status manager gets events for the field status of Kymas, the module manager for kinds without a spec
/// and for a subresource; requests to the last one pass a sidecar.
const MANAGERS: [&str; 5] = [
    LIFECYCLE,
    "status-manager",
    "module-manager",
    PINNED,
    sidecar::MANAGER,
];
/// The file for `manifests watcher --watchers-file`.
pub(crate) const WATCHERS: &str = include_str!("watching/watchers.yaml");
/// Label by which Watchers select objects.
pub(crate) const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";
pub(crate) const GROUP: &str = "operator.kyma-project.io";
pub(crate) const VERSION: &str = "v1beta2";

/// Returns a Kyma that the Watchers select.
pub(crate) fn kyma() -> Value {
    json!({
        "kind": "Kyma", "metadata": { "labels": { (WATCHED_BY): "kyma" } },
        "spec": { "channel": "regular" },
    })
}
