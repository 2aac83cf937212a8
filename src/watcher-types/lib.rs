#![doc = include_str!("README.md")]
//!
//! # Inside
//! Events are those of <https://github.com/kyma-project/runtime-watcher>; heartbeats are ours. Invariant: what is parsed
//! is bounded in size, and no error repeats what was sent. Parsing is strict about types, forgiving about unknown keys (an
//! `owner`, which listeners up to v1.3 wanted, is one of them) and about absent ones, which are empty as in the
//! public protocol.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Largest body of an event or a heartbeat, in bytes; the public listener has the same bound.
pub const BODY_BYTES: usize = 16 * 1024;

/// Media type of events and heartbeats.
pub const CONTENT_TYPE: &str = "application/json";

/// Header of an event: which life of the watcher sent it, a [`BootId`]. Public listeners ignore it.
pub const BOOT_ID_HEADER: &str = "kyma-watcher-boot-id";

/// Header of an event: its number within that life, from 1, without gaps. Public listeners ignore it.
pub const SEQUENCE_HEADER: &str = "kyma-watcher-sequence";

/// Time between two heartbeats of one watcher.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_mins(1);

/// Longest [`BootId`], in bytes.
const BOOT_ID_BYTES: usize = 64;

/// Longest `version` of a [`Heartbeat`], in bytes.
const VERSION_BYTES: usize = 64;

/// Length of a SHA-256 hash in hexadecimal digits.
const SHA256_DIGITS: usize = 64;

/// Longest [`PathSegment`], in bytes.
const SEGMENT_BYTES: usize = 128;

/// An object on the runtime has changed; a hint to look at it, not its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchEvent {
    /// The object.
    #[serde(deserialize_with = "object")]
    pub watched: NamespacedName,
    /// Its type, from the object's own `apiVersion` and `kind`.
    #[serde(
        rename = "watchedGvk",
        alias = "watchedgvk",
        deserialize_with = "object"
    )]
    pub watched_gvk: Gvk,
}

/// Which object of a type. On the wire the keys are capitalised (an untagged Go struct).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespacedName {
    /// Empty for a cluster-scoped object.
    #[serde(rename = "Namespace", alias = "namespace")]
    pub namespace: String,
    /// The object's name.
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
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Such as `ConfigMap`.
    pub kind: String,
}

/// A sign of life of one watcher, sent whether or not anything happens.
///
/// Receivers ignore keys that they do not know. Keys after `version` are absent where the watcher is of a release that
/// does not send them, and a watcher omits those that are 0, `false` or unknown to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Heartbeat {
    /// Which process start of the watcher this is.
    pub boot_id: BootId,
    /// The number of the last event that was *numbered* since this start, delivered or not; 0: none yet.
    pub sequence: u64,
    /// Events that are not delivered yet, those in flight included, so that nothing of `sequence - spool_depth` and
    /// below is still to come. Follow-up events are counted apart, in [`follow_up_depth`](Self::follow_up_depth).
    pub spool_depth: u64,
    /// How long the oldest of them has waited, in whole seconds; 0 when none does.
    pub oldest_age_seconds: u64,
    /// The watcher's release, at most 64 bytes.
    pub version: String,
    /// Whether changes were dropped because the outbox was full, so that the receiver should look at all it watches on the runtime.
    /// Absent while it is not so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resync_needed: bool,
    /// Delivered events whose follow-up event is still to be sent. A follow-up repeats an event some seconds later,
    /// because the admission of a change precedes its storage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub follow_up_depth: u64,
    /// Whether this is the last heartbeat of this start, sent after the watcher has delivered what it could.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ending: bool,
    /// Admission reviews since this start, of all managers, dry runs included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviews_seen: Option<u64>,
    /// Time since the last of them, in whole seconds; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_review_age_seconds: Option<u64>,
    /// Those of [`reviews_seen`](Self::reviews_seen) that were for the manager that gets this heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_reviews_seen: Option<u64>,
    /// Time since the last of these, in whole seconds; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_last_review_age_seconds: Option<u64>,
    /// TLS handshakes with the watcher that the client ended with an alert about the certificate, since this start. They grow
    /// where an API server does not trust the watcher's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshake_failures: Option<u64>,
    /// When the certificate that the watcher presents expires, in seconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_not_after: Option<i64>,
    /// SHA-256 of the CA bundle file that the watcher trusts, in lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_sha256: Option<String>,
    /// Changes whenever the webhook entries of the manager that gets this heartbeat were written, other than by a new CA: objects may
    /// have changed before without a review. At most 64 letters, digits, `-`, `_` or `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_entry_hash: Option<String>,
}

/// One life of a watcher: a new one with each start. 1 to 64 letters, digits, `-`, `_` or `.`, so that it fits a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct BootId(String);

/// One segment of a URL's path that needs no escaping: the contract version, or the name of a manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathSegment(Cow<'static, str>);

/// Why something on the wire is refused. The texts name no part of the input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// More than [`BODY_BYTES`].
    #[error("body exceeds {BODY_BYTES} bytes")]
    TooLarge,
    /// Not JSON, or a value of another type than agreed. The source may quote the sender; do not send it back.
    #[error("body is not valid JSON of an event")]
    Json(#[source] serde_json::Error),
    /// A heartbeat's `version` is over its bound.
    #[error("version exceeds {VERSION_BYTES} bytes")]
    Version,
    /// A heartbeat's `bundleSha256` is none.
    #[error("bundleSha256: expected {SHA256_DIGITS} hexadecimal digits")]
    BundleHash,
    /// A heartbeat's `webhookEntryHash` is none.
    #[error("webhookEntryHash: expected 1 to {SHA256_DIGITS} letters, digits, '-', '_' or '.'")]
    EntryHash,
    /// See [`BootId`].
    #[error("not a valid boot ID: expected 1 to {BOOT_ID_BYTES} letters, digits, '-', '_' or '.'")]
    BootId,
    /// See [`PathSegment`].
    #[error(
        "not a valid path segment: expected 1 to {SEGMENT_BYTES} letters, digits, '-', '_' or '.', and not dots alone"
    )]
    PathSegment,
}

impl WatchEvent {
    /// Reads the body of a POST to [`event_path`].
    ///
    /// # Errors
    /// Too large, not JSON, a wrong type, a key twice, or bytes behind the document.
    pub fn parse(body: &[u8]) -> Result<Self, EventError> {
        parse(body)
    }
}

impl Heartbeat {
    /// A heartbeat of a watcher that has nothing to tell yet.
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
        }
    }

    /// Reads the body of a POST to [`heartbeat_path`].
    ///
    /// # Errors
    /// As [`WatchEvent::parse`]; also a missing required key, a bad boot id, a version over its bound, or a hash that is
    /// none.
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
    /// Takes `text` as a boot id.
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

    /// The text.
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
    /// The contract of today.
    pub const V2: Self = Self(Cow::Borrowed("v2"));

    /// Takes `text` as a segment. The public watcher pastes anything in here, slashes included.
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

    /// The text.
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

/// Where events for `manager` are posted: `/v2/<manager>/event`.
#[must_use]
pub fn event_path(contract: &PathSegment, manager: &PathSegment) -> String {
    format!("/{contract}/{manager}/event")
}

/// Where heartbeats for `manager` are posted: `/v2/<manager>/event/heartbeat`, on the route of its events.
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

/// A JSON object. What serde derives would take an array of the values, too.
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
