//! AdmissionReview v1, read once and borrowed.
//!
//! A review that is no review is a [`ReviewError`] (HTTP 400: the API server gets no false answer); a proper review whose
//! Pod cannot be read keeps its uid, so that it can be allowed (own faults never deny a Pod).
//!
//! Invariant: what is made of a body has a bound in memory that does not depend on what the Pod consists of. `serde_json`
//! is asked only about bodies that are short and have few items, because it has no such bound, and its errors repeat
//! what they are about.

use partial_json::{Text, Unread};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::patch;
use super::pod::Pod;
use crate::review::{API_VERSION, KIND};
pub use crate::review::{JsonError, ReviewError};

/// The largest number of items in all wanted lists of a document together: containers, their variables, mounts and
/// devices, volumes and their sources, and pull Secrets, of the new and the stored Pod. Pods in use have some hundreds.
/// The API server can store a Pod with more, which is left unchanged.
pub const MAX_LIST_ITEMS: usize = 10_000;

/// The largest body, in bytes, about whose errors `serde_json` is asked.
const MAX_STRICT_BYTES: usize = 128 * 1024;

/// What the API server asks.
#[derive(Debug)]
pub struct Review<'a> {
    /// Identifies the question; the answer repeats it.
    pub uid: Text<'a>,
    /// What is asked about.
    pub subject: Subject<'a>,
    /// Whether nothing but the answer may come of it.
    pub dry_run: bool,
}

/// What a review is about.
#[derive(Debug)]
pub enum Subject<'a> {
    /// A Pod, or its `ephemeralcontainers`.
    Pod(Box<Request<'a>>),
    /// Another resource: the rules of a webhook configuration are wider than ours.
    Foreign,
    /// A Pod that does not look like one, or is too large.
    Unreadable(PodError),
}

/// Why a Pod is not read.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A field is missing, duplicate or of another type. The error repeats parts of the Pod; [`JsonError`] is for logs.
    #[error(transparent)]
    Shape(serde_json::Error),
    /// The Pod has too many list items, or it is of another shape and too large for a parse that tells the place.
    #[error("not a valid Pod with at most {MAX_LIST_ITEMS} list items")]
    TooLarge,
}

/// A question about a Pod.
#[derive(Debug)]
pub struct Request<'a> {
    /// The namespace; the object itself may lack it.
    pub namespace: Text<'a>,
    /// What is done to the Pod.
    pub operation: Operation,
    /// The Pod as it would be stored.
    pub object: Pod<'a>,
    /// The Pod as it is stored, on UPDATE.
    pub old: Option<Pod<'a>>,
    /// The size of the largest patch, in bytes. It grows with the review.
    pub(super) patch_limit: usize,
}

/// What is done to a Pod. As a string it is the label of metrics, such as `add_ephemeral`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// Ephemeral containers are added through the subresource.
    AddEphemeral,
    /// Anything that we do not register for.
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
struct Envelope<'a, T> {
    #[serde(default, borrow)]
    api_version: Text<'a>,
    #[serde(default, borrow)]
    kind: Text<'a>,
    request: Option<RawRequest<'a, T>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
struct RawRequest<'a, T> {
    #[serde(default, borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource: Option<Resource<'a>>,
    #[serde(borrow)]
    sub_resource: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(default, borrow)]
    operation: Text<'a>,
    dry_run: Option<bool>,
    object: Option<T>,
    old_object: Option<T>,
}

#[derive(Deserialize)]
struct Resource<'a> {
    #[serde(default, borrow)]
    group: Text<'a>,
    #[serde(default, borrow)]
    resource: Text<'a>,
}

/// Reads a review out of a request's body.
///
/// # Errors
/// [`ReviewError`] if there is no uid to answer to, or the body is something else.
pub fn parse(body: &[u8]) -> Result<Review<'_>, ReviewError> {
    let text = std::str::from_utf8(body).map_err(ReviewError::Encoding)?;
    match partial_json::from_str::<Envelope<'_, Pod<'_>>>(text, MAX_LIST_ITEMS) {
        Ok(envelope) => envelope.review(|request| request.into_subject(text)),
        Err(Unread) if can_be_parsed_strictly(text) => look_closely(text),
        Err(Unread) => partial_json::from_str::<Envelope<'_, IgnoredAny>>(text, MAX_LIST_ITEMS)
            .map_err(|Unread| ReviewError::NoReview)?
            .review(|request| request.without_pod(PodError::TooLarge)),
    }
}

/// The review that an API server sends when this Pod, given as JSON, is created in the namespace. It decides about Pods
/// that are stored already, or that exist in a manifest only.
#[must_use]
pub fn of_created_pod(namespace: &str, pod: &str) -> String {
    let namespace = serde_json::Value::from(namespace);
    format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{"uid":"created-pod","resource":{{"group":"","version":"v1","resource":"pods"}},"namespace":{namespace},"operation":"CREATE","dryRun":true,"object":{pod}}}}}"#
    )
}

/// Whether the text is short and cannot have more than [`MAX_LIST_ITEMS`] list items: each is behind a bracket or a
/// comma.
fn can_be_parsed_strictly(text: &str) -> bool {
    let is_in_front_of_item = |byte: &u8| matches!(byte, b'[' | b',');
    text.len() <= MAX_STRICT_BYTES
        && text.bytes().filter(is_in_front_of_item).count() <= MAX_LIST_ITEMS
}

/// The slower look, only for what the first could not read: what is wrong, and is it the review or just its Pod?
fn look_closely(text: &str) -> Result<Review<'_>, ReviewError> {
    match serde_json::from_str::<Envelope<'_, Pod<'_>>>(text) {
        Ok(envelope) => envelope.review(|request| request.into_subject(text)),
        Err(error) => serde_json::from_str::<Envelope<'_, &RawValue>>(text)
            .map_err(|error| ReviewError::Shape(error.into()))?
            .review(|request| request.without_pod(PodError::Shape(error))),
    }
}

impl<'a, T> Envelope<'a, T> {
    fn review(
        self,
        subject: impl FnOnce(RawRequest<'a, T>) -> Subject<'a>,
    ) -> Result<Review<'a>, ReviewError> {
        if &*self.kind != KIND || &*self.api_version != API_VERSION {
            return Err(ReviewError::of_kind(&self.kind, &self.api_version));
        }
        let request = self.request.ok_or(ReviewError::NoRequest)?;
        ReviewError::check_uid(&request.uid)?;
        Ok(Review {
            uid: request.uid.clone(),
            dry_run: request.dry_run.unwrap_or_default(),
            subject: subject(request),
        })
    }
}

impl<T> RawRequest<'_, T> {
    /// The subject of a request whose Pod, if it is about one, is not read.
    fn without_pod<'s>(&self, error: PodError) -> Subject<'s> {
        if self.is_about_pods() {
            Subject::Unreadable(error)
        } else {
            Subject::Foreign
        }
    }

    fn is_about_pods(&self) -> bool {
        self.resource
            .as_ref()
            .is_some_and(|it| it.group.is_empty() && &*it.resource == "pods")
    }

    fn operation(&self) -> Operation {
        match (&*self.operation, self.sub_resource.as_deref()) {
            ("CREATE", None | Some("")) => Operation::Create,
            ("UPDATE", None | Some("")) => Operation::Update,
            ("UPDATE", Some("ephemeralcontainers")) => Operation::AddEphemeral,
            _ => Operation::Other,
        }
    }
}

impl<'a> RawRequest<'a, Pod<'a>> {
    fn into_subject(self, review: &str) -> Subject<'a> {
        if !self.is_about_pods() {
            return Subject::Foreign;
        }
        Subject::Pod(Box::new(Request {
            operation: self.operation(),
            namespace: self.namespace.unwrap_or_default(),
            object: self.object.unwrap_or_default(),
            old: self.old_object,
            patch_limit: patch::limit(review.len()),
        }))
    }
}
