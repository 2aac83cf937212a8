//! Decisions about changes: from an AdmissionReview to a WatchEvent, or to the reason why no event is sent.
//!
//! The watcher allows every valid review; [`decide`] returns whether an event is sent to KCP. Invariants: any bytes
//! have a result and never cause a panic. Two values that cannot be compared exactly count as different, because an
//! additional event costs one reconcile, and a missing event is a change that is never reported. Deliberately absent:
//! HTTP, the spool, delivery, metrics (all in `watcher`), and the selection of objects by label, which the
//! `objectSelector` of the API server does.

mod aspect;
mod equality;
mod identity;
mod number;
mod object;
mod registration;
mod review;
mod skip_reason;
mod watcher;

#[cfg(test)]
mod tests;

use watcher_types::WatchEvent;

pub use registration::{
    CONFIGURATION, Endpoint, Registration, RegistrationError, configuration, entry_name,
};
pub use review::ReviewError;
pub use skip_reason::{Side, SkipReason};
pub use watcher::{Field, ResourceRule, Watcher};

use self::aspect::Aspect;
use self::object::Object;
use self::review::{Operation, Request, Review};

/// The result of a review. The review is allowed in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewDecision {
    /// Identifies the request. The response repeats it.
    pub uid: String,
    /// The `apiVersion` of the review. The response repeats it; `None` if the review has none.
    pub api_version: Option<&'static str>,
    /// The `kind` of the review; see [`api_version`](Self::api_version).
    pub kind: Option<&'static str>,
    /// Whether an event is sent.
    pub outcome: Outcome,
}

/// Whether an event is sent for a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This event is sent.
    Send(WatchEvent),
    /// No event is sent, for this reason.
    Skip(SkipReason),
}

/// Decides about the review in `body`.
///
/// | operation | object | sent |
/// |---|---|---|
/// | CREATE | `object` | always |
/// | DELETE | `oldObject` | always |
/// | UPDATE | `object` | if the fields that the Watcher selects differ |
/// | CONNECT and others | – | never |
///
/// On UPDATE the subresource determines the compared fields. *None*: the [`Field`] of the Watcher. `status`, with any
/// Watcher: only `status`. *Any other*: all fields except the metadata that the API server manages, as for a kind
/// without `spec`.
///
/// # Errors
/// [`ReviewError`] if no response is possible: the body is not an AdmissionReview v1, or contains no request or no
/// UID. A valid review whose object is missing or unreadable is a [`SkipReason`].
pub fn decide(watcher: &Watcher, body: &[u8]) -> Result<ReviewDecision, ReviewError> {
    let review = Review::parse(body)?;
    Ok(ReviewDecision {
        uid: (*review.uid).to_owned(),
        api_version: review.api_version,
        kind: review.kind,
        outcome: match event(watcher, &review.request) {
            Ok(event) => Outcome::Send(event),
            Err(reason) => Outcome::Skip(reason),
        },
    })
}

fn event(watcher: &Watcher, request: &Request<'_>) -> Result<WatchEvent, SkipReason> {
    let operation = request.operation()?;
    if request.is_dry_run() {
        return Err(SkipReason::DryRun);
    }
    let side = match operation {
        Operation::Delete => Side::OldObject,
        Operation::Create | Operation::Update => Side::Object,
    };
    let object = request.object(side)?;
    let event = WatchEvent {
        watched: identity::watched(request, side, &object)?,
        watched_gvk: identity::gvk(request, side, &object)?,
    };
    identity::bounded(&event)?;
    watcher.admits(request, &event.watched)?;
    if operation == Operation::Update && !is_changed(watcher, request, &object) {
        return Err(SkipReason::NoChange {
            watched: event.watched,
        });
    }
    Ok(event)
}

/// Returns whether an object changed. An object whose previous state is missing or unreadable counts as changed.
fn is_changed(watcher: &Watcher, request: &Request<'_>, object: &Object<'_>) -> bool {
    let aspect = Aspect::of(watcher.field, request.subresource());
    match request.object(Side::OldObject) {
        Ok(old) => aspect.differs(object, &old),
        Err(_) => true,
    }
}
