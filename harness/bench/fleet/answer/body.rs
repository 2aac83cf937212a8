//! Answers as they go over the wire: whole, in drops, or without an end.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio::sync::broadcast;

use crate::fleet::conditions::Conditions;
use crate::fleet::path::{Query, Target};
use crate::fleet::runtime::{Change, Watch, selects};
use crate::fleet::status::Refusal;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is there, and then every change, without an end.
pub(super) fn watching(watch: Watch, target: Target, query: Query) -> Response<Body> {
    let first = stream::iter(watch.first);
    let rest = stream::unfold(watch.rest, move |mut changes| {
        let (target, query) = (
            target.clone(),
            Query {
                only: query.only.clone(),
                ..Query::default()
            },
        );
        async move {
            loop {
                // The sender lives as long as the fleet; who falls too far behind is cut off.
                let change: Result<Change, broadcast::error::RecvError> = changes.recv().await;
                let change = change.ok()?;
                if selects(&target, &query, &change.key) {
                    return Some((change.line(), changes));
                }
            }
        }
    });
    let lines = first.chain(rest).map(|line| Ok(Frame::data(line.into())));
    let mut response = Response::new(StreamBody::new(lines).boxed_unsync());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, refusal.body().to_string());
    if let Some(seconds) = refusal.retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A real API server has no `Status` for a group that it does not know.
pub(super) fn no_page() -> Response<Body> {
    let mut response = Response::new(Full::new("404 page not found\n".into()).boxed_unsync());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

pub(super) fn json_response(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The same in small pieces with pauses, where the runtime is like that.
pub(super) fn dripping(response: Response<Body>, conditions: &Conditions) -> Response<Body> {
    let pause = conditions.drip;
    if pause.is_zero() {
        return response;
    }
    response.map(|body| {
        let pieces = body.into_data_stream().flat_map(move |bytes| {
            let bytes = bytes.unwrap_or_default();
            let pieces: Vec<Bytes> = bytes.chunks(DROP).map(Bytes::copy_from_slice).collect();
            stream::iter(pieces).then(move |piece| async move {
                wait(pause).await;
                Ok(Frame::data(piece))
            })
        });
        StreamBody::new(pieces).boxed_unsync()
    })
}

/// Distance is what is played here; nobody waits for a state by it.
pub(in crate::fleet) async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
    }
}

/// Bytes of a piece.
const DROP: usize = 64;
