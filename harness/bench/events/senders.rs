//! The senders of a fleet: certificates of their own, and what each says when it comes.
//!
//! Invariant: a sender has come when its heartbeat and its event were both answered 200; its connection then stays, as
//! a watcher's does. Deliberately absent: a second try, which would hide a refusal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use api::event::{BOOT_ID_HEADER, Heartbeat, SEQUENCE_HEADER};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authority::{Authority, HOST, client};
use super::kcp::MANAGER;
use super::model::Dice;
use super::report::Times;
use super::wire::{Wire, post};

/// All senders.
pub(super) struct Senders(Vec<Arc<Sender>>);

struct Sender {
    number: u32,
    tls: Arc<ClientConfig>,
}

/// How they came.
pub(super) struct Came {
    /// From the moment at which each was to come until it was heard.
    pub(super) times: Times,
    /// From the beginning until the last was heard.
    pub(super) last: Duration,
    /// How many were not, and what became of one of them.
    pub(super) refused: usize,
    pub(super) refusal: Option<String>,
    /// Their connections stay open.
    _open: Vec<Wire<TlsStream<TcpStream>>>,
}

impl Senders {
    pub(super) fn new(authority: &Authority, count: u32) -> anyhow::Result<Self> {
        let sender = |number| {
            let leaf = authority.leaf(&name(number))?;
            let tls = client(&authority.pem, Some(&leaf))?;
            Ok(Arc::new(Sender { number, tls }))
        };
        (0..count).map(sender).collect::<Result<_, _>>().map(Self)
    }

    /// All come to the gateway for the first, second … time, spread over this time.
    pub(super) async fn come(
        &self,
        time: u32,
        gateway: SocketAddr,
        over: Duration,
    ) -> anyhow::Result<Came> {
        let mut dice = Dice(u64::from(over.subsec_nanos()) + over.as_secs());
        let begin = Instant::now();
        let mut coming = JoinSet::new();
        for sender in &self.0 {
            let millis = u64::try_from(over.as_millis())?;
            let due = begin + Duration::from_millis(dice.below(millis));
            let sender = sender.clone();
            coming.spawn(async move {
                tokio::time::sleep_until(due.into()).await;
                let wire = sender.come(time, gateway).await?;
                anyhow::Ok((due.elapsed(), wire))
            });
        }
        let (mut times, mut open, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(came) = coming.join_next().await {
            match came? {
                Ok((time, wire)) => {
                    times.push(time);
                    open.push(wire);
                }
                Err(error) => refusals.push(format!("{error:#}")),
            }
        }
        Ok(Came {
            last: begin.elapsed(),
            times: Times::new(times)?,
            refused: refusals.len(),
            refusal: refusals.pop(),
            _open: open,
        })
    }
}

impl Sender {
    async fn come(
        &self,
        time: u32,
        gateway: SocketAddr,
    ) -> anyhow::Result<Wire<TlsStream<TcpStream>>> {
        let tcp = TcpStream::connect(gateway).await.context("TCP")?;
        tcp.set_nodelay(true)?;
        let connector = TlsConnector::from(self.tls.clone());
        let stream = connector.connect(ServerName::try_from(HOST)?, tcp);
        let mut wire = Wire::new(stream.await.context("TLS")?);
        for request in [heartbeat(self.number)?, event(self.number, time, time)] {
            let answer = wire.ask(&request).await?;
            ensure!(answer.status() == 200, "{}", answer.status());
        }
        Ok(wire)
    }
}

/// Of the runtime with this number.
pub(super) fn name(number: u32) -> String {
    format!("runtime-{number}")
}

/// The event about an object, with the number that it has with the runtime's watcher.
pub(super) fn event(runtime: u32, object: u32, sequence: u32) -> Vec<u8> {
    let event = json!({
        "watched": {"Namespace": "kyma-system", "Name": format!("object-{object:09}")},
        "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
    });
    let headers = format!("{BOOT_ID_HEADER}: {runtime:032x}\r\n{SEQUENCE_HEADER}: {sequence}\r\n");
    post(
        &format!("/v2/{MANAGER}/event"),
        &headers,
        &event.to_string(),
    )
}

fn heartbeat(runtime: u32) -> anyhow::Result<Vec<u8>> {
    let heartbeat = Heartbeat {
        boot_id: api::event::BootId::parse(&format!("{runtime:032x}"))?,
        sequence: 1,
        spool_depth: 1,
        oldest_age_seconds: 60,
        version: "0.0.0".to_owned(),
        resync_needed: false,
    };
    let body = serde_json::to_string(&heartbeat)?;
    Ok(post(&format!("/v2/{MANAGER}/event/heartbeat"), "", &body))
}
