//! Handling of a request: it is recorded, faults apply to it, and then it is executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::header::{ACCEPT, AUTHORIZATION};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::Instant;

use super::ApiServer;
use super::behavior::{Effect, Fault};
use super::respond::{Call, fault};
use crate::tls::{Body, answer};

/// Verb, resource and object of a request in the terms of RBAC; the verb of an apply is `apply`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply` or `delete`; empty if the path does not name an object.
    pub verb: &'static str,
    /// Resource, with `/status` for that subresource; the path if it does not name an object.
    pub resource: String,
    /// Namespace; empty for cluster scope and for all namespaces.
    pub namespace: String,
    /// Name; empty for a collection.
    pub name: String,
}

/// One recorded request.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Verb, resource and object of the request.
    pub asked: Asked,
    /// Body, if it is JSON.
    pub body: Value,
    /// Path and query.
    pub uri: String,
    /// Value of the header `Accept`.
    pub accept: String,
    /// Bearer token.
    pub token: String,
    /// Time of the request.
    pub begin: Instant,
    /// Time of the response.
    pub end: Option<Instant>,
    /// Status code of the response.
    pub status: Option<u16>,
    /// Whether an object changed.
    pub changed: bool,
}

impl Recorded {
    /// Whether the request is a write.
    pub fn is_write(&self) -> bool {
        !matches!(self.asked.verb, "" | "get" | "list" | "watch")
            && !self.asked.resource.starts_with("selfsubject")
    }
}

impl std::fmt::Display for Asked {
    /// Writes the request as text: `apply secrets a/b`, `list pods`, ` /version`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match (self.namespace.as_str(), self.name.as_str()) {
            ("", "") => Ok(()),
            ("", name) => write!(f, " {name}"),
            (namespace, name) => write!(f, " {namespace}/{name}"),
        }
    }
}

impl Asked {
    /// Whether the request matches a pattern: verb, resource and object (`namespace/name` or `name`). The last parts may be
    /// omitted. Each part may be `*` or alternatives separated by `|`.
    pub fn is_of(&self, pattern: &str) -> bool {
        let text = self.to_string();
        let own: Vec<&str> = text.split(' ').collect();
        pattern.split(' ').enumerate().all(|(index, wanted)| {
            let own = own.get(index).copied().unwrap_or_default();
            wanted == "*" || wanted.split('|').any(|wanted| wanted == own)
        })
    }
}

/// Error if the connection broke before a response.
#[derive(Debug, thiserror::Error)]
#[error("connection reset")]
pub struct Reset;

impl ApiServer {
    /// Returns a client that calls the server without sockets.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Returns the server as a service, for example for clients of the product.
    pub fn service(
        &self,
    ) -> impl tower::Service<
        Request<kube::client::Body>,
        Response = Response<Body>,
        Error = Reset,
        Future: Send,
    > + Clone
    + use<> {
        let server = self.clone();
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        })
    }

    /// Handles one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Result<Response<Body>, Reset>
    where
        B: hyper::body::Body,
    {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Reset)?.to_bytes();
        let call = Call {
            method: &head.method,
            uri: &head.uri,
            headers: &head.headers,
            body: &body,
        };
        let recorded = self.recorded(&call);
        let (asked, is_write) = (recorded.asked.clone(), recorded.is_write());
        let (number, latency, authorized) = {
            let mut state = self.state();
            let number = state.count;
            state.count += 1;
            let token = state.token.as_ref();
            let authorized = token.is_none_or(|token| *token == recorded.token);
            state.requests.insert(number, recorded);
            (number, state.latency, authorized)
        };
        if is_write {
            tokio::time::sleep_until(Instant::now() + latency).await;
        }
        if !authorized {
            return Ok(self.answered(number, fault(401, None), false));
        }
        let mut answers = true;
        let mut met = Vec::new();
        while let Some((hits, effect)) = self.next_fault(&asked, &met) {
            met.push(hits);
            match effect {
                Effect::Status(code, after) => {
                    return Ok(self.answered(number, fault(code, after), false));
                }
                Effect::Answer(code, body) => {
                    return Ok(self.answered(number, answer(code, body), false));
                }
                Effect::Before(run) => run(self),
                // If the sender was dropped, the hold has also ended.
                Effect::Hold(mut hold) => drop(hold.wait_for(|held| !held).await),
                Effect::Reset => return Err(Reset),
                Effect::Silence => std::future::pending().await,
                Effect::LostAnswer => {
                    answers = false;
                    break;
                }
            }
        }
        let (response, changed) = self.store.respond(&call);
        let response = self.answered(number, response, changed);
        if answers {
            return Ok(response);
        }
        std::future::pending().await
    }

    fn recorded(&self, call: &Call<'_>) -> Recorded {
        let mut asked = self.store.asked(call);
        let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
        let name = body["metadata"]["name"].as_str();
        if let Some(name) = name.filter(|_| asked.verb == "create") {
            name.clone_into(&mut asked.name);
        }
        let token = call.header(AUTHORIZATION).strip_prefix("Bearer ");
        Recorded {
            asked,
            body,
            uri: call.uri.to_string(),
            accept: call.header(ACCEPT).to_owned(),
            token: token.unwrap_or_default().to_owned(),
            begin: Instant::now(),
            end: None,
            status: None,
            changed: false,
        }
    }

    fn answered(&self, number: usize, response: Response<Body>, changed: bool) -> Response<Body> {
        let mut state = self.state();
        // The test may have cleared the requests meanwhile.
        if let Some(recorded) = state.requests.get_mut(&number) {
            recorded.end = Some(Instant::now());
            recorded.status = Some(response.status().as_u16());
            recorded.changed = changed;
        }
        response
    }

    /// Returns the next fault for a request. Each fault applies to a request once.
    fn next_fault(
        &self,
        asked: &Asked,
        met: &[Arc<AtomicUsize>],
    ) -> Option<(Arc<AtomicUsize>, Effect)> {
        let mut state = self.state();
        let is_new = |it: &Fault| !met.iter().any(|met| Arc::ptr_eq(met, &it.hits));
        let mut faults = state.faults.iter_mut();
        let fault = faults.find(|it| it.left > 0 && is_new(it) && asked.is_of(&it.pattern))?;
        fault.left -= 1;
        fault.hits.fetch_add(1, Ordering::Relaxed);
        Some((Arc::clone(&fault.hits), fault.effect.clone()))
    }
}
