//! The force-reconcile key as label and annotation of a Runtime.

use super::{FORCE_RECONCILE_KEY, Value, annotation, json};

/// One of the two places of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Among the labels.
    Label,
    /// Among the annotations, as in the public KIM.
    Annotation,
}

/// Where the key is set, and which one KIM removes to acknowledge a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalKeys {
    /// In one place.
    Only(Place),
    /// In both places. KIM leaves the one that it does not read.
    Both {
        /// The one that KIM removes; `None`: the one that is removed first.
        obeyed: Option<Place>,
    },
}

impl Default for SignalKeys {
    fn default() -> Self {
        Self::Both { obeyed: None }
    }
}

/// The places in which a Runtime has the key with the value `"true"`; another value is no signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedKeys {
    /// Among the labels.
    pub label: bool,
    /// Among the annotations.
    pub annotation: bool,
}

/// How much of a signal is on a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// No key.
    Absent,
    /// A key that is not a signal by itself: what KIM left.
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

    /// How much of a signal these keys are.
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

    /// The merge patch that signals an orphaned Runtime: without a revision, because the controller `direct` does not know the one
    /// of the controller `signal`. The Runtime then counts as a new one.
    #[must_use]
    pub fn set(self) -> Value {
        self.signal(None)
    }

    /// The merge patch that signals a Runtime with a revision.
    pub(super) fn signal(self, revision: Option<&str>) -> Value {
        let mut patch = annotation(revision);
        self.put(&mut patch, |_| true, &json!("true"));
        patch
    }

    /// The merge patch that removes those keys that a Runtime has.
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
