//! AdmissionReview v1, with borrowed strings and raw JSON objects.
//!
//! A null counts as absent, as in Go's decoder. Unknown fields are ignored. A duplicate field is an error: a parser
//! that uses the first value and a parser that uses the last value would have different results.

use partial_json::Text;
use serde::Deserialize;
use serde_json::value::RawValue;
use watcher_types::Gvk;

use super::object::Object;
use super::skip_reason::{Side, SkipReason};
pub use crate::review::ReviewError;
use crate::review::{API_VERSION, KIND};

/// A review for which a response is possible.
#[derive(Debug)]
pub(super) struct Review<'a> {
    pub(super) uid: Text<'a>,
    pub(super) api_version: Option<&'static str>,
    pub(super) kind: Option<&'static str>,
    pub(super) request: Request<'a>,
}

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

/// The request of the API server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<GroupVersionKind<'a>>,
    #[serde(borrow)]
    resource: Option<GroupVersionResource<'a>>,
    #[serde(borrow)]
    sub_resource: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    dry_run: Option<bool>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow)]
    group: Option<Text<'a>>,
    #[serde(borrow)]
    version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
}

/// The resource that the rule matched (`requestResource` may have another version).
#[derive(Debug, Deserialize)]
struct GroupVersionResource<'a> {
    #[serde(borrow)]
    group: Option<Text<'a>>,
    #[serde(borrow)]
    version: Option<Text<'a>>,
    #[serde(borrow)]
    resource: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

impl<'a> Review<'a> {
    /// Parses a review from the body of a request.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let text = std::str::from_utf8(body).map_err(ReviewError::Encoding)?;
        let envelope: Envelope<'a> =
            serde_json::from_str(text).map_err(|error| ReviewError::Shape(error.into()))?;
        let api_version = envelope.api_version.as_deref().unwrap_or_default();
        let kind = envelope.kind.as_deref().unwrap_or_default();
        if !matches!(kind, "" | KIND) || !matches!(api_version, "" | API_VERSION) {
            return Err(ReviewError::of_kind(kind, api_version));
        }
        let (api_version, kind) = (
            (!api_version.is_empty()).then_some(API_VERSION),
            (!kind.is_empty()).then_some(KIND),
        );
        let mut request = envelope.request.ok_or(ReviewError::NoRequest)?;
        let uid = request.uid.take().unwrap_or_default();
        ReviewError::check_uid(&uid)?;
        Ok(Self {
            uid,
            api_version,
            kind,
            request,
        })
    }
}

impl<'a> Request<'a> {
    /// Returns the operation, if it changes an object.
    pub(super) fn operation(&self) -> Result<Operation, SkipReason> {
        match self.operation.as_deref().unwrap_or_default() {
            "CREATE" => Ok(Operation::Create),
            "UPDATE" => Ok(Operation::Update),
            "DELETE" => Ok(Operation::Delete),
            "CONNECT" => Err(SkipReason::ConnectNotSupported { gvk: self.gvk() }),
            _ => Err(SkipReason::UnknownOperation),
        }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }

    /// Returns one of the two objects, parsed one level deep.
    pub(super) fn object(&self, side: Side) -> Result<Object<'a>, SkipReason> {
        let raw = match side {
            Side::Object => self.object,
            Side::OldObject => self.old_object,
        };
        let raw = raw.ok_or(SkipReason::ObjectMissing { side })?;
        Object::open(raw.get()).ok_or(SkipReason::InvalidObject { side, part: "" })
    }

    /// Returns the subresource; empty for the object itself.
    pub(super) fn subresource(&self) -> &str {
        self.sub_resource.as_deref().unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace of the object. For a Namespace the field contains its own name, although a Namespace is
    /// in no namespace.
    pub(super) fn namespace(&self) -> &str {
        match self.resource() {
            ("", _, "namespaces") => "",
            _ => self.namespace.as_deref().unwrap_or_default(),
        }
    }

    /// Returns group, version and plural name of the resource; empty if the request has none.
    pub(super) fn resource(&self) -> (&str, &str, &str) {
        self.resource.as_ref().map_or(("", "", ""), |it| {
            (
                it.group.as_deref().unwrap_or_default(),
                it.version.as_deref().unwrap_or_default(),
                it.resource.as_deref().unwrap_or_default(),
            )
        })
    }

    /// Returns the type in the request; empty if the request has none.
    pub(super) fn gvk(&self) -> Gvk {
        self.kind.as_ref().map_or_else(Gvk::default, |it| Gvk {
            group: it.group.as_deref().unwrap_or_default().to_owned(),
            version: it.version.as_deref().unwrap_or_default().to_owned(),
            kind: it.kind.as_deref().unwrap_or_default().to_owned(),
        })
    }
}
