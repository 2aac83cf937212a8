//! One POST to KCP, over mTLS. Any of 2xx is a success (the public watcher takes 200 alone). Retries are the callers'.

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

/// Of an answer's body so much is read, so that the connection can be used again; a larger one costs the connection.
const ANSWER_BYTES: usize = 16 << 10;

/// After the head of an answer its body has this long to come. It changes nothing but the connection's fate.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

const AGENT: &str = "kyma-runtime-watcher";

/// Where and as whom to post.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// `KCP_ADDR`.
    pub kcp_address: KcpAddress,
    /// `KCP_CONTRACT`: the first segment of the path.
    pub contract: PathSegment,
    /// The boot ID of this process; sent with each event.
    pub boot_id: BootId,
    /// Posts at the same time, each on a connection of its own; one more waits. At least the sender's window, and one for
    /// heartbeats.
    pub connections: usize,
    /// How long the steps of a post may take.
    pub timeouts: Timeouts,
}

/// The way to KCP.
pub struct Channel {
    options: ChannelOptions,
    headers: HeaderMap,
    /// Always there: a [`BootId`] fits a header.
    boot_id: Option<HeaderValue>,
    outbound: watch::Receiver<OutboundState>,
    places: Semaphore,
    client: Mutex<Option<KcpClient>>,
}

impl Channel {
    /// A channel that opens connections as they are needed, with the certificates that are active then.
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

    /// Which certificates are used, now and as they change.
    pub(super) fn certificates(&self) -> watch::Receiver<OutboundState> {
        self.outbound.clone()
    }

    /// Posts an event for `manager`; `sequence` is its number in this process, if it has one.
    ///
    /// # Errors
    /// Whatever is not an answer of 2xx.
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
    /// Whatever is not an answer of 2xx.
    pub async fn post_heartbeat(
        &self,
        manager: &PathSegment,
        heartbeat: &Heartbeat,
    ) -> Result<(), PostError> {
        self.post(self.request(&heartbeat_path(&self.options.contract, manager), heartbeat))
            .await
    }

    fn request(&self, path: &str, body: &impl Serialize) -> Request<Full<Bytes>> {
        // Neither can fail: the types serialize to objects of strings and numbers, and the URI is made of checked parts.
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
        // Makes the connection free for the next; of a body that is too long or does not end it is closed.
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

    /// The client of the active certificates.
    fn client(&self, tls: &Arc<ClientConfig>) -> KcpClient {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.take_if(|client| !Arc::ptr_eq(&client.tls, tls));
        let new = || KcpClient::new(tls, self.options.connections, &self.options.timeouts);
        client.get_or_insert_with(new).clone()
    }
}
