//! The fields of an object that are compared on UPDATE.

use super::equality::same;
use super::object::{Member, Object};
use super::watcher::{Field, STATUS};

/// Metadata that the API server manages. It changes with any write, so it never counts. Clients set labels,
/// annotations, finalizers, owners and the deletion timestamp, which count for a kind without `spec`.
const BOOKKEEPING: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// The compared fields of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// `spec`, or [`Content`](Self::Content) of a kind that has none.
    Spec,
    /// `status` alone.
    Status,
    /// All fields except [`BOOKKEEPING`]: the data of a ConfigMap, the rules of a Role, the replicas of a Scale.
    Content,
}

impl Aspect {
    /// Returns the fields that a Watcher of `field` compares when `subresource` is updated.
    pub(super) fn of(field: Field, subresource: &str) -> Self {
        match (field, subresource) {
            (Field::Spec, "") => Self::Spec,
            (Field::Status, "") => Self::Status,
            (_, named) if named.eq_ignore_ascii_case(STATUS) => Self::Status,
            _ => Self::Content,
        }
    }

    /// Returns whether these fields differ between two states of an object.
    pub(super) fn differs(self, object: &Object<'_>, old: &Object<'_>) -> bool {
        match self {
            Self::Spec => match (object.get("spec"), old.get("spec")) {
                // The kind has no `spec`, so the other fields are compared. A `spec` that is null belongs to a kind
                // with `spec`.
                (None, None) => Self::Content.differs(object, old),
                _ => specs_differ(object.present("spec"), old.present("spec")),
            },
            Self::Status => match (object.present(STATUS), old.present(STATUS)) {
                (Some(one), Some(other)) => !same(one, other),
                (one, other) => one.is_some() != other.is_some(),
            },
            Self::Content => {
                !same_but(object, old, &["metadata"])
                    || !same_metadata(object.present("metadata"), old.present("metadata"))
            }
        }
    }
}

/// Returns whether two specs differ. If one of them is missing, they count as different.
fn specs_differ(one: Option<&str>, other: Option<&str>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => !same(one, other),
        _ => true,
    }
}

fn same_metadata(one: Option<&str>, other: Option<&str>) -> bool {
    match (one.map(Object::open), other.map(Object::open)) {
        (None, None) => true,
        (Some(Some(one)), Some(Some(other))) => same_but(&one, &other, &BOOKKEEPING),
        _ => false,
    }
}

/// Returns whether two objects have the same members, except the members named in `ignored`.
fn same_but(one: &Object<'_>, other: &Object<'_>, ignored: &[&str]) -> bool {
    let counts = |member: &&Member<'_>| !ignored.contains(&&*member.key);
    let mut one = one.members().iter().filter(counts);
    let mut other = other.members().iter().filter(counts);
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a.key == b.key && same(a.value, b.value) => {}
            _ => return false,
        }
    }
}
