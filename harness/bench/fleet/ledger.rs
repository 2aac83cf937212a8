//! What the fleet can say about a run: requests, writes, and when which object reached which content.
//!
//! Invariant: times are since the fleet's start, on one clock; [`Totals::now`] lets a client place its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use testkit::Place;

/// Requests of one runtime, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// TLS handshakes that were completed.
    pub handshakes: u64,
    /// Of these, those that resumed a session.
    pub resumed: u64,
    /// Everything that came, however it was answered.
    pub requests: u64,
    /// GET of one object.
    pub gets: u64,
    /// GET of a collection, watches included.
    pub lists: u64,
    /// Discovery, reviews.
    pub questions: u64,
    /// Server-side applies, accepted or not.
    pub applies: u64,
    /// Other requests to write.
    pub edits: u64,
    /// Writes that changed something.
    pub writes: u64,
    /// Writes while another identity was shown, or that mark the runtime as another one.
    pub foreign_writes: u64,
    /// Requests that a condition spoiled.
    pub spoiled: u64,
    /// Requests with wrong credentials.
    pub unauthorized: u64,
}

impl Counts {
    /// With those of another runtime.
    pub(super) fn add(&mut self, other: Self) {
        let Self {
            handshakes,
            resumed,
            requests,
            gets,
            lists,
            questions,
            applies,
            edits,
            writes,
            foreign_writes,
            spoiled,
            unauthorized,
        } = other;
        self.handshakes += handshakes;
        self.resumed += resumed;
        self.requests += requests;
        self.gets += gets;
        self.lists += lists;
        self.questions += questions;
        self.applies += applies;
        self.edits += edits;
        self.writes += writes;
        self.foreign_writes += foreign_writes;
        self.spoiled += spoiled;
        self.unauthorized += unauthorized;
    }
}

/// All runtimes at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Since the fleet's start.
    pub now: Duration,
    /// Sums.
    pub counts: Counts,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that are being answered.
    pub in_flight: u64,
    /// The most that ever were, since the counters were reset.
    pub most_in_flight: u64,
    /// The most applies of one object that changed nothing, since the counters were reset.
    pub most_idle_applies: u32,
}

/// One object on one runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The runtime's number.
    pub runtime: usize,
    /// A digest of what is neither metadata nor status; absent if the object is not there.
    pub content: Option<String>,
    /// When anything of it changed last; zero if it never was there.
    pub changed: Duration,
    /// Applies that changed something.
    pub changing_applies: u32,
    /// Applies that changed nothing.
    pub idle_applies: u32,
}

/// An object that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrival {
    /// Where.
    pub place: Place,
    /// With which content, as [`content_of`] has it.
    pub content: String,
    /// Changed after this moment of the fleet's clock.
    pub since: Duration,
}

/// The digest of an object's content, as [`Entry::content`] shows it.
#[must_use]
pub fn content_of(object: &Value) -> String {
    let mut content = object.as_object().cloned().unwrap_or_default();
    content.retain(|field, _| !["apiVersion", "kind", "metadata", "status"].contains(&&**field));
    super::hex(&super::digest(
        Value::Object(content).to_string().as_bytes(),
    ))
}
