//! What API servers ask, and who asks it from within this process.
//!
//! Invariant: an answer other than "allowed" is an error, not a figure. Deliberately absent: when to ask (`stream`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::NAME;
use super::kcp::MANAGER;
use super::wire::{Wire, post};

/// The review of an update of a Kyma, about 5 kB. `name` is in `object.metadata` alone, which
/// the event is named after.
fn review(name: &str) -> String {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "UPDATE", "dryRun": false,
            "name": "default", "namespace": "kyma-system",
            "kind": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
            "resource": {"group": "operator.kyma-project.io", "version": "v1beta2", "resource": "kymas"},
            "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
            "object": kyma(name, "fast"),
            "oldObject": kyma("default", "regular"),
        },
    })
    .to_string()
}

fn kyma(name: &str, channel: &str) -> Value {
    let module = |number: usize| json!({"name": format!("module-{number}"), "channel": channel, "managed": true});
    let field = |number: usize| {
        (
            format!("k:{{\"name\":\"module-{number}\"}}"),
            json!({".": {}, "f:name": {}}),
        )
    };
    let modules: Vec<Value> = (0..10).map(module).collect();
    let fields: serde_json::Map<String, Value> = (0..10).map(field).collect();
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": name, "namespace": "kyma-system", "generation": 7, "resourceVersion": "123456",
            "labels": {"operator.kyma-project.io/watched-by": "kyma"},
            "managedFields": [{
                "manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:channel": {}, "f:modules": fields}},
            }],
        },
        "spec": {"channel": channel, "modules": modules},
        "status": {"state": "Ready", "lastOperation": {"operation": "kyma is ready"}},
    })
}

/// Where reviews are taken, and who takes them.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) tls: Arc<ClientConfig>,
}

/// One kept connection of an API server.
pub(super) struct Asker {
    wire: Wire<TlsStream<TcpStream>>,
}

impl Door {
    pub(super) async fn enter(&self) -> anyhow::Result<Asker> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(NAME)?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, tcp);
        Ok(Asker {
            wire: Wire::new(stream.await?),
        })
    }
}

/// The request that asks about a change of `object`.
pub(super) fn request(object: &str) -> Vec<u8> {
    let path = format!("/validate/{MANAGER}?timeout={}s", API_SERVER.as_secs());
    post(&path, "", &review(object))
}

impl Asker {
    /// Sends a [`request`], and is told that the change is allowed.
    pub(super) async fn ask(&mut self, request: &[u8]) -> anyhow::Result<()> {
        let answer = self.wire.ask(request).await?;
        let review: Value = serde_json::from_slice(answer.body()).context("not JSON")?;
        let allowed = &review["response"]["allowed"];
        ensure!(*allowed == true, "{}: {review}", answer.status());
        Ok(())
    }
}

/// `timeoutSeconds` of the webhook configuration that lifecycle-manager installs: the API server waits no longer.
pub(super) const API_SERVER: Duration = Duration::from_secs(15);
