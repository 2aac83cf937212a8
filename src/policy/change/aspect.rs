//! What of an object is looked at on UPDATE, and whether it differs.

use super::equality::same;
use super::object::{Member, Object};
use super::watcher::{Field, STATUS};

/// Metadata that the API server keeps for itself: it moves with any write, so it never counts. Labels, annotations,
/// finalizers, owners and the deletion's time are set by clients, and count where there is no `spec` to look at.
const BOOKKEEPING: [&str; 3] = ["generation", "managedFields", "resourceVersion"];

/// What of an object is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aspect {
    /// `spec`, or [`Content`](Self::Content) of a kind that has none.
    Spec,
    /// `status` alone.
    Status,
    /// Everything but [`BOOKKEEPING`]: a ConfigMap's data, a Role's rules, the replicas of a Scale.
    Content,
}

impl Aspect {
    /// What a Watcher of `field` looks at when `subresource` is updated.
    pub(super) fn of(field: Field, subresource: &str) -> Self {
        match (field, subresource) {
            (Field::Spec, "") => Self::Spec,
            (Field::Status, "") => Self::Status,
            (_, named) if named.eq_ignore_ascii_case(STATUS) => Self::Status,
            _ => Self::Content,
        }
    }

    /// Whether the two states of an object differ in it.
    pub(super) fn differs(self, object: &Object<'_>, old: &Object<'_>) -> bool {
        match self {
            Self::Spec => match (object.get("spec"), old.get("spec")) {
                // No `spec` at all: its meaning lies elsewhere. One that is null belongs to a kind that has one.
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

/// Without a `spec` on one of the sides nothing can be compared, so it counts.
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

/// Whether two objects have the same members, those named in `ignored` aside.
fn same_but(one: &Object<'_>, other: &Object<'_>, ignored: &[&str]) -> bool {
    let counts = |member: &&Member<'_>| !ignored.contains(&&*member.key.0);
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
