//! The model of the public watcher: what admission waits for there.
//!
//! A model, not a measurement of the public watcher (<https://github.com/kyma-project/runtime-watcher>): this harness does
//! what its source says: one POST per event before the answer, over a new connection with a whole handshake; three attempts at
//! most, of transport errors and 5xx, with waits of 2 s and 4 s; three minutes for each; success is 200; in the end every
//! review is allowed. In its favour: certificates are not read again, and no connection is left open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serve::{Options, Server, TlsHandle, identity_from_pem, server_config};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::authority::{HOST, Leaf, client};
use super::kcp::MANAGER;
use super::wire::{Wire, post};

/// What it is started with.
#[derive(Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) authority: String,
    pub(super) leaf: Leaf,
    /// Of the gateway.
    pub(super) kcp: SocketAddr,
}

/// One that runs until it is dropped.
pub(super) struct Public {
    pub(super) address: SocketAddr,
    _ends: DropGuard,
}

struct Way {
    kcp: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Public {
    pub(super) async fn start(setting: &Setting) -> anyhow::Result<Self> {
        let Setting {
            authority,
            leaf,
            kcp,
        } = setting;
        let identity = identity_from_pem(leaf.pem.as_bytes(), leaf.key_pem.as_bytes())?;
        let options = Options::new(TlsHandle::new(server_config(identity)?));
        let bound = Server::bind(([127, 0, 0, 1], 0).into(), options).await?;
        let address = bound.local_addr();
        let tls = client(authority, Some(leaf))?;
        let router = Router::new()
            .fallback(admit)
            .with_state(Arc::new(Way { kcp: *kcp, tls }));
        let ending = CancellationToken::new();
        tokio::spawn(bound.run(router, ending.clone()));
        Ok(Self {
            address,
            _ends: ending.drop_guard(),
        })
    }
}

async fn admit(State(way): State<Arc<Way>>, body: Bytes) -> String {
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = &review["request"];
    if request["object"]["spec"] != request["oldObject"]["spec"] {
        way.tell(&request["object"]).await;
    }
    let answer = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "response": {"uid": request["uid"], "allowed": true},
    });
    answer.to_string()
}

impl Way {
    /// Whatever becomes of it: the event is not kept.
    async fn tell(&self, object: &Value) {
        let metadata = &object["metadata"];
        let event = json!({
            "watched": {"Namespace": metadata["namespace"], "Name": metadata["name"]},
            "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": object["kind"]},
        });
        let request = post(&format!("/v2/{MANAGER}/event"), "", &event.to_string());
        for wait in WAITS {
            sleep_until(Instant::now() + wait).await;
            if let Ok(Ok(())) = timeout(PATIENCE, self.attempt(&request)).await {
                return;
            }
        }
    }

    /// Transport errors and 5xx are errors.
    async fn attempt(&self, request: &[u8]) -> anyhow::Result<()> {
        let tcp = TcpStream::connect(self.kcp).await?;
        tcp.set_nodelay(true)?;
        let connector = TlsConnector::from(self.tls.clone());
        let stream = connector.connect(ServerName::try_from(HOST)?, tcp).await?;
        let answer = Wire::new(stream).ask(request).await.context("no answer")?;
        ensure!(answer.status() < 500, "{}", answer.status());
        Ok(())
    }
}

/// Before each attempt.
const WAITS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(2),
    Duration::from_secs(4),
];
const PATIENCE: Duration = Duration::from_mins(3);

#[cfg(test)]
mod tests {
    use super::super::authority::Authority;
    use super::super::kcp::{Kcp, Operator, State};
    use super::super::reviews::{Door, request};
    use super::*;

    #[tokio::test]
    async fn kcp_knows_of_a_change_before_it_is_answered_over_a_connection_of_its_own() {
        let authority = Authority::new().unwrap();
        let (operator, heard) = Operator::listening(&authority.pem).await.unwrap();
        let mut kcp = Kcp::before(&authority, operator.address).await.unwrap();
        let setting = Setting {
            authority: authority.pem.clone(),
            leaf: authority.leaf("public").unwrap(),
            kcp: kcp.address,
        };
        let public = Public::start(&setting).await.unwrap();
        let door = Door {
            address: public.address,
            tls: client(&authority.pem, None).unwrap(),
        };
        let mut asker = door.enter().await.unwrap();
        for (count, object) in (1..).zip(["one", "two"]) {
            asker.ask(&request(object)).await.unwrap();
            assert_eq!(kcp.handshakes(), count);
            // The operator takes it from the stream a moment later.
            let arrived = || async { heard.of(object).is_some() };
            let until = testkit::until::until(object, PATIENCE, arrived);
            until.await.unwrap();
        }
        kcp.turn(State::Hanging).await.unwrap();
        let waited = timeout(Duration::from_millis(100), asker.ask(&request("three"))).await;
        assert!(waited.is_err(), "it waits for KCP");
    }
}
