//! The router behind the server of the watcher.

use std::io;
use std::net::SocketAddr;

use rstest::rstest;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serve::{Options as ServeOptions, Server};
use testkit::pki::{Authority, client_config_of};
use testkit::tls::RawTlsClient;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::fixture::{Secret, certified};

struct Served {
    fixture: Fixture,
    address: SocketAddr,
    authority: Authority,
    _secret: Secret,
    _end: DropGuard,
}

async fn served() -> Served {
    let (authority, secret) = certified();
    let mut options = ServeOptions::tls(secret.load().tls());
    options.linger = Duration::ZERO;
    // No test is about it, and a busy machine encrypts 7 MiB slowly.
    options.limits.body = Duration::from_mins(1);
    let server = Server::bind(([127, 0, 0, 1], 0).into(), options)
        .await
        .unwrap();
    let address = server.local_addr();
    let fixture = fixture();
    let end = CancellationToken::new();
    tokio::spawn(server.run(router(fixture.service.clone()), end.clone()));
    Served {
        fixture,
        address,
        authority,
        _secret: secret,
        _end: end.drop_guard(),
    }
}

impl Served {
    async fn dial(&self, version: &'static SupportedProtocolVersion) -> io::Result<RawTlsClient> {
        let config = client_config_of(&[version], self.authority.roots(), None, &[]).unwrap();
        RawTlsClient::connect_tls(self.address, "localhost", config).await
    }

    /// Returns the status line of the response to a POST with these headers and this body.
    async fn post(&self, headers: &str, body: &[u8]) -> String {
        let mut client = self.dial(&TLS13).await.unwrap();
        let head = format!("POST /validate/kyma HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n");
        client.send(head).await.unwrap();
        // The server may respond and close before it has received everything.
        let _ = client.send(body).await;
        client.response().await.unwrap().line().to_owned()
    }
}

#[rstest]
#[case::tls_1_3(&TLS13, true)]
#[case::tls_1_2(&TLS12, false)]
#[tokio::test]
async fn tls_1_3_alone(#[case] version: &'static SupportedProtocolVersion, #[case] accepted: bool) {
    assert_eq!(served().await.dial(version).await.is_ok(), accepted);
}

/// Larger than any review, which contains two objects of at most 3 MiB.
const TOO_LARGE: usize = 7 * 1024 * 1024 + 1;

#[rstest]
#[case::announced(format!("Content-Length: {TOO_LARGE}"))]
#[case::in_chunks(format!("Transfer-Encoding: chunked\r\n\r\n{TOO_LARGE:x}"))]
#[tokio::test]
async fn a_body_has_a_bound(#[case] headers: String) {
    let served = served().await;
    let body = if headers.contains("chunked") {
        vec![b' '; TOO_LARGE]
    } else {
        Vec::new()
    };
    // The header section of the second case ends with an empty line.
    let headers = headers.trim_end();
    let status = served.post(headers, &body).await;
    assert_eq!(status, "HTTP/1.1 413 Payload Too Large");
    assert_eq!(served.fixture.bodies(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_review_of_two_large_objects_is_none_too_large() {
    let served = served().await;
    let mut review = changed("a");
    let filling = "x".repeat(3 * 1024 * 1024);
    for object in ["object", "oldObject"] {
        review["request"][object]["metadata"]["annotations"] = json!({"a": filling});
    }
    let body = review.to_string();
    let headers = format!("Content-Length: {}", body.len());
    let status = served.post(&headers, body.as_bytes()).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(served.fixture.bodies(), [event("a")]);
}
