//! A deadline for every request.
//!
//! A request fails with [`DeadlineExceeded`] unless the complete response arrives in time. For a stream (a watch) the
//! deadline applies to the head only: an API server sends the head of a watch at once, and kube's watcher has timeouts
//! for the body, but not for the head. Invariant: no request waits without a limit.

use std::error::Error;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

use super::Call;

/// Time limit of the head of a stream, at least. An API server may delay a watch until its cache is up to date.
pub(crate) const STREAM_HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of a response, complete or a stream.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The layer with the time limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Duration);

impl Deadline {
    /// A layer with this limit for each request.
    #[must_use]
    pub const fn new(limit: Duration) -> Self {
        Self(limit)
    }
}

impl<S> Layer<S> for Deadline {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> DeadlineService<S> {
        DeadlineService {
            inner,
            limit: self.0,
        }
    }
}

/// The API server did not respond in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no complete response within {limit:?}")]
pub struct DeadlineExceeded {
    limit: Duration,
}

impl DeadlineExceeded {
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit }
    }

    /// Whether a client's error is this one, or was caused by it.
    #[must_use]
    pub fn is(error: &kube::Error) -> bool {
        matches!(error, kube::Error::Service(inner) if Self::caused(inner.as_ref()))
    }

    /// A timeout while connecting is a source of the connection pool's error.
    pub(super) fn caused(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::caused)
    }
}

/// The service of [`Deadline`].
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    limit: Duration,
}

impl<S, B> Service<Request<Body>> for DeadlineService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let streams = Call::of(&request).streams;
        let head = self.inner.call(request);
        let ordinary = self.limit;
        Box::pin(async move {
            let head = async {
                let answer = head.await.map_err(Into::into)?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            };
            if streams {
                within(STREAM_HEAD_TIMEOUT.max(ordinary), head).await
            } else {
                within(ordinary, async { complete(head.await?).await }).await
            }
        })
    }
}

/// Reads the complete body. kube would do so, too, before it parses it.
async fn complete(answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    let (head, body) = answer.into_parts();
    let body = Full::new(body.collect().await?.to_bytes());
    let body = body.map_err(|never| match never {}).boxed_unsync();
    Ok(Response::from_parts(head, body))
}

async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    timeout(limit, answer)
        .await
        .map_err(|_| DeadlineExceeded::new(limit))?
}
