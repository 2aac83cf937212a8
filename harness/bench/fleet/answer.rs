//! One request: its fate, its way to the right runtime's objects, its answer.
//!
//! Invariant: half of a round trip passes before a request is carried out and half after it, as on a wire; nothing is
//! locked meanwhile.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::conditions::{Conditions, Fate, Writes};
use super::identity;
use super::kinds::Served;
use super::object::Digest;
use super::path::{Query, Target};
use super::runtime::{Edit, Runtime};
use super::status::Refusal;

mod body;

pub(super) use body::wait;
use body::{Body, dripping, json_response, no_page, refused, watching};

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
        Err(_) => refused(&Refusal::new(
            413,
            "RequestEntityTooLarge",
            "request is too large",
        )),
    };
    if fate == Fate::ResetAfter {
        session.reset().await;
    }
    wait(half).await;
    Ok(dripping(response, &conditions))
}

/// What of a request matters here.
struct Call<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl Call<'_> {
    fn header(&self, name: http::HeaderName) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    fn is_write(&self) -> bool {
        !matches!(*self.method, Method::GET | Method::HEAD)
    }
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
        let shown = call.header(AUTHORIZATION).strip_prefix("Bearer ");
        shown == Some(&token)
            || (self.certificate.is_some() && self.certificate == accepted.certificate)
    }
}

fn respond(session: &Session, runtime: &Runtime, call: &Call<'_>, fate: Fate) -> Response<Body> {
    if !session.admits(call) {
        runtime.inner().counts.unauthorized += 1;
        return refused(&Refusal::unauthorized());
    }
    let spoiled = match fate {
        Fate::Throttled => {
            let mut refusal = Refusal::new(
                429,
                "TooManyRequests",
                "too many requests, please try again later",
            );
            let seconds = runtime.inner().conditions.faults.retry_after;
            refusal.retry_after = Some(seconds.into());
            Some(refusal)
        }
        Fate::Failing => Some(Refusal::new(
            500,
            "InternalError",
            "Internal error occurred",
        )),
        _ => None,
    };
    if let Some(refusal) = spoiled {
        return refused(&refusal);
    }
    route(runtime, call, fate == Fate::Conflicting).unwrap_or_else(|refusal| refused(&refusal))
}

fn route(runtime: &Runtime, call: &Call<'_>, conflicting: bool) -> Result<Response<Body>, Refusal> {
    let served = Served {
        trust_bundles: !runtime.inner().conditions.without_trust_bundles,
    };
    let path = call.uri.path();
    let Some(target) = Target::parse(path, served) else {
        runtime.inner().counts.questions += 1;
        let document = served.document(path).filter(|_| !call.is_write());
        return match document {
            Some(document) => Ok(json_response(StatusCode::OK, document.to_string())),
            None if served.has_group(path) => Err(Refusal::no_such_path()),
            None => Ok(no_page()),
        };
    };
    if target.kind.review {
        return review(runtime, &target, call);
    }
    count(runtime, &target, call);
    if conflicting && call.is_write() {
        return Err(Refusal::modified(target.kind, &target.name));
    }
    dispatch(runtime, &target, call)
}

fn dispatch(
    runtime: &Runtime,
    target: &Target,
    call: &Call<'_>,
) -> Result<Response<Body>, Refusal> {
    let query = Query::parse(call.uri);
    let one = !target.name.is_empty();
    let manager = query.field_manager.as_deref().unwrap_or_else(|| {
        call.header(USER_AGENT)
            .split('/')
            .next()
            .unwrap_or_default()
    });
    let edit = Edit {
        body: call.body,
        manager,
    };
    let (status, body) = match *call.method {
        Method::GET if one => (StatusCode::OK, runtime.get(target)?),
        Method::GET if query.watch => {
            return Ok(watching(
                runtime.watch(target, &query),
                target.clone(),
                query,
            ));
        }
        Method::GET => (StatusCode::OK, runtime.list(target, &query)),
        Method::DELETE if one => runtime.delete(target, call.body)?,
        Method::POST if !one => runtime.create(target, &edit)?,
        Method::PATCH if one => match call.header(CONTENT_TYPE) {
            "application/apply-patch+yaml" => runtime.apply(target, &query, call.body)?,
            "application/json-patch+json" => runtime.patch(target, &edit)?,
            other => return Err(Refusal::unsupported_media_type(other)),
        },
        _ => return Err(Refusal::method_not_allowed()),
    };
    Ok(json_response(status, body))
}

fn count(runtime: &Runtime, target: &Target, call: &Call<'_>) {
    let mut inner = runtime.inner();
    let counts = &mut inner.counts;
    let apply = call.header(CONTENT_TYPE) == "application/apply-patch+yaml";
    *match *call.method {
        Method::GET if target.name.is_empty() => &mut counts.lists,
        Method::GET => &mut counts.gets,
        Method::PATCH if apply => &mut counts.applies,
        _ => &mut counts.edits,
    } += 1;
}

/// `SelfSubjectAccessReview` and `SelfSubjectRulesReview`: all rights, or those to read.
fn review(runtime: &Runtime, target: &Target, call: &Call<'_>) -> Result<Response<Body>, Refusal> {
    if *call.method != Method::POST {
        return Err(Refusal::method_not_allowed());
    }
    let mut inner = runtime.inner();
    inner.counts.questions += 1;
    let reads_only = inner.conditions.writes == Writes::Forbidden;
    let mut review: Value = serde_json::from_slice(call.body)
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    review["metadata"] = json!({});
    if target.kind.resource == "selfsubjectrulesreviews" {
        review["spec"] = json!({});
    }
    review["status"] = if target.kind.resource == "selfsubjectrulesreviews" {
        let verbs: &[&str] = if reads_only {
            &["get", "list", "watch"]
        } else {
            &["*"]
        };
        json!({
            "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": verbs, "nonResourceURLs": ["*"]}],
            "incomplete": false,
        })
    } else {
        let verb = review
            .pointer("/spec/resourceAttributes/verb")
            .and_then(Value::as_str);
        let reads = matches!(verb, Some("get" | "list" | "watch"));
        json!({ "allowed": !reads_only || reads })
    };
    Ok(json_response(StatusCode::CREATED, review.to_string()))
}

/// As an API server has it.
const LARGEST_BODY: usize = 3 << 20;
