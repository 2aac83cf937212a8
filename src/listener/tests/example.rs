//! Runs the example: a request of a gateway results in a line of output.

#[path = "../examples/operator.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod operator;

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use runtime_watcher_listener::TrustAnchors;
use testkit::pki::{Authority, rcgen};
use testkit::tls::RawClient;
use tokio_util::sync::CancellationToken;

/// Returns the PEM of a CA, and the header for a runtime named `r1`.
fn certificates() -> Result<(String, String), rcgen::Error> {
    let ca = Authority::new("kcp")?;
    let leaf = ca.leaf("r1")?;
    let encoded = utf8_percent_encode(&leaf.pem, NON_ALPHANUMERIC);
    let header = format!("X-Forwarded-Client-Cert: Cert=\"{encoded}\"");
    Ok((ca.pem().to_owned(), header))
}

#[tokio::test]
async fn the_example_receives_an_event() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (ca, header) = certificates()?;
    let trust_anchors = TrustAnchors::from_pem(ca.as_bytes())?;
    let address = ("127.0.0.1:0", "lifecycle-manager");
    let (listener, notifications) = operator::listener(address, trust_anchors)?;
    let bound = listener.bind().await?;
    let address = bound.local_addr();
    let shutdown = CancellationToken::new();
    let _serving = tokio::spawn(bound.run(shutdown));
    let (line, lines) = mpsc::channel();
    tokio::spawn(operator::receive(notifications, move |text| {
        line.send(text).unwrap();
    }));

    let body = r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#;
    let path = "/v2/lifecycle-manager/event";
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: kcp\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut client = RawClient::connect(address).await?;
    assert_eq!(client.ask(request).await?.status, 200);

    let received = tokio::task::spawn_blocking(move || lines.recv_timeout(Duration::from_secs(20)));
    assert_eq!(received.await??, "r1: K ns/n");
    Ok(())
}
