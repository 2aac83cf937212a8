//! The TLS port: versions, protocols, certificates, and what else one may say to it.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cucumber::{then, when};
use http::Method;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{A_WHILE, PATIENCE, PRODUCT_NAMESPACE, World};
use testkit::until::{holds, until};

/// As many handshakes reach every replica, whichever the Service chooses.
const HANDSHAKES: usize = 8;

#[then(expr = "TLS {word} is spoken, and {string} is chosen among {string}")]
async fn spoken(
    world: &mut World,
    version: String,
    chosen: String,
    offered: String,
) -> anyhow::Result<()> {
    let (version, name) = match version.as_str() {
        "1.2" => (&rustls::version::TLS12, "TLSv1_2"),
        _ => (&rustls::version::TLS13, "TLSv1_3"),
    };
    let offered: Vec<&str> = offered.split(", ").collect();
    let handshake = world.landscape().shake_hands(version, &offered).await?;
    ensure!(
        handshake.version == name && handshake.protocol.as_deref() == Some(&chosen),
        "{handshake:?}"
    );
    Ok(())
}

#[then(expr = "a client that speaks {string} alone is refused")]
async fn not_spoken(world: &mut World, protocol: String) -> anyhow::Result<()> {
    let handshake = world
        .landscape()
        .shake_hands(&rustls::version::TLS13, &[&protocol])
        .await;
    let refused = handshake.err().context("it was accepted")?;
    ensure!(
        format!("{refused:#}").to_lowercase().contains("protocol"),
        "{refused:#}"
    );
    Ok(())
}

#[when("the certificate's Secret is deleted")]
async fn deleted(world: &mut World) -> anyhow::Result<()> {
    remember(world).await?;
    world
        .landscape()
        .dialogue()
        .ask(Method::DELETE, &path(), None)
        .await?
        .good()
        .map(drop)
}

#[when("the certificate's Secret becomes garbage")]
async fn garbage(world: &mut World) -> anyhow::Result<()> {
    remember(world).await?;
    // Base64 of "garbage"
    let data = json!({ "data": { "tls.crt": "Z2FyYmFnZQ==", "tls.key": "Z2FyYmFnZQ==", "ca.crt": "Z2FyYmFnZQ==" } });
    world
        .landscape()
        .dialogue()
        .patch(&path(), &data)
        .await
        .map(drop)
}

#[then("every replica shows a certificate that the caBundle verifies")]
async fn verified(world: &mut World) -> anyhow::Result<()> {
    let landscape = world.landscape();
    holds("every handshake is verified", A_WHILE, || {
        landscape.shake_hands(&rustls::version::TLS13, &["http/1.1"])
    })
    .await?;
    Ok(())
}

#[then("before long there is a whole Secret, and every replica shows its certificate")]
async fn reissued(world: &mut World) -> anyhow::Result<()> {
    let landscape = world.landscape();
    let before = world
        .seen
        .get("certificate")
        .cloned()
        .context("nothing to compare with")?;
    until("the Secret is whole again", PATIENCE, || async {
        let secret = landscape.dialogue().get(&path()).await?;
        ensure!(
            *secret.at("/metadata/resourceVersion") != before,
            "not written yet"
        );
        let pem = secret.at("/data/tls.crt").as_str().context("no tls.crt")?;
        let pem = BASE64.decode(pem)?;
        let leaf = CertificateDer::from_pem_slice(&pem)
            .ok()
            .context("no certificate")?;
        for _ in 0..HANDSHAKES {
            let handshake = landscape
                .shake_hands(&rustls::version::TLS13, &["http/1.1"])
                .await?;
            ensure!(
                handshake.certificate == *leaf,
                "another certificate is shown"
            );
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("a client speaks plain HTTP to the TLS port")]
async fn plain_http(world: &mut World) -> anyhow::Result<()> {
    let answer = say(world, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    world.seen.insert("said".to_owned(), json!(answer));
    Ok(())
}

#[when("a client begins a handshake and falls silent")]
async fn silent(world: &mut World) -> anyhow::Result<()> {
    // The first bytes of a ClientHello that promises more.
    let answer = say(world, &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00]).await?;
    world.seen.insert("said".to_owned(), json!(answer));
    Ok(())
}

#[then(expr = "the connection is closed after {string}")]
fn closed(world: &mut World, said: String) -> anyhow::Result<()> {
    let answer = world
        .seen
        .get("said")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default();
    ensure!(
        if said.is_empty() {
            answer.is_empty()
        } else {
            answer.contains(&said)
        },
        "{answer:?}"
    );
    Ok(())
}

/// What comes back until the other side closes.
async fn say(world: &World, bytes: &[u8]) -> anyhow::Result<String> {
    let mut stream = world.landscape().knock().await?;
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    let closed = stream.read_to_end(&mut answer);
    // A reset is as good as an end.
    tokio::time::timeout(PATIENCE, closed)
        .await
        .context("the connection stays open")?
        .ok();
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

async fn remember(world: &mut World) -> anyhow::Result<()> {
    let secret = world.landscape().dialogue().get(&path()).await?;
    world.seen.insert(
        "certificate".to_owned(),
        secret.at("/metadata/resourceVersion").clone(),
    );
    Ok(())
}

fn path() -> String {
    format!("/api/v1/namespaces/{PRODUCT_NAMESPACE}/secrets/rt-bootstrapper-webhook-cert")
}
