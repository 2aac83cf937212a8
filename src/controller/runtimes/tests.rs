use std::time::{Duration, Instant};

use policy::convergence::kubeconfig::{Access, Credentials};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::server::{ApiServer, PKI};
use super::*;

mod answers;
mod connections;
mod crowd;
pub(crate) mod server;
mod trust;

const POD: &str = "/api/v1/namespaces/kyma-system/pods/a";

/// A fleet and what it counts.
struct World {
    fleet: Fleet,
    registry: Registry,
}

impl World {
    fn new(bend: impl FnOnce(&mut FleetOptions)) -> Self {
        let mut options = FleetOptions {
            allow_loopback: true,
            per_runtime_rate: Rate {
                interval: Duration::ZERO,
                burst: 1,
            },
            ..FleetOptions::default()
        };
        bend(&mut options);
        let mut registry = Registry::default();
        let metrics = FleetMetrics::register(&mut registry);
        Self {
            fleet: Fleet::new(options, metrics),
            registry,
        }
    }

    fn open(&self, server: &ApiServer) -> Remote {
        let runtime = RuntimeId::new(&server.address.port().to_string());
        self.fleet.open(&runtime, access(server), "1").unwrap()
    }

    /// The value of one sample, by its name and labels; 0 if there is none.
    fn sample(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|it| it.strip_prefix(name));
        line.map_or(0, |it| it.trim().parse().unwrap())
    }
}

fn access(server: &ApiServer) -> Access {
    Access {
        server: format!("https://{}", server.address).parse().unwrap(),
        server_name: "127.0.0.1".try_into().unwrap(),
        authority: vec![PKI.authority.clone()],
        credentials: Credentials::Token("token".to_owned()),
    }
}

/// Waits for a state that comes by itself.
async fn until(what: &str, state: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !state() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
