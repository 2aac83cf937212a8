//! The watches of tests, with a client that other modules of the webhook also use.

use std::time::Duration;

use api::names::{CONFIG_MAP, PULL_SECRET, SKR_NAMESPACE};
use component_base::client::{RequestMetrics, with_transport};
use component_base::readiness::Readiness;
use kube::runtime::events::Reporter;
use policy::admission::Settings;
use prometheus_client::registry::Registry;
use testkit::apiserver::ApiServer;

use super::{WatchMetrics, Watches};
use crate::snapshot::SnapshotStore;

/// Returns watches with new snapshots.
pub(crate) fn watches_of(server: &ApiServer) -> Watches {
    let requests = RequestMetrics::register(&mut Registry::default());
    let timeout = Duration::from_secs(10);
    Watches {
        client: with_transport(server.service(), "default", timeout, &requests),
        namespace: SKR_NAMESPACE.to_owned(),
        config_map: CONFIG_MAP.to_owned(),
        settings: Settings {
            landscape: None,
            pull_secret: PULL_SECRET.to_owned(),
        },
        reporter: Reporter {
            controller: "rt-bootstrapper".to_owned(),
            instance: Some("pod-1".to_owned()),
        },
        snapshots: SnapshotStore::default(),
        readiness: Readiness::default(),
        metrics: WatchMetrics::default(),
    }
}
