//! What the annotations of the three parts say: which version each is of, and what a document requires of the others.
//!
//! Values are compared, never understood: only the control plane can tell what a hash stands for.

use std::collections::BTreeMap;

use api::runtimes::{CONTENT_HASH, REQUIRES_NONE, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::TrustBundlePresence;

/// What a ConfigMap requires of the other parts of its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Of the pull Secret.
    pub pull_secret: Requirement,
    /// Of the trust bundle.
    pub trust_bundle: Requirement,
}

/// What a version requires of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing: the part is taken as it comes.
    #[default]
    Anything,
    /// The version is without the part: whatever is there counts as absent.
    None,
    /// The part must carry this.
    Version(String),
}

/// Which object a watch told of, and what version it is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The object's name; `None` if it stands for whichever is asked for.
    pub name: Option<String>,
    /// What it carries.
    pub carries: Carries,
}

/// What is known of the version that an object is part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    /// The watch has not answered yet.
    #[default]
    Unseen,
    /// The object does not exist.
    Nothing,
    /// The object carries no version.
    Unversioned,
    /// The object carries this.
    Version(String),
}

/// The configured ClusterTrustBundle, as its watch sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownBundle {
    /// What decisions read.
    pub presence: TrustBundlePresence,
    /// Which bundle it is.
    pub seen: Seen,
}

/// What a part lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The watch has not answered yet.
    Unseen,
    /// The object does not exist.
    Missing,
    /// The object belongs to another version.
    OtherVersion,
}

impl Requirements {
    /// Reads the annotations of a ConfigMap.
    #[must_use]
    pub fn read(metadata: &ObjectMeta) -> Self {
        let read = |key| match annotation(metadata, key) {
            None => Requirement::Anything,
            Some(REQUIRES_NONE) => Requirement::None,
            Some(version) => Requirement::Version(version.to_owned()),
        };
        Self {
            pull_secret: read(REQUIRES_PULL_SECRET),
            trust_bundle: read(REQUIRES_TRUST_BUNDLE),
        }
    }
}

impl Requirement {
    pub(super) fn lacked_by(&self, carried: &Carries) -> Option<Lack> {
        let Self::Version(required) = self else {
            return None;
        };
        match carried {
            Carries::Unversioned => None,
            Carries::Version(version) => (version != required).then_some(Lack::OtherVersion),
            Carries::Unseen => Some(Lack::Unseen),
            Carries::Nothing => Some(Lack::Missing),
        }
    }
}

impl Seen {
    /// An object that exists.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        let version = annotation(metadata, CONTENT_HASH);
        Self {
            name: metadata.name.clone(),
            carries: version.map_or(Carries::Unversioned, |it| Carries::Version(it.to_owned())),
        }
    }

    /// An object that does not exist.
    #[must_use]
    pub fn absent(name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            carries: Carries::Nothing,
        }
    }

    /// What the object of that name carries: a watch of another name has seen nothing of it.
    pub(super) fn carries_for(&self, name: Option<&str>) -> &Carries {
        match (&self.name, name) {
            (Some(seen), Some(asked)) if seen != asked => &Carries::Unseen,
            _ => &self.carries,
        }
    }
}

/// For what is known without an object.
impl From<TrustBundlePresence> for KnownBundle {
    fn from(presence: TrustBundlePresence) -> Self {
        let carries = match presence {
            TrustBundlePresence::Unknown => Carries::Unseen,
            TrustBundlePresence::Absent | TrustBundlePresence::Unserved => Carries::Nothing,
            TrustBundlePresence::Present => Carries::Unversioned,
        };
        Self {
            presence,
            seen: Seen {
                name: None,
                carries,
            },
        }
    }
}

/// An empty one says nothing.
fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    let annotations: &BTreeMap<String, String> = metadata.annotations.as_ref()?;
    annotations
        .get(key)
        .map(String::as_str)
        .filter(|it| !it.is_empty())
}
