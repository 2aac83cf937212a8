//! Bodies of requests.
//!
//! Invariants: an object that is sent to many runtimes is serialized once and its bytes are shared; bytes are dropped
//! after the object, and zeroized, since the object may be a Secret.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde_json::Value;
use zeroize::Zeroizing;

/// Cache of the bytes of objects that have other owners, too: a few dozen sources and manifests.
#[derive(Default)]
pub(super) struct Bodies(pub(super) Mutex<Vec<(Weak<Value>, Bytes)>>);

impl Bodies {
    /// Returns the bytes of an object. They are not cached if the caller is the only owner, since no other runtime
    /// gets the object.
    pub(super) fn serialize(&self, object: &Arc<Value>) -> Bytes {
        if Arc::strong_count(object) == 1 {
            return serialize(object);
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // While an entry exists, no other object can have the same address.
        kept.retain(|(known, _)| known.strong_count() > 0);
        let known = kept
            .iter()
            .find(|(known, _)| known.as_ptr() == Arc::as_ptr(object));
        if let Some((_, bytes)) = known {
            return bytes.clone();
        }
        let bytes = serialize(object);
        kept.push((Arc::downgrade(object), bytes.clone()));
        bytes
    }
}

/// Serializes a value as JSON. The bytes are zeroized when they are dropped.
pub(super) fn serialize(value: &Value) -> Bytes {
    let mut length = Length(0);
    let mut bytes = Zeroizing::new(Vec::new());
    // Neither writer fails. The capacity is reserved, since growing would leave copies in memory.
    let _ = serde_json::to_writer(&mut length, value);
    bytes.reserve_exact(length.0);
    let _ = serde_json::to_writer(&mut *bytes, value);
    Bytes::from_owner(bytes)
}

/// Writer that counts bytes.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
