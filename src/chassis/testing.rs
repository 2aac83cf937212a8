//! Test doubles: an API server that is a function, so that time can be paused around it.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;

use crate::client::AnswerBody;

/// What the function gives.
pub(crate) type Answer = Response<AnswerBody>;

/// A client whose requests are answered by the function. No sockets, so tokio's paused clock
/// moves only when everything waits.
pub(crate) fn client<F, A>(answer: F) -> Client
where
    F: Fn(Request<Body>) -> A + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let service = tower::service_fn(move |request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    Client::new(service, "default")
}

/// An answer with a JSON body.
pub(crate) fn json(code: u16, body: &serde_json::Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.map_err(|never| match never {}).boxed_unsync())
        .unwrap()
}

/// A refusal as an API server words it.
pub(crate) fn refusal(code: u16, reason: &str) -> Answer {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    json(code, &status)
}
