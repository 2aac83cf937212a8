//! One request and its response.
//!
//! Invariant: the size of a response is bounded. Not in here: the connection, and the time limit.

use bytes::Bytes;
use component_base::retry_after::retry_after;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use jiff::Timestamp;

use super::dial::Target;
use super::error::CallError;
use super::reason::Reason;
use super::{MAX_BODY, MAX_RETRY_AFTER};

/// A request, independent of the protocol of its connection. Not `Debug`: the body may be a Secret.
pub(super) struct RequestBuilder {
    pub(super) verb: &'static str,
    method: Method,
    /// The API path with its query.
    path: String,
    accept: &'static str,
    body: Option<(&'static str, Bytes)>,
}

impl RequestBuilder {
    /// Creates a request without a body.
    pub(super) fn new(verb: &'static str, method: Method, path: &str) -> Self {
        Self {
            verb,
            method,
            path: path.to_owned(),
            accept: "application/json",
            body: None,
        }
    }

    /// Returns the request for only the metadata of the items of a list.
    pub(super) fn metadata_only(self) -> Self {
        Self {
            accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            ..self
        }
    }

    /// Returns the request with a body.
    pub(super) fn body(self, content_type: &'static str, body: Bytes) -> Self {
        Self {
            body: Some((content_type, body)),
            ..self
        }
    }

    /// Builds the request. HTTP/2 requires the whole URI, HTTP/1.1 the path and a `Host`.
    pub(super) fn build(
        &self,
        target: &Target,
        multiplexed: bool,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        if !self.path.starts_with('/') || self.path.contains('#') {
            return Err(CallError::InvalidPath);
        }
        let server = &target.server;
        let path = format!("{}{}", server.prefix(), self.path);
        let uri = if multiplexed {
            format!("https://{server}{path}").parse::<Uri>()
        } else {
            path.parse::<Uri>()
        };
        let mut request = Request::new(Full::default());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.map_err(|_| CallError::InvalidPath)?;
        let headers = request.headers_mut();
        if !multiplexed {
            let host = server.to_string().try_into();
            headers.insert(HOST, host.map_err(|_| CallError::InvalidPath)?);
        }
        headers.insert(ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(api::kcp::CONTROLLER_FIELD_MANAGER),
        );
        if let Some(authorization) = &target.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some((content_type, body)) = &self.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            *request.body_mut() = Full::new(body.clone());
        }
        Ok(request)
    }
}

/// Awaits a response and reads it. Returns status and body of a successful response, otherwise the error.
pub(super) async fn receive(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> Result<(u16, Bytes), CallError> {
    let (head, body) = response.await.map_err(CallError::of_exchange)?.into_parts();
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(CallError::Oversized);
    }
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => CallError::of_exchange(*error),
        Err(other) => {
            debug_assert!(other.is::<LengthLimitError>());
            CallError::Oversized
        }
    })?;
    let body = body.to_bytes();
    let reason = || Reason::read(&body);
    let retry_after = retry_after(&head.headers, Timestamp::now(), MAX_RETRY_AFTER);
    match head.status.as_u16() {
        status @ 200..300 => Ok((status, body)),
        429 => Err(CallError::Throttled { retry_after }),
        409 => Err(CallError::Conflict { reason: reason() }),
        status @ 300..500 => Err(CallError::Refused {
            status,
            reason: reason(),
        }),
        status => Err(CallError::Server {
            status,
            retry_after,
        }),
    }
}
