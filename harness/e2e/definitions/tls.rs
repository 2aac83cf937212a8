//! The TLS port of the webhook, as a client outside of the cluster uses it, and its certificate.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::{RootCertStore, SupportedProtocolVersion, version};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::PATIENCE;
use super::object::ensure_written;
use super::prelude::*;
use super::webhook::webhook;
use crate::admission::webhook::NAMESPACE;
use testkit::pki::client_config_of;
use testkit::tls::RawClient;
use testkit::until::until;

#[when(
    regex = r#"^a client connects (?:with TLS "([^"]+)" and ALPN "([^"]*)"|(without TLS)|and sends part of a handshake)$"#
)]
async fn connects(scenario: &mut Scenario, tls: String, alpn: String, plain: String) -> Result {
    let tls = match tls.as_str() {
        "1.2" => &version::TLS12,
        "1.3" => &version::TLS13,
        _ if plain.is_empty() => return send(scenario, PART_OF_CLIENT_HELLO).await,
        _ => return send(scenario, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await,
    };
    let offered: Vec<&str> = alpn.split(", ").collect();
    let replica = replicas(scenario).await?.remove(0);
    let outcome = match handshake(scenario, &replica, tls, &offered).await {
        Ok((agreed, _)) => agreed,
        Err(error) => json!({ "error": format!("{error:#}").to_lowercase() }),
    };
    scenario.observed.note("connection", outcome);
    Ok(())
}

/// Sends bytes, and stores the response until the server closes the connection.
async fn send(scenario: &mut Scenario, bytes: &[u8]) -> Result {
    let replica = replicas(scenario).await?.remove(0);
    let mut client = RawClient::new(connect(scenario, &replica).await?);
    client.patience = PATIENCE;
    client.send(bytes).await?;
    // A reset also counts as a close.
    let answer = client.rest().await.context("the connection stays open")?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    scenario.observed.note("connection", json!(answer));
    Ok(())
}

#[then(regex = r#"^the connection has "([^"]+)" and ALPN "([^"]*)"$"#)]
fn connected(scenario: &mut Scenario, tls: String, alpn: String) -> Result {
    let seen = scenario.observed.noted("connection")?;
    check(*seen == json!({ "tls": tls, "alpn": alpn }), seen)
}

#[then(
    regex = r#"^the connection is (?:rejected with "([^"]+)"|closed after (?:no answer|an answer with status (\d+)))$"#
)]
fn closed(scenario: &mut Scenario, reason: String, status: String) -> Result {
    let seen = scenario.observed.noted("connection")?;
    if !reason.is_empty() {
        let error = seen["error"].as_str().context("it was accepted")?;
        return check(error.contains(&reason), error);
    }
    let answer = seen.as_str().context("a handshake was made")?;
    let is_expected = match status.as_str() {
        "" => answer.is_empty(),
        status => answer.starts_with(&format!("HTTP/1.0 {status} ")),
    };
    check(is_expected, format!("{answer:?}"))
}

#[when("the caBundle of the webhook is overwritten by another client")]
async fn overwritten(scenario: &mut Scenario) -> Result {
    let object = webhook_configuration();
    restore_later(scenario, &object).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let other = BASE64.encode(&environment.registry().identity.ca_pem);
    let change =
        json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": other }]);
    let (client, path) = at(scenario, &object).await?;
    let body = change.to_string().into_bytes();
    let kind = "application/json-patch+json";
    let answer = client.send(Method::PATCH, &path, kind, body).await?;
    let answer = answer.good()?;
    scenario.observed.wrote(&object, answer, Write::Merge);
    Ok(())
}

#[then("the caBundle of the webhook verifies the serving certificate of every replica")]
async fn verified(scenario: &mut Scenario) -> Result {
    consistently("every handshake is verified", A_WHILE, async || {
        certificates(scenario).await
    })
    .await
}

#[then(expr = "{object} is issued anew and every replica serves its certificate")]
async fn issued(scenario: &mut Scenario, object: ObjectRef) -> Result {
    serves_new(scenario, &object, scenario.earlier(&object)?).await
}

/// Waits until the Secret has another certificate than before, and every replica serves it.
pub(super) async fn serves_new(scenario: &Scenario, object: &ObjectRef, before: &Value) -> Result {
    eventually("the certificate is issued anew", async || {
        let secret = existing(scenario, object).await?;
        ensure_written(before, &secret)?;
        let is_new = secret["data"]["tls.crt"] != before["data"]["tls.crt"];
        ensure!(is_new, "the old certificate");
        let pem = BASE64.decode(text(&secret, "/data/tls.crt")?)?;
        let leaf = CertificateDer::from_pem_slice(&pem).ok();
        let leaf = leaf.context("no certificate")?;
        for (replica, served) in certificates(scenario).await? {
            ensure!(served == *leaf, "{replica} serves another certificate");
        }
        Ok(())
    })
    .await
}

/// Returns the certificate of each replica, by the replica's name.
async fn certificates(scenario: &Scenario) -> Result<Vec<(String, Vec<u8>)>> {
    let mut certificates = Vec::new();
    for replica in replicas(scenario).await? {
        let (_, served) = handshake(scenario, &replica, &version::TLS13, &["http/1.1"]).await?;
        certificates.push((replica["metadata"]["name"].to_string(), served));
    }
    Ok(certificates)
}

/// Returns the Pods of the webhook that are not being deleted, of which there must be at least one.
async fn replicas(scenario: &Scenario) -> Result<Vec<Value>> {
    let pods = webhook(scenario)?.live_pods().await?;
    ensure!(!pods.is_empty(), "the webhook has no replica");
    Ok(pods)
}

/// Connects to a replica, and verifies its certificate with the CAs of the live `caBundle`, as the API server does. Returns the
/// negotiated parameters and the certificate.
async fn handshake(
    scenario: &Scenario,
    replica: &Value,
    version: &'static SupportedProtocolVersion,
    protocols: &[&str],
) -> Result<(Value, Vec<u8>)> {
    let object = existing(scenario, &webhook_configuration()).await?;
    let bundle = text(&object, "/webhooks/0/clientConfig/caBundle")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&BASE64.decode(bundle)?) {
        roots.add(certificate?)?;
    }
    ensure!(!roots.is_empty(), "an empty caBundle");
    let config = client_config_of(&[version], roots, None, protocols)?;
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from(format!("{SERVICE}.{NAMESPACE}.svc"))?;
    let stream = connector
        .connect(name, connect(scenario, replica).await?)
        .await?;
    let connection = stream.get_ref().1;
    let certificate = connection.peer_certificates().and_then(<[_]>::first);
    let version = connection.protocol_version().context("no version")?;
    let protocol = connection.alpn_protocol().map(String::from_utf8_lossy);
    let agreed = json!({ "tls": format!("{version:?}"), "alpn": protocol });
    Ok((agreed, certificate.context("no certificate")?.to_vec()))
}

/// Connects to a replica over TCP, through an additional Service that is deleted with the replica. The product's Service has no
/// port outside of the cluster, and selects any replica.
async fn connect(scenario: &Scenario, replica: &Value) -> Result<TcpStream> {
    let environment = scenario.environment_of::<Admission>()?;
    let (pod, uid) = (
        text(replica, "/metadata/name")?,
        &replica["metadata"]["uid"],
    );
    let name = format!("harness-{pod}");
    let owner = json!([{ "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid }]);
    let service = json!({
        "kind": "Service",
        "metadata": { "name": name, "namespace": NAMESPACE, "ownerReferences": owner },
        "spec": { "type": "NodePort", "ports": [{ "port": 443, "targetPort": 9443 }] },
    });
    let slice = json!({
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": name, "namespace": NAMESPACE, "ownerReferences": owner,
            "labels": { "kubernetes.io/service-name": name } },
        "endpoints": [{ "addresses": [text(replica, "/status/podIP")?] }],
        "ports": [{ "port": 9443, "protocol": "TCP" }],
    });
    let client = scenario.client_of(&webhook_configuration())?;
    client.write(Write::Apply, &slice).await?.good()?;
    let stored = client.write(Write::Apply, &service).await?;
    let port = stored.good()?.at("/spec/ports/0/nodePort").clone();
    let port = port.as_u64().context("no node port")?;
    let address = format!("{}:{port}", environment.cluster.node_address().await?);
    // The node opens the port some time after the Service is created.
    let what = format!("the port {address} is open");
    Ok(until(&what, PATIENCE, || TcpStream::connect(&address)).await?)
}

fn webhook_configuration() -> ObjectRef {
    let name = api::names::WEBHOOK_CONFIGURATION;
    ObjectRef::new("MutatingWebhookConfiguration", None, name)
}

fn text<'a>(object: &'a Value, pointer: &str) -> Result<&'a str> {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("no {pointer}"))
}

/// The first bytes of an incomplete ClientHello.
const PART_OF_CLIENT_HELLO: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00];
/// Name of the Service that the API server calls.
pub(super) const SERVICE: &str = "rt-bootstrapper-webhook-service";
