//! The example works: a request of a gateway comes out as a line.

#[path = "../examples/receive.rs"]
#[expect(dead_code, reason = "its main is for people")]
mod receive;

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// A CA's PEM, and the header for a runtime named `r1`.
fn certificates() -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let ca = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "r1");
    let leaf = params.signed_by(&KeyPair::generate()?, &issuer)?.pem();
    let escapes = [
        ("+", "%2B"),
        ("/", "%2F"),
        ("=", "%3D"),
        (" ", "%20"),
        ("\r", "%0D"),
        ("\n", "%0A"),
    ];
    let encoded = escapes
        .iter()
        .fold(leaf, |text, (from, to)| text.replace(from, to));
    Ok((ca, format!("X-Forwarded-Client-Cert: Cert=\"{encoded}\"")))
}

#[tokio::test]
async fn the_example_receives_an_event() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (ca, header) = certificates()?;
    let (bound, events, liveness) =
        receive::open(([127, 0, 0, 1], 0).into(), ca.as_bytes()).await?;
    let address = bound.local_addr();
    let shutdown = CancellationToken::new();
    let _serving = tokio::spawn(bound.run(shutdown));
    let (line, lines) = mpsc::channel();
    tokio::spawn(receive::receive(events, liveness, move |text| {
        line.send(text).unwrap();
    }));

    let body = r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#;
    let path = "/v2/lifecycle-manager/event";
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: kcp\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let mut client = TcpStream::connect(address).await?;
    client.write_all(request.as_bytes()).await?;
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"HTTP/1.1 200 OK");

    let received = tokio::task::spawn_blocking(move || lines.recv_timeout(Duration::from_secs(20)));
    assert_eq!(received.await??, "r1: K ns/n");
    Ok(())
}
