//! AdmissionReview v1, parsed once, with borrowed strings.
//!
//! A body that is not a review is a [`ReviewError`] (HTTP 400, so that the API server gets no wrong response). A
//! valid review whose Pod cannot be read keeps its UID, so that it can be allowed (errors of the webhook never deny a
//! Pod).
//!
//! Invariant: the memory for a parsed body has a bound that does not depend on the content of the Pod. `serde_json`
//! parses only short bodies with few items, because it has no such bound, and its errors repeat parts of the body.

use partial_json::{Text, Unread};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::patch;
use super::pod::Pod;
use crate::review::{API_VERSION, KIND};
pub use crate::review::{JsonError, ReviewError};

/// Maximum number of items in all parsed lists of a document together. These are containers, their variables, mounts
/// and devices, volumes and their sources, and pull Secrets, of the new and the stored Pod. Pods in use have some
/// hundreds. The API server can store a Pod with more items, which is left unchanged.
pub const MAX_LIST_ITEMS: usize = 10_000;

/// Maximum size of a body, in bytes, for which `serde_json` determines the error.
const MAX_STRICT_BYTES: usize = 128 * 1024;

/// The request of the API server.
#[derive(Debug)]
pub struct Review<'a> {
    /// Identifies the request. The response repeats it.
    pub uid: Text<'a>,
    /// The object of the review.
    pub subject: Subject<'a>,
    /// Whether the request is a dry run, which must not have side effects.
    pub dry_run: bool,
}

/// The object of a review.
#[derive(Debug)]
pub enum Subject<'a> {
    /// A Pod, or its `ephemeralcontainers`.
    Pod(Box<Request<'a>>),
    /// Another resource, because the rules of a webhook configuration are wider than the released rules.
    Foreign,
    /// An invalid Pod, or a Pod that is too large.
    Unreadable(PodError),
}

/// Reason why a Pod is not read.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A field is missing, duplicate or of another type. The error repeats text of the Pod; [`JsonError`] is for logs.
    #[error(transparent)]
    Shape(serde_json::Error),
    /// The Pod has too many list items, or is invalid and too large for a parse that determines the position of the error.
    #[error("not a valid Pod with at most {MAX_LIST_ITEMS} list items")]
    TooLarge,
}

/// A request about a Pod.
#[derive(Debug)]
pub struct Request<'a> {
    /// The namespace, which may be missing in the object.
    pub namespace: Text<'a>,
    /// The operation on the Pod.
    pub operation: Operation,
    /// The new Pod.
    pub object: Pod<'a>,
    /// The stored Pod, on UPDATE.
    pub old: Option<Pod<'a>>,
    /// Maximum size of the patch, in bytes. It grows with the review.
    pub(super) patch_limit: usize,
}

/// The operation on a Pod. As a string it is a label of metrics, such as `add_ephemeral`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// The Pod is created.
    Create,
    /// The Pod is updated.
    Update,
    /// Ephemeral containers are added through the subresource.
    AddEphemeral,
    /// An operation for which the webhook does not register.
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

/// Parses a review from the body of a request.
///
/// # Errors
/// [`ReviewError`] if the review has no UID for a response, or the body is not a review.
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

/// Returns the review that an API server sends when this Pod, given as JSON, is created in the namespace. It is used
/// for decisions about stored Pods, and about Pods of a manifest.
#[must_use]
pub fn of_created_pod(namespace: &str, pod: &str) -> String {
    let namespace = serde_json::Value::from(namespace);
    format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","request":{{"uid":"created-pod","resource":{{"group":"","version":"v1","resource":"pods"}},"namespace":{namespace},"operation":"CREATE","dryRun":true,"object":{pod}}}}}"#
    )
}

/// Returns whether the text is short and cannot have more than [`MAX_LIST_ITEMS`] list items. Each item follows a
/// bracket or a comma.
fn can_be_parsed_strictly(text: &str) -> bool {
    let is_in_front_of_item = |byte: &u8| matches!(byte, b'[' | b',');
    text.len() <= MAX_STRICT_BYTES
        && text.bytes().filter(is_in_front_of_item).count() <= MAX_LIST_ITEMS
}

/// Parses a body that the fast parser rejected. Determines the error, and whether the review or only its Pod is invalid.
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
    /// Returns the subject of a request without its Pod, if the request is about a Pod.
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
