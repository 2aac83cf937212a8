//! One POST to KCP, over mTLS.
//!
//! Invariants: an answer is awaited, and its body read, within bounds of time and size; what counts is its status, and a
//! success is any of 2xx (the public watcher takes 200 alone). No redirect is followed.
//! A post is sent once, except on a connection that KCP closed while it rested: then once more, on a fresh one.
//! What is posted is a hint to look, so that one too many does no harm.
//!
//! Deliberately absent: retries and their waits, which are the callers'.

use std::time::Duration;

use api::event::{
    BOOT_ID_HEADER, BootId, CONTENT_TYPE, Heartbeat, PathSegment, SEQUENCE_HEADER, WatchEvent,
    event_path, heartbeat_path,
};
use bytes::Bytes;
use chassis::retry_after::retry_after;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::KcpAddress;
use super::dial::dial;
use super::error::{Broken, Phase, PostError};
use super::pool::{Connection, Pool};
use super::{MAX_RETRY_AFTER, Timeouts};
use crate::certificates::{Certificates, Outbound, OutboundState};

/// Of an answer's body so much is read, so that the connection can be used again; a larger one costs the connection.
const ANSWER_BYTES: usize = 16 << 10;

/// After the head of an answer its body has this long to come. It changes nothing but the connection's fate.
const BODY_PATIENCE: Duration = Duration::from_secs(1);

const AGENT: &str = "kyma-runtime-watcher";

/// Where and as whom to post.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// `KCP_ADDR`.
    pub kcp_address: KcpAddress,
    /// `KCP_CONTRACT`: the first segment of the path.
    pub contract: PathSegment,
    /// Which life of the watcher this is; sent with each event.
    pub boot_id: BootId,
    /// Connections at the same time; a post more waits. At least the sender's window, and one for heartbeats.
    pub connections: usize,
    /// How long the steps of a post may take.
    pub timeouts: Timeouts,
}

/// The way to KCP.
pub struct Channel {
    kcp_address: KcpAddress,
    contract: PathSegment,
    headers: HeaderMap,
    /// Always there: a [`BootId`] fits a header.
    boot_id: Option<HeaderValue>,
    timeouts: Timeouts,
    outbound: watch::Receiver<OutboundState>,
    pool: Pool,
}

impl Channel {
    /// A channel that opens connections as they are needed, with the certificates then in force.
    #[must_use]
    pub fn new(options: ChannelOptions, certificates: &Certificates) -> Self {
        let ChannelOptions {
            kcp_address,
            contract,
            boot_id,
            connections,
            timeouts,
        } = options;
        let mut headers = HeaderMap::with_capacity(3);
        headers.insert(HOST, kcp_address.host().clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static(CONTENT_TYPE),
        );
        let outbound = certificates.outbound();
        Self {
            pool: Pool::new(connections, timeouts.idle, outbound.clone()),
            boot_id: HeaderValue::from_str(boot_id.as_str()).ok(),
            kcp_address,
            contract,
            headers,
            timeouts,
            outbound,
        }
    }

    /// Which certificates are used, now and as they change.
    pub(super) fn certificates(&self) -> watch::Receiver<OutboundState> {
        self.outbound.clone()
    }

    /// Posts an event for `manager`; `sequence` is its number in this life, if it has one.
    ///
    /// # Errors
    /// Whatever is not an answer of 2xx.
    pub async fn post_event(
        &self,
        manager: &PathSegment,
        event: &WatchEvent,
        sequence: Option<u64>,
    ) -> Result<(), PostError> {
        let mut draft = self.draft(event_path(&self.contract, manager), event);
        if let (Some(sequence), Some(boot_id)) = (sequence, &self.boot_id) {
            let headers = draft.headers_mut();
            headers.insert(BOOT_ID_HEADER, boot_id.clone());
            headers.insert(SEQUENCE_HEADER, sequence.into());
        }
        self.post(draft).await
    }

    /// Posts a heartbeat for `manager`.
    ///
    /// # Errors
    /// Whatever is not an answer of 2xx.
    pub async fn post_heartbeat(
        &self,
        manager: &PathSegment,
        heartbeat: &Heartbeat,
    ) -> Result<(), PostError> {
        self.post(self.draft(heartbeat_path(&self.contract, manager), heartbeat))
            .await
    }

    fn draft(&self, path: String, body: &impl Serialize) -> Request<Full<Bytes>> {
        // Neither can fail: the types serialize to objects of strings and numbers, and a path is made of plain segments.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.try_into().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        request
    }

    async fn post(&self, draft: Request<Full<Bytes>>) -> Result<(), PostError> {
        let _place = timeout(self.timeouts.answer, self.pool.enter())
            .await
            .map_err(|_| PostError::Unreachable(Broken::TimedOut(Phase::Waiting)))?;
        let outbound = self.outbound.borrow().clone().map_err(PostError::Setup)?;
        if let Some(connection) = self.pool.take(outbound.generation).await {
            match self.exchange(connection, draft.clone()).await {
                // KCP may have closed it when our request was on its way.
                Err(PostError::Unreachable(Broken::Exchange(_))) => {}
                answered => return answered,
            }
        }
        let connection = self.connect(&outbound).await;
        let connection = connection.map_err(PostError::Unreachable)?;
        self.exchange(connection, draft).await
    }

    async fn connect(&self, outbound: &Outbound) -> Result<Connection, Broken> {
        let config = outbound.config.clone();
        let stream = dial(&self.kcp_address, config, &self.timeouts).await?;
        Connection::begin(stream, outbound.generation).await
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        draft: Request<Full<Bytes>>,
    ) -> Result<(), PostError> {
        let answer = connection.sender.send_request(draft);
        let answer = timeout(self.timeouts.answer, answer)
            .await
            .map_err(|_| Broken::TimedOut(Phase::Answering))
            .and_then(|answer| answer.map_err(Broken::Exchange))
            .map_err(PostError::Unreachable)?;
        let (head, body) = answer.into_parts();
        if ends_soon(body).await {
            self.pool.put_back(connection);
        }
        let wait = retry_after(&head.headers, Timestamp::now(), MAX_RETRY_AFTER);
        verdict(head.status, wait)
    }
}

async fn ends_soon(body: Incoming) -> bool {
    let rest = Limited::new(body, ANSWER_BYTES).collect();
    matches!(timeout(BODY_PATIENCE, rest).await, Ok(Ok(_)))
}

fn verdict(status: StatusCode, retry_after: Option<Duration>) -> Result<(), PostError> {
    if status.is_success() {
        return Ok(());
    }
    Err(PostError::Refused {
        status: status.as_u16(),
        retry_after,
    })
}
