//! Salted hashes of synchronized objects: equal hashes mean equal content.
//!
//! Hashes of credentials appear in annotations and statuses that many users can read. They are salted with the UID of
//! the Namespace `kube-system` of KCP, which is random and not published. Therefore guessed content cannot be
//! verified with the hashes. Every part is hashed with its length, so that different lists of parts have different
//! bytes.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The salt of all hashes of one KCP.
#[derive(Clone, PartialEq, Eq)]
pub struct Salt([u8; 32]);

/// The hash of an object's content. Displays as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

/// The text is not a valid [`struct@Hash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid hash (64 lower-case hexadecimal digits)")]
pub struct HashError;

impl Salt {
    /// Returns the salt of the KCP whose Namespace `kube-system` has this UID.
    #[must_use]
    pub fn new(kube_system_uid: &str) -> Self {
        Self(Hash::of_parts(["rt-bootstrapper/salt", kube_system_uid]).0)
    }

    /// Returns an ID of KCP that does not reveal its UID, for the ownership ConfigMap on runtimes.
    #[must_use]
    pub fn control_plane(&self) -> String {
        Hash::of_parts([&b"rt-bootstrapper/control-plane"[..], &self.0]).to_string()
    }

    /// Returns the hash of content of a kind, given as its parts.
    pub(super) fn hash<'a>(
        &'a self,
        kind: &'a str,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Hash {
        let first = [b"rt-bootstrapper/content", &self.0[..], kind.as_bytes()];
        Hash::of_parts(first.into_iter().chain(parts))
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Salt")
    }
}

impl Hash {
    /// The hash of an unknown revision.
    pub const UNKNOWN: Self = Self([0; 32]);

    /// Returns the hash of a list of parts, without the salt.
    pub(super) fn of_parts(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            feed(&mut hasher, part.as_ref());
        }
        Self(hasher.finalize().into())
    }

    /// Returns the hash of a public value, independent of the order of its keys.
    pub(super) fn of_value(value: &Value) -> Self {
        let mut hasher = Sha256::new();
        feed_value(&mut hasher, value);
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&hex::encode(self.0))
    }
}

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let mut bytes = [0; 32];
        let is_upper = text.bytes().any(|it| it.is_ascii_uppercase());
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) if !is_upper => Ok(Self(bytes)),
            _ => Err(HashError),
        }
    }
}

fn feed(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_be_bytes());
    hasher.update(part);
}

fn feed_value(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            hasher.update(b"{");
            hasher.update((entries.len() as u64).to_be_bytes());
            for (key, value) in entries {
                feed(hasher, key.as_bytes());
                feed_value(hasher, value);
            }
        }
        Value::Array(items) => {
            hasher.update(b"[");
            hasher.update((items.len() as u64).to_be_bytes());
            for item in items {
                feed_value(hasher, item);
            }
        }
        scalar => {
            hasher.update(b"=");
            feed(hasher, scalar.to_string().as_bytes());
        }
    }
}
