//! Sends one POST to KCP, with mTLS. Any 2xx is a success (the public watcher accepts only 200). Callers implement retries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use component_base::retry_after::retry_after;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use rustls::ClientConfig;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use watcher_types::{
    BOOT_ID_HEADER, BootId, CONTENT_TYPE, Heartbeat, PathSegment, SEQUENCE_HEADER, WatchEvent,
    event_path, heartbeat_path,
};

use super::address::KcpAddress;
use super::client::KcpClient;
use super::error::{PostError, StepTimeout};
use super::{MAX_RETRY_AFTER, Timeouts};
use crate::certificates::{Certificates, OutboundState};

/// Number of bytes of a response body that are read, so that the connection can be reused. After a larger body the
/// connection is closed.
const ANSWER_BYTES: usize = 16 << 10;

/// Time limit of the response body after the response headers. It only decides whether the connection is reused.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

const AGENT: &str = "kyma-runtime-watcher";

/// Options of requests to KCP.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// `KCP_ADDR`, the address of KCP.
    pub kcp_address: KcpAddress,
    /// `KCP_CONTRACT`, the first segment of the path.
    pub contract: PathSegment,
    /// Boot ID of this process. Each event contains it.
    pub boot_id: BootId,
    /// Maximum number of concurrent requests, each on a separate connection. Another request waits. At least the window of
    /// the sender, plus one request for heartbeats.
    pub connections: usize,
    /// Time limits of the steps of a request.
    pub timeouts: Timeouts,
}

/// Client that sends events and heartbeats to KCP.
pub struct Channel {
    options: ChannelOptions,
    headers: HeaderMap,
    /// Header value of the boot ID. Always set, because a [`BootId`] is a valid header value.
    boot_id: Option<HeaderValue>,
    outbound: watch::Receiver<OutboundState>,
    places: Semaphore,
    client: Mutex<Option<KcpClient>>,
}

impl Channel {
    /// Creates a channel that opens connections on demand, with the certificates that are active at that time.
    #[must_use]
    pub fn new(options: ChannelOptions, certificates: &Certificates) -> Self {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static(CONTENT_TYPE),
        );
        Self {
            boot_id: HeaderValue::from_str(options.boot_id.as_str()).ok(),
            headers,
            outbound: certificates.outbound(),
            places: Semaphore::new(options.connections),
            options,
            client: Mutex::new(None),
        }
    }

    /// Returns the TLS configuration that is used, with its changes.
    pub(super) fn certificates(&self) -> watch::Receiver<OutboundState> {
        self.outbound.clone()
    }

    /// Posts an event for `manager`. `sequence` is the number of the event in this process, if it has a number.
    ///
    /// # Errors
    /// Any result other than a 2xx response.
    pub async fn post_event(
        &self,
        manager: &PathSegment,
        event: &WatchEvent,
        sequence: Option<u64>,
    ) -> Result<(), PostError> {
        let mut request = self.request(&event_path(&self.options.contract, manager), event);
        if let (Some(sequence), Some(boot_id)) = (sequence, &self.boot_id) {
            let headers = request.headers_mut();
            headers.insert(BOOT_ID_HEADER, boot_id.clone());
            headers.insert(SEQUENCE_HEADER, sequence.into());
        }
        self.post(request).await
    }

    /// Posts a heartbeat for `manager`.
    ///
    /// # Errors
    /// Any result other than a 2xx response.
    pub async fn post_heartbeat(
        &self,
        manager: &PathSegment,
        heartbeat: &Heartbeat,
    ) -> Result<(), PostError> {
        self.post(self.request(&heartbeat_path(&self.options.contract, manager), heartbeat))
            .await
    }

    fn request(&self, path: &str, body: &impl Serialize) -> Request<Full<Bytes>> {
        // Neither conversion can fail: the types serialize to objects of strings and numbers, and all parts of the URI are
        // validated.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        let uri = format!("https://{}{path}", self.options.kcp_address);
        *request.uri_mut() = uri.try_into().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        request
    }

    async fn post(&self, request: Request<Full<Bytes>>) -> Result<(), PostError> {
        let _place = timeout(self.options.timeouts.answer, self.places.acquire())
            .await
            .map_err(|_| PostError::Unreachable(StepTimeout::Wait.into()))?;
        let outbound = self.outbound.borrow().clone().map_err(PostError::Setup)?;
        let answer = self.client(&outbound).send(request).await?;
        let (head, body) = answer.into_parts();
        // Reading the body makes the connection available for the next request. If the body is too long or incomplete, the
        // connection is closed.
        let rest = Limited::new(body, ANSWER_BYTES).collect();
        let _ended = timeout(BODY_TIMEOUT, rest).await;
        let retry_after = retry_after(&head.headers, Timestamp::now(), MAX_RETRY_AFTER);
        if head.status.is_success() {
            return Ok(());
        }
        Err(PostError::Refused {
            status: head.status.as_u16(),
            retry_after,
        })
    }

    /// Returns the client for the active certificates.
    fn client(&self, tls: &Arc<ClientConfig>) -> KcpClient {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.take_if(|client| !Arc::ptr_eq(&client.tls, tls));
        let new = || KcpClient::new(tls, self.options.connections, &self.options.timeouts);
        client.get_or_insert_with(new).clone()
    }
}
