//! A deadline for every request.
//!
//! A request fails with [`DeadlineExceeded`] unless the complete response arrives in time. For a stream (a watch) the
//! deadline applies to the head only: an API server sends the head of a watch at once, and kube's watcher has timeouts
//! for the body, but not for the head. Invariant: no request waits without a limit.

use std::time::Duration;

use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes};
use tokio::time::timeout;
use tower::BoxError;

/// Minimum time limit of the head of a stream. An API server may delay a watch until its cache is up to date.
pub(crate) const STREAM_HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a response, complete or a stream.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The API server did not respond in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete response within {limit:?}")]
pub struct DeadlineExceeded {
    pub(super) limit: Duration,
}

/// Returns the response, with its complete body, or the head of a stream, unless it takes longer than `limit`.
pub(super) async fn within_deadline<B>(
    limit: Duration,
    streams: bool,
    response: impl Future<Output = Result<Response<B>, BoxError>>,
) -> Result<Response<ResponseBody>, BoxError>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limit = if streams {
        STREAM_HEAD_TIMEOUT.max(limit)
    } else {
        limit
    };
    let response = async {
        let (head, body) = response.await?.into_parts();
        let body = body.map_err(Into::into);
        if streams {
            return Ok(Response::from_parts(head, body.boxed_unsync()));
        }
        // kube would also read the complete body before it parses it.
        let body = Full::new(body.collect().await?.to_bytes());
        let body = body.map_err(|never| match never {}).boxed_unsync();
        Ok(Response::from_parts(head, body))
    };
    timeout(limit, response)
        .await
        .map_err(|_| DeadlineExceeded { limit })?
}
