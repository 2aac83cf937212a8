//! What a runtime costs between calls. A process of its own: other tests would blur the figure.
#![cfg(test)]

use controller::clients::kubeconfig::{Access, Credentials};
use controller::clients::{FleetMetrics, FleetOptions, RuntimeClients, RuntimeId};
use prometheus_client::registry::Registry;
use testkit::pki::{Authority, Leaf};
use testkit::tls::{TlsServer, answer};

/// Runtimes per measurement.
const RUNTIMES: usize = 1_000;

/// The authority of servers and clients, and a certificate of both.
struct Pki {
    authority: Authority,
    leaf: Leaf,
}

async fn pass(fleet: &RuntimeClients, pki: &Pki, port: u16, runtimes: std::ops::Range<usize>) {
    for index in runtimes {
        let access = Access {
            server: format!("https://127.0.0.1:{port}").parse().unwrap(),
            server_name: "127.0.0.1".try_into().unwrap(),
            authority: vec![pki.authority.certificate.der.clone()],
            credentials: Credentials::Certificate {
                chain: vec![pki.leaf.der.clone()],
                key: pki.leaf.key_der(),
            },
        };
        let id = RuntimeId::new(&format!("5b1d9a3e-0000-4000-8000-{index:012}"));
        let remote = fleet.open(&id, access, "123456789").unwrap();
        remote.list("/version").await.unwrap();
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() << 10
}

/// Bytes that stay behind for each runtime after a pass over it.
async fn left_behind(resumable: usize) -> usize {
    let authority = Authority::new("kubernetes").unwrap();
    let leaf = authority.leaf("127.0.0.1").unwrap();
    let config = leaf.server_config(&["http/1.1"], Some(&authority)).unwrap();
    let server = TlsServer::answering(config, |_| async { answer(200, "{}") });
    let server = server.await.unwrap();
    let port = server.address().port();
    let pki = Pki { authority, leaf };
    let options = FleetOptions {
        resumable,
        allow_loopback: true,
        ..FleetOptions::default()
    };
    let metrics = FleetMetrics::register(&mut Registry::default());
    let fleet = RuntimeClients::new(options, metrics);
    pass(&fleet, &pki, port, 0..RUNTIMES).await;
    let before = resident();
    pass(&fleet, &pki, port, RUNTIMES..2 * RUNTIMES).await;
    resident().saturating_sub(before) / RUNTIMES
}

#[tokio::test]
async fn what_stays_of_a_runtime_is_small() {
    let nothing = left_behind(0).await;
    let session = left_behind(2 * RUNTIMES).await;
    println!("left of a runtime: {nothing} bytes, with a session to resume {session} bytes");
    assert!(nothing < 4 << 10, "{nothing}");
    assert!(session < 12 << 10, "{session}");
}
