//! One request and its answer.
//!
//! Invariant: every answer is read within bounds of time and size, and comes out as what it means to the caller; one
//! request is sent at most once. Deliberately absent: which connection carries it.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use component_base::retry_after::retry_after;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use jiff::Timestamp;

use super::dial::Target;
use super::error::CallError;
use super::reason::Reason;
use super::{MAX_ANSWER, MAX_RETRY_AFTER};

/// A request before it is known how it will travel. Not `Debug`: the body may be a Secret.
pub(super) struct Draft {
    pub(super) verb: &'static str,
    pub(super) method: Method,
    /// The API path with its query.
    pub(super) path: String,
    pub(super) body: Option<(&'static str, Bytes)>,
}

/// An answer read to its end.
pub(super) struct Answer {
    status: StatusCode,
    retry_after: Option<Duration>,
    body: Bytes,
}

impl Draft {
    /// The request: HTTP/2 wants the whole URI, HTTP/1.1 the path and a `Host`.
    pub(super) fn request(
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
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
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

impl Answer {
    /// Awaits an answer and reads it to its end.
    pub(super) async fn read(
        response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    ) -> Result<Self, CallError> {
        let response = response.await.map_err(CallError::of_exchange)?;
        let (head, body) = response.into_parts();
        if body.size_hint().lower() > MAX_ANSWER as u64 {
            return Err(CallError::Oversized);
        }
        let body = Limited::new(body, MAX_ANSWER)
            .collect()
            .await
            .map_err(|error| match error.downcast::<hyper::Error>() {
                Ok(error) => CallError::of_exchange(*error),
                Err(other) => {
                    debug_assert!(other.is::<LengthLimitError>());
                    CallError::Oversized
                }
            })?
            .to_bytes();
        Ok(Self {
            status: head.status,
            retry_after: retry_after(&head.headers, Timestamp::now(), MAX_RETRY_AFTER),
            body,
        })
    }

    /// Status and body of a success; the error that another status stands for.
    pub(super) fn into_result(self) -> Result<(u16, Bytes), CallError> {
        let Self {
            status,
            retry_after,
            body,
        } = self;
        match status.as_u16() {
            code @ 200..300 => Ok((code, body)),
            429 => Err(CallError::Throttled { retry_after }),
            409 => Err(CallError::Conflict {
                reason: Reason::read(&body),
            }),
            300..500 => Err(CallError::Refused {
                status: status.as_u16(),
                reason: Reason::read(&body),
            }),
            status => Err(CallError::Server {
                status,
                retry_after,
            }),
        }
    }
}
