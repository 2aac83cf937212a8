//! Responses to requests: discovery, reviews, and the verbs on objects.

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::kinds::{self, Handling};
use super::object::{Key, Stored};
use super::request::{Query, Target};
use super::service::Asked;
use super::status::Refusal;
use super::store::{Inner, Store};
use crate::tls::{Body, answer};

/// The parts of a request that the server reads.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Path and query of the request.
    pub uri: &'a Uri,
    /// Headers of the request.
    pub headers: &'a HeaderMap,
    /// Complete body of the request.
    pub body: &'a [u8],
}

/// A response, and whether an object changed.
pub type Answer = (Response<Body>, bool);

impl Call<'_> {
    pub(super) fn header(&self, name: http::HeaderName) -> &str {
        let value = self.headers.get(name).and_then(|it| it.to_str().ok());
        value.unwrap_or_default()
    }

    fn object(&self) -> Result<Value, Refusal> {
        let parsed = serde_json::from_slice(self.body);
        parsed.map_err(|error| Refusal::bad_request(error.to_string()))
    }

    fn verb(&self, target: &Target, watch: bool) -> Option<&'static str> {
        let one = !target.name.is_empty();
        Some(match *self.method {
            Method::GET if one => "get",
            Method::GET if watch => "watch",
            Method::GET => "list",
            Method::POST if !one => "create",
            Method::PUT if one => "update",
            Method::DELETE if one && !target.status => "delete",
            Method::PATCH if one => match self.header(CONTENT_TYPE) {
                "application/apply-patch+yaml" => "apply",
                _ => "patch",
            },
            _ => return None,
        })
    }
}

impl Store {
    /// Returns verb, resource and object of a request.
    pub fn asked(&self, call: &Call<'_>) -> Asked {
        let behavior = self.behavior();
        let Some(target) = Target::parse(call.uri.path(), &behavior.kinds) else {
            return Asked {
                resource: call.uri.path().to_owned(),
                ..Asked::default()
            };
        };
        let watch = Query::parse(call.uri, target.kind).is_ok_and(|query| query.watch);
        Asked {
            verb: call.verb(&target, watch).unwrap_or_default(),
            resource: target.resource(),
            namespace: target.namespace.to_string(),
            name: target.name.to_string(),
        }
    }

    /// Executes a request and returns the response.
    pub fn respond(self: &Arc<Self>, call: &Call<'_>) -> Answer {
        let answer = self.route(call);
        answer.unwrap_or_else(|refusal| (refused(&refusal), false))
    }

    /// Returns the response for a resource version conflict, without reading the object.
    pub fn conflict(&self, call: &Call<'_>) -> Response<Body> {
        let behavior = self.behavior();
        match Target::parse(call.uri.path(), &behavior.kinds) {
            Some(target) => refused(&Refusal::modified(&target)),
            None => refused(&Refusal::no_such_path()),
        }
    }

    fn route(self: &Arc<Self>, call: &Call<'_>) -> Result<Answer, Refusal> {
        let behavior = self.behavior();
        let path = call.uri.path();
        let Some(target) = Target::parse(path, &behavior.kinds) else {
            let reads = matches!(*call.method, Method::GET | Method::HEAD);
            let document = kinds::document(&behavior.kinds, path).filter(|_| reads);
            return match document {
                Some(document) => Ok((json_response(StatusCode::OK, document.to_string()), false)),
                None if kinds::has_group(&behavior.kinds, path) => Err(Refusal::no_such_path()),
                // For an unknown group, a real API server responds without a `Status`.
                None => Ok((answer(404, "404 page not found\n"), false)),
            };
        };
        if target.kind.handling == Handling::Review {
            if *call.method != Method::POST {
                return Err(Refusal::method_not_allowed());
            }
            let answer = behavior.rights.review(target.kind.resource, call.object()?);
            return Ok((
                json_response(StatusCode::CREATED, answer.to_string()),
                false,
            ));
        }
        let query = Query::parse(call.uri, target.kind)?;
        let verb = call.verb(&target, query.watch);
        let verb = verb.ok_or_else(Refusal::method_not_allowed)?;
        let right = if verb == "apply" { "patch" } else { verb };
        if !behavior.rights.allow(right, &target, &query) {
            return Err(Refusal::not_allowed(right, &target.resource(), &target));
        }
        self.dispatch((verb, &target, &query), call)
    }

    fn dispatch(
        self: &Arc<Self>,
        (verb, target, query): (&str, &Target, &Query),
        call: &Call<'_>,
    ) -> Result<Answer, Refusal> {
        let partial = call.header(ACCEPT).contains("as=PartialObjectMetadata");
        let agent = call.header(USER_AGENT).split('/').next();
        let manager = match query.field_manager.as_str() {
            "" => agent.unwrap_or_default(),
            manager => manager,
        };
        let is_dry_run = query.dry_run.is_some();
        let written = match (verb, call.header(CONTENT_TYPE)) {
            ("create", _) if is_dry_run => self.create(target, call.object()?, manager, true)?,
            (verb, _) if is_dry_run && !["get", "list", "watch"].contains(&verb) => {
                return Err(Refusal::bad_request("dry run: only create is simulated"));
            }
            ("get", _) => {
                let object = shown(self.get(target, query)?, partial).to_string();
                return Ok((json_response(StatusCode::OK, object), false));
            }
            ("list", _) => {
                let list = self.list(target, query, partial)?;
                return Ok((json_response(StatusCode::OK, list), false));
            }
            ("watch", _) => {
                let stream = self.watching(target.clone(), query.clone(), partial)?;
                return Ok((stream, false));
            }
            ("create", _) => self.create(target, call.object()?, manager, false)?,
            ("update", _) => self.replace(target, call.object()?, manager)?,
            ("delete", _) => self.delete(target, call.body)?,
            ("apply", _) => self.apply(target, query, call.body)?,
            (_, "application/json-patch+json") => self.patch(target, false, call.body, manager)?,
            (_, "application/merge-patch+json") => self.patch(target, true, call.body, manager)?,
            (_, other) => return Err(Refusal::unsupported_media_type(other)),
        };
        let object = shown(written.body, partial).to_string();
        Ok((json_response(written.status, object), written.changed))
    }

    fn get(&self, target: &Target, query: &Query) -> Result<Value, Refusal> {
        let inner = self.inner();
        inner.reached(query)?;
        let found = self.render(&inner, target);
        found.ok_or_else(|| Refusal::not_found(target))
    }

    /// Returns a page of a collection. The continue token names the last object of the page.
    fn list(&self, target: &Target, query: &Query, partial: bool) -> Result<String, Refusal> {
        let inner = self.inner();
        inner.reached(query)?;
        let after = query.r#continue.split_once('/');
        let limit = match query.limit {
            0 => inner.behavior.page,
            limit => limit.min(inner.behavior.page),
        };
        let is_after = |key: &Key| after.is_none_or(|it| it < (&*key.namespace, &*key.name));
        let found = inner.selected(target, query);
        let mut found = found.filter(|(key, _)| is_after(key)).peekable();
        // Items are serialized one by one, because the objects of a whole fleet as values need much memory.
        let mut items = Vec::new();
        let mut metadata = json!({"resourceVersion": inner.version.to_string()});
        while let Some((key, _)) = found.next() {
            let mut item = shown(self.render(&inner, key).unwrap_or_default(), partial);
            if let Some(item) = item.as_object_mut().filter(|_| !partial) {
                item.retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
            }
            items.push(item.to_string());
            if items.len() >= limit && found.peek().is_some() {
                metadata["continue"] = json!(format!("{}/{}", key.namespace, key.name));
                break;
            }
        }
        let (kind, api_version) = if partial {
            ("PartialObjectMetadata", "meta.k8s.io/v1")
        } else {
            (target.kind.name, target.kind.api_version)
        };
        Ok(format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[{}]}}",
            items.join(",")
        ))
    }
}

impl Inner {
    /// Fails if the server has not reached the resource version of the request.
    pub(super) fn reached(&self, query: &Query) -> Result<(), Refusal> {
        match query.resource_version.parse() {
            Ok(version) if self.version < version => Err(Refusal::too_large(version, self.version)),
            _ => Ok(()),
        }
    }

    /// Returns the objects that a request selects.
    pub(super) fn selected(
        &self,
        target: &Target,
        query: &Query,
    ) -> impl Iterator<Item = (&Key, &Stored)> {
        let is_selected = |(key, stored): &(&Key, &Stored)| {
            let state = stored.state.as_ref();
            state.is_some_and(|state| query.selects(target, key, state))
        };
        self.objects.iter().filter(is_selected)
    }
}

/// Returns the object, or its metadata only if `partial`.
pub(super) fn shown(mut object: Value, partial: bool) -> Value {
    if !partial {
        return object;
    }
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"].take(),
    })
}

pub(super) fn refused(refusal: &Refusal) -> Response<Body> {
    let Refusal(body) = refusal;
    let code = body["code"].as_u64().and_then(|it| u16::try_from(it).ok());
    let status = code.and_then(|it| StatusCode::from_u16(it).ok());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, body.to_string());
    if let Some(seconds) = body["details"]["retryAfterSeconds"].as_u64() {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns a `Status` for an error that no object caused; for 429 the text that API Priority and Fairness returns.
pub fn fault(code: u16, retry_after: Option<u64>) -> Response<Body> {
    // A real API server rejects a request without capacity before it parses the request, so the response is not a `Status`.
    if code == 429 {
        let text = "Too many requests, please try again later.\n";
        let mut response = answer(429, text);
        let seconds = HeaderValue::from(retry_after.unwrap_or(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
        return response;
    }
    #[rustfmt::skip]
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized"),
        403 => ("Forbidden", "forbidden"),
        404 => ("NotFound", "not found"),
        409 => ("Conflict", "the object has been modified"),
        413 => ("RequestEntityTooLarge", "request is too large"),
        422 => ("Invalid", "invalid"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "request did not complete within the allotted timeout"),
        _ => ("InternalError", "Internal error occurred"),
    };
    refused(&Refusal::new(code, reason, message).retry_after(retry_after))
}

fn json_response(status: StatusCode, body: String) -> Response<Body> {
    let mut response = answer(status.as_u16(), body);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
