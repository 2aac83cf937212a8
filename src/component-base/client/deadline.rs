//! A deadline for every answer.
//!
//! An ordinary call must be answered in full, body included, or it ends with
//! [`DeadlineExceeded`]. A call that streams by design (a watch) must only *begin* to be answered
//! in time: an API server sends the head of a watch at once, and kube's watcher guards what comes
//! after it, but not the head. Invariant: no call can hang for ever.

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

/// For the head of a streamed answer. Generous, because a server may hold back a watch until its
/// cache has caught up.
pub(crate) const STREAM_HEAD: Duration = Duration::from_secs(30);

/// The body of an answer, gathered or still arriving.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// The layer: how long an ordinary call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Duration);

impl Deadline {
    /// Each call gets this long.
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

/// The API server did not answer in time.
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

    /// A connection that was not made in time arrives inside the pool's own error.
    pub(super) fn caused(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::caused)
    }
}

/// See [`Deadline`].
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
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

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
                within(STREAM_HEAD.max(ordinary), head).await
            } else {
                within(ordinary, async { complete(head.await?).await }).await
            }
        })
    }
}

/// kube reads the whole body before it parses it, so gathering it here costs nothing more.
async fn complete(answer: Response<AnswerBody>) -> Result<Response<AnswerBody>, BoxError> {
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
