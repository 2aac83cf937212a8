//! A Secret of the pull Secret's name, as found in some namespace.
//!
//! Invariant: its bytes do not outlive the parser. [`SecretView`] hashes each value as it reads it, so neither a buffer
//! of listed objects, nor a parse error, nor a `Debug` text can show one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE, PULL_SECRET_COPY_LABEL, SECRET_MANAGER};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use policy::mirror::Observed;
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a value.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl From<String> for Digest {
    /// From base64, as the API writes a Secret's values. What is no base64 gets a digest of its own: it equals no
    /// source, and an error would quote it.
    fn from(text: String) -> Self {
        STANDARD
            .decode(&text)
            .map_or_else(|_| Self::of(text.as_bytes()), |bytes| Self::of(&bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// A Secret on the wire, of which the values are never kept.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SecretView {
    #[serde(default, deserialize_with = "without_annotations")]
    metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    type_: Option<String>,
    #[serde(default)]
    data: Option<BTreeMap<String, Digest>>,
    #[serde(default)]
    immutable: Option<bool>,
}

/// `kubectl apply` leaves a whole Secret, values included, in an annotation.
fn without_annotations<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let metadata = ObjectMeta::deserialize(from)?;
    Ok(ObjectMeta {
        annotations: None,
        ..metadata
    })
}

impl Resource for SecretView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Secret::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Secret::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Secret::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Secret::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Which object exactly: what a removal names, so that a successor of the same name survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
}

/// Who made a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// We: it has our label.
    Labelled,
    /// The public manager, or we before somebody took the label away: our field manager has a part in it.
    Managed,
    Foreign,
}

/// What is kept of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) identity: Identity,
    /// On its way out, held by somebody's finalizer: it can neither be mended nor made anew.
    pub(super) terminating: bool,
    origin: Origin,
    immutable: bool,
    /// The one value, if type and keys are those of a copy.
    value: Option<Digest>,
}

impl Found {
    /// The namespace and what is kept.
    pub(super) fn read(view: SecretView) -> (String, Self) {
        let SecretView {
            metadata,
            type_,
            data,
            immutable,
        } = view;
        let data = data.unwrap_or_default();
        let shaped = type_.as_deref() == Some(DOCKER_CONFIG_TYPE) && data.len() == 1;
        let found = Self {
            origin: Origin::of(&metadata),
            terminating: metadata.deletion_timestamp.is_some(),
            identity: Identity {
                uid: metadata.uid,
                version: metadata.resource_version,
            },
            immutable: immutable == Some(true),
            value: data.get(DOCKER_CONFIG_KEY).copied().filter(|_| shaped),
        };
        (metadata.namespace.unwrap_or_default(), found)
    }

    /// Whether we made it, or the public manager did.
    pub(super) fn is_ours(&self) -> bool {
        self.origin != Origin::Foreign
    }

    /// What it is, beside the source.
    ///
    /// Two shapes that an apply cannot mend count as misshapen too: further keys (they belong to another field
    /// manager) and other bytes in an immutable Secret.
    pub(super) fn observed(&self, source: Option<Digest>) -> Observed {
        if self.origin == Origin::Foreign {
            return Observed::Foreign;
        }
        let Some(value) = self.value else {
            return Observed::Misshapen;
        };
        match (source == Some(value), self.origin) {
            (true, Origin::Labelled) => Observed::Current,
            (false, _) if self.immutable => Observed::Misshapen,
            _ => Observed::Stale,
        }
    }

    /// Whether it is certainly an older state than the other one: versions of one kind grow.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let number = |it: &Self| it.identity.version.as_ref()?.parse::<u128>().ok();
        number(self)
            .zip(number(other))
            .is_some_and(|(this, that)| this < that)
    }
}

impl Origin {
    fn of(metadata: &ObjectMeta) -> Self {
        let label = metadata
            .labels
            .as_ref()
            .and_then(|it| it.get(PULL_SECRET_COPY_LABEL));
        let managers = metadata.managed_fields.iter().flatten();
        if label.is_some_and(|value| value == "true") {
            Self::Labelled
        } else if managers
            .filter_map(|entry| entry.manager.as_deref())
            .any(|manager| manager == SECRET_MANAGER)
        {
            Self::Managed
        } else {
            Self::Foreign
        }
    }
}
