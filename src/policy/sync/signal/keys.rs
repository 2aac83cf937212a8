//! The force-reconcile key as label and annotation of a Runtime.

use super::{FORCE_RECONCILE_KEY, Value, annotation, json};

/// A location of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The labels.
    Label,
    /// The annotations, as in the public KIM.
    Annotation,
}

/// The locations of the key in a signal, and the location from which KIM removes the key to acknowledge the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKeys {
    /// One location.
    Only(Place),
    /// Both locations. KIM does not remove the key that it does not read.
    Both {
        /// The location from which KIM removes the key. `None`: the first location from which the key is removed.
        obeyed: Option<Place>,
    },
}

impl Default for SignalKeys {
    fn default() -> Self {
        Self::Both { obeyed: None }
    }
}

/// The locations in which a Runtime has the key with the value `"true"`; another value is not a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedKeys {
    /// Whether the labels contain the key.
    pub label: bool,
    /// Whether the annotations contain the key.
    pub annotation: bool,
}

/// The state of a signal on a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// No key.
    Absent,
    /// A key that is not a signal by itself, because KIM removed the other key.
    Partial,
    /// A signal that KIM has not acknowledged.
    Complete,
}

impl SignalKeys {
    fn has(self, place: Place) -> bool {
        match self {
            Self::Only(only) => only == place,
            Self::Both { .. } => true,
        }
    }

    /// Returns the state of a signal with these keys.
    #[must_use]
    pub fn state(self, keys: ObservedKeys) -> KeyState {
        let ObservedKeys { label, annotation } = keys;
        let (any, complete) = match self {
            Self::Only(Place::Label) => (label, label),
            Self::Only(Place::Annotation) => (annotation, annotation),
            Self::Both { obeyed: None } => (label || annotation, label && annotation),
            Self::Both {
                obeyed: Some(Place::Label),
            } => (label || annotation, label),
            Self::Both {
                obeyed: Some(Place::Annotation),
            } => (label || annotation, annotation),
        };
        match (any, complete) {
            (_, true) => KeyState::Complete,
            (true, false) => KeyState::Partial,
            (false, false) => KeyState::Absent,
        }
    }

    /// Returns whether it is unknown which of the two keys KIM obeys.
    pub(super) fn obeyed_key_is_unknown(self) -> bool {
        self == Self::Both { obeyed: None }
    }

    /// Returns the merge patch that signals an orphaned Runtime. It has no revision, because only the controller
    /// `signal` has the current revision. The Runtime then counts as a new Runtime.
    #[must_use]
    pub fn set(self) -> Value {
        self.signal(None)
    }

    /// Returns the merge patch that signals a Runtime with a revision.
    pub(super) fn signal(self, revision: Option<&str>) -> Value {
        let mut patch = annotation(revision);
        self.put(&mut patch, |_| true, &json!("true"));
        patch
    }

    /// Returns the merge patch that removes the keys that a Runtime has.
    pub(super) fn remove(self, keys: ObservedKeys) -> Value {
        let mut patch = json!({ "metadata": {} });
        let is_there = |place| match place {
            Place::Label => keys.label,
            Place::Annotation => keys.annotation,
        };
        self.put(&mut patch, is_there, &Value::Null);
        patch
    }

    fn put(self, patch: &mut Value, wanted: impl Fn(Place) -> bool, value: &Value) {
        let places = [(Place::Label, "labels"), (Place::Annotation, "annotations")];
        for (place, map) in places {
            if self.has(place) && wanted(place) {
                patch["metadata"][map][FORCE_RECONCILE_KEY] = value.clone();
            }
        }
    }
}
