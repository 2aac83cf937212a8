//! How a control plane of the tests is asked and answers.

use std::convert::Infallible;
use std::time::Duration;

use chassis::client::{Deadline, RequestMetrics};
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::store::Key;

/// Where everything is, unless a test says otherwise.
pub(in crate::bootstrapper) const NAMESPACE: &str = "kcp-system";

pub(in crate::bootstrapper) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The product's own client of a server that answers so.
pub(in crate::bootstrapper) fn client<F>(
    answer: impl Fn(Request<Body>) -> F + Clone + Send + 'static,
) -> Client
where
    F: Future<Output = Answer> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let requests = RequestMetrics::register(&mut Registry::default());
    let deadline = Deadline::new(Duration::from_secs(15));
    chassis::client::over(service, NAMESPACE, deadline, &requests)
}

/// What is asked for behind the question mark.
#[derive(Clone, Default)]
pub(in crate::bootstrapper) struct Query {
    pub(in crate::bootstrapper) watch: bool,
    pub(in crate::bootstrapper) version: u64,
    pub(in crate::bootstrapper) name: Option<String>,
    /// Whether only objects with the label of a runtime are wanted.
    labelled: bool,
    pub(super) from: usize,
}

impl Query {
    pub(in crate::bootstrapper) fn of(request: &Request<Body>) -> Self {
        let mut query = Self::default();
        let pairs = request.uri().query().unwrap_or_default().split('&');
        for (name, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            match name {
                "watch" => query.watch = value == "true",
                "resourceVersion" => query.version = value.parse().unwrap(),
                "fieldSelector" => {
                    let name = value.strip_prefix("metadata.name%3D").unwrap();
                    query.name = Some(name.to_owned());
                }
                "labelSelector" => query.labelled = true,
                "continue" => query.from = value.parse().unwrap(),
                _ => {}
            }
        }
        query
    }

    pub(super) fn wants(&self, plural: &str, key: &Key, object: &Value) -> bool {
        let label = || &object["metadata"]["labels"]["kyma-project.io/runtime-id"];
        let named = self.name.as_ref().is_none_or(|it| *it == key.1);
        key.0 == plural && named && (!self.labelled || !label().is_null())
    }
}

pub(in crate::bootstrapper) async fn parsed(request: Request<Body>) -> Value {
    let bytes = request.into_body().collect_bytes().await.unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// An answer that goes on for as long as something changes. `after` says what is new to who has seen so much, and what
/// was seen then.
pub(in crate::bootstrapper) fn watched(
    changed: watch::Receiver<u64>,
    since: u64,
    after: impl Fn(u64) -> (u64, String) + Send + 'static,
) -> Answer {
    let lines = stream::unfold(
        (changed, since, after),
        |(mut changed, mut since, after)| async move {
            loop {
                let (last, text) = after(since);
                since = last;
                if !text.is_empty() {
                    let frame = Frame::data(Bytes::from(text));
                    return Some((Ok::<_, Infallible>(frame), (changed, since, after)));
                }
                changed.changed().await.ok()?;
            }
        },
    );
    Response::new(StreamBody::new(lines.boxed()).boxed_unsync())
}

pub(in crate::bootstrapper) fn with(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.boxed_unsync())
        .unwrap()
}

pub(in crate::bootstrapper) fn refusal(code: u16, retry_after: Option<u32>) -> Answer {
    if code == 429 {
        // Priority and fairness answers so, without a Status.
        let body = Full::new(Bytes::from("Too many requests, please try again later."));
        return Response::builder()
            .status(code)
            .header("retry-after", retry_after.unwrap_or(1))
            .body(body.boxed_unsync())
            .unwrap();
    }
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "refused",
        "reason": reason, "details": {"retryAfterSeconds": retry_after.unwrap_or_default()},
    });
    with(code, &status)
}
