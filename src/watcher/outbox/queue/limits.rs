//! Limits of the queue, and what is used of them.

/// Managers that a client may have invented share the capacity divided by this number.
pub(in crate::outbox) const UNCONFIRMED_PART: usize = 4;

/// Bytes of an object in addition to its key: its slot, its entries in index and orders, and the overhead of the allocator.
pub(super) const SLOT_BYTES: usize = 240;

/// Limits of the queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::outbox) struct Limits {
    pub(in crate::outbox) keys: usize,
    /// Maximum memory in bytes, as [`Usage::memory`] counts it.
    pub(in crate::outbox) memory: usize,
}

impl Limits {
    pub(in crate::outbox) const WATCHER: Self = Self {
        keys: 100_000,
        memory: 16 << 20,
    };

    /// Returns the limits of all managers together that a client may have invented. At least one key.
    pub(in crate::outbox) fn of_unconfirmed(self) -> Self {
        Self {
            keys: self.keys.div_ceil(UNCONFIRMED_PART),
            memory: self.memory / UNCONFIRMED_PART,
        }
    }

    pub(in crate::outbox) fn admit(self, used: Usage) -> bool {
        used.keys <= self.keys && used.memory() <= self.memory
    }
}

/// Objects in the queue: all objects, or those of some managers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::outbox) struct Usage {
    pub(in crate::outbox) keys: usize,
    /// Total size of the keys in bytes.
    pub(in crate::outbox) key_bytes: usize,
}

impl Usage {
    pub(super) fn add(&mut self, key_bytes: usize) {
        *self = self.with(key_bytes);
    }

    pub(super) fn remove(&mut self, key_bytes: usize) {
        self.keys -= 1;
        self.key_bytes -= key_bytes;
    }

    /// Returns the usage after the addition of a key of this size.
    pub(in crate::outbox) fn with(self, key_bytes: usize) -> Self {
        Self {
            keys: self.keys + 1,
            key_bytes: self.key_bytes + key_bytes,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            key_bytes: self.key_bytes + other.key_bytes,
        }
    }

    /// Returns the memory in bytes, as an upper estimate.
    pub(in crate::outbox) fn memory(self) -> usize {
        self.key_bytes + self.keys * SLOT_BYTES
    }
}
