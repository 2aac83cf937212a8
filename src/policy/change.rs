//! Admission review → WatchEvent, or the reason why none is sent.
//!
//! The watcher lets every proper review pass; [`decide`] says whether an event of it is sent to KCP. Invariants: whatever the bytes
//! are, there is an answer and never a panic; and where two values cannot be compared exactly, they count as different,
//! because an event too many costs one reconcile, and an event too few is a change that is never reported. Deliberately absent:
//! HTTP, the spool, delivery, metrics (all in `watcher`), and which objects are watched by label: that is the API
//! server's `objectSelector`.

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

/// What becomes of a review. It is allowed in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Identifies the question; the answer repeats it.
    pub uid: String,
    /// The review's `apiVersion`; the answer repeats it and has none if it had none.
    pub api_version: Option<&'static str>,
    /// The review's `kind`, as [`api_version`](Self::api_version).
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

/// Decides on the review in `body`.
///
/// | operation | object | sent |
/// |---|---|---|
/// | CREATE | `object` | always |
/// | DELETE | `oldObject` | always |
/// | UPDATE | `object` | if what the Watcher looks at differs |
/// | CONNECT and others | – | never |
///
/// On UPDATE the subresource says what is looked at. *None*: the Watcher's [`Field`]. `status`, in any case: `status`
/// alone. *Any other*: everything but the metadata that the API server keeps for itself, as for a kind without `spec`.
///
/// # Errors
/// [`ReviewError`] if there is nothing to answer to: no AdmissionReview v1, no request, no uid. A proper review whose
/// object is missing or unreadable is a [`SkipReason`].
pub fn decide(watcher: &Watcher, body: &[u8]) -> Result<Verdict, ReviewError> {
    let review = Review::parse(body)?;
    Ok(Verdict {
        uid: review.uid.into_owned(),
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

/// An object whose former state is missing or unreadable is taken for changed.
fn is_changed(watcher: &Watcher, request: &Request<'_>, object: &Object<'_>) -> bool {
    let aspect = Aspect::of(watcher.field, request.subresource());
    match request.object(Side::OldObject) {
        Ok(old) => aspect.differs(object, &old),
        Err(_) => true,
    }
}
