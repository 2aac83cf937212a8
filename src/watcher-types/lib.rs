#![doc = include_str!("README.md")]
//!
//! # Internals
//! Events have the format of <https://github.com/kyma-project/runtime-watcher>; heartbeats are an extension of this project.
//! Invariant: the size of parsed data is limited, and no error repeats content of a request. Parsing is strict about types.
//! It ignores unknown keys (for example `owner`, which listeners up to v1.3 required). A missing key of an event has an empty
//! value, as in the public protocol.
//!
//! [`WatchEvent`], [`NamespacedName`] and [`Gvk`] are not `#[non_exhaustive]`: senders create them field by field, so that the
//! compiler finds a field that a sender does not set, and their keys are those of the public protocol, which no release of
//! this crate extends. [`Heartbeat`] gets further keys, and is created by [`Heartbeat::new`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Maximum size of the body of an event or a heartbeat, in bytes. The public listener has the same limit.
pub const BODY_BYTES: usize = 16 * 1024;

/// Media type of events and heartbeats.
pub const CONTENT_TYPE: &str = "application/json";

/// Header of an event with the [`BootId`] of the watcher process. Public listeners ignore it.
pub const BOOT_ID_HEADER: &str = "kyma-watcher-boot-id";

/// Header of an event with its sequence number in that process, from 1, without gaps. Public listeners ignore it.
pub const SEQUENCE_HEADER: &str = "kyma-watcher-sequence";

/// Time between two heartbeats of one watcher.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum length of a [`BootId`], in bytes.
const BOOT_ID_BYTES: usize = 64;

/// Maximum length of the `version` of a [`Heartbeat`], in bytes.
const VERSION_BYTES: usize = 64;

/// Length of a SHA-256 hash in hexadecimal digits.
const SHA256_DIGITS: usize = 64;

/// Maximum length of a [`PathSegment`], in bytes.
const SEGMENT_BYTES: usize = 128;

/// An object on the runtime has changed. The event contains only the identity of the object, so the receiver must read the
/// object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchEvent {
    /// The changed object.
    #[serde(deserialize_with = "object")]
    pub watched: NamespacedName,
    /// Type of the object, from its `apiVersion` and `kind`.
    #[serde(
        rename = "watchedGvk",
        alias = "watchedgvk",
        deserialize_with = "object"
    )]
    pub watched_gvk: Gvk,
}

/// Identity of an object of a type. The JSON keys are capitalized (an untagged Go struct).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespacedName {
    /// Namespace of the object. Empty for a cluster-scoped object.
    #[serde(rename = "Namespace", alias = "namespace")]
    pub namespace: String,
    /// Name of the object.
    #[serde(rename = "Name", alias = "name")]
    pub name: String,
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Gvk {
    /// API group. Empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Kind, such as `ConfigMap`.
    pub kind: String,
}

/// Liveness report of one watcher, which is sent whether or not events occur.
///
/// Receivers ignore unknown keys. Keys after `version` are absent if the watcher is of a release that does not send them. A
/// watcher omits keys whose value is 0, `false` or unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Heartbeat {
    /// Boot ID of the watcher process.
    pub boot_id: BootId,
    /// Sequence number of the last event that was *numbered* since this start, delivered or not; 0 means none yet.
    pub sequence: u64,
    /// Number of undelivered events, including events in progress. All events up to `sequence - spool_depth` have been
    /// delivered. Follow-up events are counted separately, in [`follow_up_depth`](Self::follow_up_depth).
    pub spool_depth: u64,
    /// Age of the oldest undelivered event, in whole seconds; 0 if there is none.
    pub oldest_age_seconds: u64,
    /// Release of the watcher, at most 64 bytes.
    pub version: String,
    /// Whether changes may have been missed, for example because the outbox was full, so that the receiver should list all
    /// watched objects on the runtime. Absent if `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resync_needed: bool,
    /// Number of delivered events whose follow-up event is pending. A follow-up event repeats an event some seconds later,
    /// because the admission of a change precedes its storage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub follow_up_depth: u64,
    /// Whether this is the last heartbeat of this process, sent after its last deliveries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// Number of admission reviews since this start, of all managers, including dry runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews_seen: Option<u64>,
    /// Time since the last review, in whole seconds; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_review_age_seconds: Option<u64>,
    /// Number of reviews in [`reviews_seen`](Self::reviews_seen) for the manager that receives this heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_reviews_seen: Option<u64>,
    /// Time since the last review for this manager, in whole seconds; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_last_review_age_seconds: Option<u64>,
    /// Number of TLS handshakes with the watcher that the client ended with an alert about the certificate, since this
    /// start. It increases if an API server does not trust the certificate of the watcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_failures: Option<u64>,
    /// End of the validity of the certificate that the watcher presents, in seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_not_after: Option<i64>,
    /// SHA-256 of the CA bundle file that the watcher trusts, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_sha256: Option<String>,
    /// Changes whenever the webhook entries of the manager that gets this heartbeat were written, other than by a new CA: objects may
    /// have changed before without a review. At most 64 letters, digits, `-`, `_` or `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_entry_hash: Option<String>,
    /// Time since this process first read [`webhook_entry_hash`](Self::webhook_entry_hash), in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_entry_age_seconds: Option<u64>,
    /// Time since this process was first ready, so that the API server sends reviews to it, in milliseconds; 0 if it was never
    /// ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_milliseconds: Option<u64>,
    /// Time since the shutdown of this process began, from which on it is not ready, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminating_milliseconds: Option<u64>,
}

/// Identifies one process of a watcher; each start has a new value. 1 to 64 letters, digits, `-`, `_` or `.`, so that it is
/// a valid header value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct BootId(String);

/// One segment of a URL path that needs no escaping: the contract version, or the name of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathSegment(Cow<'static, str>);

/// Reason why a received value is rejected. The messages contain no part of the input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The body has more than [`BODY_BYTES`].
    #[error("body exceeds {BODY_BYTES} bytes")]
    TooLarge,
    /// The body is not JSON, or a value has a wrong type. The source may quote content of the request; do not return it to
    /// the client.
    #[error("body is not valid JSON of an event")]
    Json(#[source] serde_json::Error),
    /// The `version` of a heartbeat exceeds its limit.
    #[error("version exceeds {VERSION_BYTES} bytes")]
    Version,
    /// The `bundleSha256` of a heartbeat is not a SHA-256 hash.
    #[error("bundleSha256: expected {SHA256_DIGITS} hexadecimal digits")]
    BundleHash,
    /// A heartbeat's `webhookEntryHash` is none.
    #[error("webhookEntryHash: expected 1 to {SHA256_DIGITS} letters, digits, '-', '_' or '.'")]
    EntryHash,
    /// See [`BootId`].
    #[error("not a valid boot ID: expected 1 to {BOOT_ID_BYTES} letters, digits, '-', '_' or '.'")]
    BootId,
    /// The text is not a valid [`PathSegment`].
    #[error(
        "not a valid path segment: expected 1 to {SEGMENT_BYTES} letters, digits, '-', '_' or '.', and not dots alone"
    )]
    PathSegment,
}

impl WatchEvent {
    /// Parses the body of a POST to [`event_path`].
    ///
    /// # Errors
    /// The body is too large, is not JSON, contains a wrong type or a duplicate key, or has bytes after the document.
    pub fn parse(body: &[u8]) -> Result<Self, EventError> {
        parse(body)
    }
}

impl Heartbeat {
    /// Creates a heartbeat of a watcher without events.
    #[must_use]
    pub fn new(boot_id: BootId, version: String) -> Self {
        Self {
            boot_id,
            sequence: 0,
            spool_depth: 0,
            oldest_age_seconds: 0,
            version,
            resync_needed: false,
            follow_up_depth: 0,
            ending: false,
            reviews_seen: None,
            last_review_age_seconds: None,
            manager_reviews_seen: None,
            manager_last_review_age_seconds: None,
            handshake_failures: None,
            certificate_not_after: None,
            bundle_sha256: None,
            webhook_entry_hash: None,
            webhook_entry_age_seconds: None,
            ready_milliseconds: None,
            terminating_milliseconds: None,
        }
    }

    /// Parses the body of a POST to [`heartbeat_path`].
    ///
    /// # Errors
    /// The errors of [`WatchEvent::parse`]; also if a required key is missing, the boot ID or the hash is invalid, or the
    /// version is too long.
    pub fn parse(body: &[u8]) -> Result<Self, EventError> {
        let heartbeat: Self = parse(body)?;
        if heartbeat.version.len() > VERSION_BYTES {
            return Err(EventError::Version);
        }
        if let Some(hash) = &heartbeat.bundle_sha256
            && !(hash.len() == SHA256_DIGITS && hash.bytes().all(|it| it.is_ascii_hexdigit()))
        {
            return Err(EventError::BundleHash);
        }
        let entry = heartbeat.webhook_entry_hash.as_deref();
        if entry.is_some_and(|it| !is_plain(it, SHA256_DIGITS)) {
            return Err(EventError::EntryHash);
        }
        Ok(heartbeat)
    }
}

impl BootId {
    /// Parses a boot ID.
    ///
    /// # Errors
    /// [`EventError::BootId`].
    pub fn parse(text: &str) -> Result<Self, EventError> {
        if is_plain(text, BOOT_ID_BYTES) {
            Ok(Self(text.to_owned()))
        } else {
            Err(EventError::BootId)
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Cow<'_, str>> for BootId {
    type Error = EventError;

    fn try_from(text: Cow<'_, str>) -> Result<Self, EventError> {
        Self::parse(&text)
    }
}

impl From<BootId> for String {
    fn from(boot_id: BootId) -> Self {
        boot_id.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl PathSegment {
    /// The current contract version.
    pub const V2: Self = Self(Cow::Borrowed("v2"));

    /// Parses a path segment. The public watcher accepts any text, including slashes.
    ///
    /// # Errors
    /// [`EventError::PathSegment`].
    pub fn parse(text: &str) -> Result<Self, EventError> {
        if is_plain(text, SEGMENT_BYTES) && text.bytes().any(|byte| byte != b'.') {
            Ok(Self(Cow::Owned(text.to_owned())))
        } else {
            Err(EventError::PathSegment)
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathSegment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the path to which events for `manager` are posted: `/v2/<manager>/event`.
#[must_use]
pub fn event_path(contract: &PathSegment, manager: &PathSegment) -> String {
    format!("/{contract}/{manager}/event")
}

/// Returns the path to which heartbeats for `manager` are posted: `/v2/<manager>/event/heartbeat`, on the same route as its
/// events.
#[must_use]
pub fn heartbeat_path(contract: &PathSegment, manager: &PathSegment) -> String {
    format!("{}/heartbeat", event_path(contract, manager))
}

fn parse<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, EventError> {
    if body.len() > BODY_BYTES {
        return Err(EventError::TooLarge);
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = object(&mut json).map_err(EventError::Json)?;
    json.end().map_err(EventError::Json)?;
    Ok(parsed)
}

/// Deserializes a JSON object. The derived implementation of serde would also accept an array of the values.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Object(PhantomData))
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_plain(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
