use std::sync::LazyLock;
use std::time::Duration;

use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use testkit::metrics::Samples;
use testkit::pki::Authority;
use testkit::tls::{TlsServer, answer};

use super::kubeconfig::Credentials;
use super::*;

mod addresses;
mod answers;
mod bodies;
mod connections;
mod decoding;
mod fairness;
mod limits;
mod names;
mod trust;

const POD: &str = "/api/v1/namespaces/kyma-system/pods/a";
const BOTH: &[&str] = &["h2", "http/1.1"];
const H1: &[&str] = &["http/1.1"];
const H2: &[&str] = &["h2"];

/// CA of servers and clients.
static PKI: LazyLock<Authority> = LazyLock::new(|| Authority::new("kubernetes").unwrap());

/// Returns the configuration of a server that supports these protocols.
fn speaking(alpn: &[&str]) -> ServerConfig {
    let leaf = PKI.leaf("kube-apiserver").unwrap();
    leaf.server_config(alpn, None).unwrap()
}

/// Starts a server that responds to every request with an empty object.
async fn answering(alpn: &[&str]) -> TlsServer {
    let server = TlsServer::answering(speaking(alpn), |_| async { answer(200, "{}") });
    server.await.unwrap()
}

/// Clients of runtimes, and the registry of their metrics.
struct Env {
    clients: RuntimeClients,
    registry: Registry,
}

impl Env {
    fn new(change: impl FnOnce(&mut ClientOptions)) -> Self {
        let mut options = ClientOptions {
            allow_loopback: true,
            ..ClientOptions::default()
        };
        change(&mut options);
        let resolver = Resolver::new(options.connect_timeout);
        Self::with_resolver(options, resolver)
    }

    fn with_resolver(options: ClientOptions, resolver: Resolver) -> Self {
        let mut registry = Registry::default();
        let metrics = ClientMetrics::register(&mut registry);
        Self {
            clients: RuntimeClients::with_resolver(options, metrics, resolver),
            registry,
        }
    }

    fn open(&self, server: &TlsServer) -> Remote {
        self.clients.open(access(server)).unwrap()
    }

    /// Returns the sum of the samples of a series.
    fn count(&self, series: &str) -> u64 {
        Samples::of(&self.registry).count(series)
    }
}

fn access(server: &TlsServer) -> Access {
    Access {
        server: format!("https://{}", server.address()).parse().unwrap(),
        server_name: "127.0.0.1".try_into().unwrap(),
        authority: vec![PKI.certificate.der.clone()],
        credentials: Credentials::Token("token".to_owned().into()),
    }
}

/// Waits for a state that is reached without another action of the test.
async fn until(what: &str, state: impl Fn() -> bool) {
    let limit = Duration::from_mins(1);
    let reached = testkit::until::until(what, limit, || async { state() });
    reached.await.unwrap();
}
