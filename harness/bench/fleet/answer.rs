//! One request: its fate, its way to the right runtime's objects, its answer.
//!
//! Invariant: half of a round trip passes before a request is carried out and half after it, as on a wire; nothing is
//! locked meanwhile.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::runtimes::{OWNER_MARKER, OWNER_RUNTIME_ID};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::Value;
use testkit::apiserver::Asked;
use testkit::apiserver::Body;
use testkit::apiserver::respond::{Call, fault};
use tokio_util::sync::CancellationToken;

use super::conditions::{Conditions, Fate};
use super::{Digest, Runtime, Shared, identity};

/// One connection, once its handshake is over.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    /// The runtime that the client asked for.
    pub(super) number: usize,
    /// Of the certificate that the client showed.
    pub(super) certificate: Option<Digest>,
    /// Resets the connection.
    pub(super) cut: CancellationToken,
}

/// Answers a request, or cuts the connection, or never returns, as its fate has it.
pub(super) async fn answer(
    session: Arc<Session>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let _counted = session.shared.enter();
    let runtime = session.runtime();
    let (fate, takes, conditions) = session.draw();
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await;
    let half = takes / 2;
    wait(half).await;
    match fate {
        Fate::Stalled => std::future::pending().await,
        Fate::ResetBefore => session.reset().await,
        _ => {}
    }
    let response = match body {
        Ok(body) => {
            let call = Call {
                method: &head.method,
                uri: &head.uri,
                headers: &head.headers,
                body: &body.to_bytes(),
            };
            respond(&session, runtime, &call, fate)
        }
        Err(_) => fault(413, None),
    };
    if fate == Fate::ResetAfter {
        session.reset().await;
    }
    wait(half).await;
    Ok(dripping(response, &conditions))
}

impl Session {
    fn runtime(&self) -> &Runtime {
        &self.shared.runtimes[self.number]
    }

    fn draw(&self) -> (Fate, Duration, Arc<Conditions>) {
        let mut inner = self.runtime().inner();
        inner.counts.requests += 1;
        let conditions = Arc::clone(&inner.conditions);
        let (fate, takes) = conditions.draw(self.number, inner.counts.requests);
        if fate != Fate::Answered {
            inner.counts.spoiled += 1;
        }
        (fate, takes, conditions)
    }

    async fn reset(&self) -> ! {
        self.cut.cancel();
        std::future::pending().await
    }

    /// Whether the client's credentials open this runtime.
    fn admits(&self, call: &Call<'_>) -> bool {
        let runtime = self.runtime();
        let accepted = runtime.inner().accepted.clone();
        let token = identity::token(&self.shared.secret, &runtime.id, accepted.epoch);
        let shown = call
            .headers
            .get(AUTHORIZATION)
            .and_then(|it| it.to_str().ok());
        let shown = shown.and_then(|it| it.strip_prefix("Bearer "));
        shown == Some(&token)
            || (self.certificate.is_some() && self.certificate == accepted.certificate)
    }
}

fn respond(session: &Session, runtime: &Runtime, call: &Call<'_>, fate: Fate) -> Response<Body> {
    if !session.admits(call) {
        runtime.inner().counts.unauthorized += 1;
        return fault(401, None);
    }
    match fate {
        Fate::Throttled => {
            let seconds = runtime.inner().conditions.faults.retry_after;
            return fault(429, Some(seconds.into()));
        }
        Fate::Failing => return fault(500, None),
        _ => {}
    }
    let asked = runtime.store.asked(call);
    let is_write = !matches!(*call.method, Method::GET | Method::HEAD);
    let is_object = count(runtime, &asked);
    if fate == Fate::Conflicting && is_write && is_object {
        return runtime.store.conflict(call);
    }
    let answer = runtime.store.respond(call);
    if answer.changed {
        let foreign = runtime.is_foreign(&asked, call);
        let counts = &mut runtime.inner().counts;
        counts.writes += 1;
        counts.foreign_writes += u64::from(foreign);
    }
    answer.response
}

/// Counts a request; whether it is about objects.
fn count(runtime: &Runtime, asked: &Asked) -> bool {
    let counts = &mut runtime.inner().counts;
    let is_object = !asked.verb.is_empty() && !asked.resource.starts_with("selfsubject");
    *match asked.verb {
        _ if !is_object => &mut counts.questions,
        "list" | "watch" => &mut counts.lists,
        "get" => &mut counts.gets,
        "apply" => &mut counts.applies,
        _ => &mut counts.edits,
    } += 1;
    is_object
}

impl Runtime {
    /// Whether a write was meant for another runtime: this one shows another identity, or is marked as another one.
    fn is_foreign(&self, asked: &Asked, call: &Call<'_>) -> bool {
        if self.inner().conditions.identity.is_some() {
            return true;
        }
        let is_marker = asked.resource == "configmaps" && asked.name == OWNER_MARKER;
        let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
        is_marker && asked.verb != "delete" && body["data"][OWNER_RUNTIME_ID] != *self.id
    }
}

/// The same in small pieces with pauses, where the runtime is like that.
fn dripping(response: Response<Body>, conditions: &Conditions) -> Response<Body> {
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

/// Takes the time that a distance costs; it is no wait for a state.
pub(super) async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
    }
}

/// Bytes of a piece.
const DROP: usize = 64;
/// As an API server has it.
const LARGEST_BODY: usize = 3 << 20;
