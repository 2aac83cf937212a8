//! Test of the memory that remains for a runtime between calls. It runs in its own process, because other tests would
//! distort the result.
#![cfg(test)]

use controller::clients::kubeconfig::{Access, Credentials};
use controller::clients::{ClientMetrics, ClientOptions, RuntimeClients};
use prometheus_client::registry::Registry;
use testkit::pki::{Authority, Leaf};
use testkit::tls::{TlsServer, answer};

/// Number of runtimes per measurement.
const RUNTIMES: usize = 1_000;

/// The CA of servers and clients, and one certificate for both.
struct Pki {
    authority: Authority,
    leaf: Leaf,
}

async fn reconcile_each(clients: &RuntimeClients, pki: &Pki, port: u16) {
    for _ in 0..RUNTIMES {
        let access = Access {
            server: format!("https://127.0.0.1:{port}").parse().unwrap(),
            server_name: "127.0.0.1".try_into().unwrap(),
            authority: vec![pki.authority.certificate.der.clone()],
            credentials: Credentials::Certificate {
                chain: vec![pki.leaf.der.clone()],
                key: pki.leaf.key_der().into(),
            },
        };
        let remote = clients.open(access).unwrap();
        remote.list("/version").await.unwrap();
    }
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() << 10
}

/// Returns the number of bytes that remain for each runtime after its reconcile.
async fn left_behind() -> usize {
    let authority = Authority::new("kubernetes").unwrap();
    let leaf = authority.leaf("127.0.0.1").unwrap();
    let config = leaf.server_config(&["http/1.1"], Some(&authority)).unwrap();
    let server = TlsServer::answering(config, |_| async { answer(200, "{}") });
    let server = server.await.unwrap();
    let port = server.address().port();
    let pki = Pki { authority, leaf };
    let options = ClientOptions {
        allow_loopback: true,
        ..ClientOptions::default()
    };
    let metrics = ClientMetrics::register(&mut Registry::default());
    let clients = RuntimeClients::new(options, metrics);
    reconcile_each(&clients, &pki, port).await;
    let before = resident();
    reconcile_each(&clients, &pki, port).await;
    resident().saturating_sub(before) / RUNTIMES
}

#[tokio::test]
async fn a_runtime_leaves_nothing_after_its_reconcile() {
    let left = left_behind().await;
    println!("left of a runtime: {left} bytes");
    assert!(left < 4 << 10, "{left}");
}
