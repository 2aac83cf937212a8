//! A Secret with the name of the pull Secret in any namespace. [`SecretView`] hashes each value during parsing, so that
//! neither a page of a list, nor a parse error, nor a `Debug` text can contain a value.

use std::collections::BTreeMap;
use std::{fmt, mem};

use api::names::{DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64_simd::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Preconditions};
use kube_derive::Resource;
use policy::copies::Observed;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::stored::Metadata;

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
    /// Decodes base64, in which the API encodes the values of a Secret. Invalid base64 is hashed as text, because an error
    /// would quote it. Its digest equals the digest of no source.
    fn from(text: String) -> Self {
        STANDARD
            .decode_to_vec(&text)
            .map_or_else(|_| Self::of(text.as_bytes()), |bytes| Self::of(&bytes))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// A parsed Secret without its values.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Secret)]
#[serde(from = "Fields")]
pub(super) struct SecretView {
    /// Annotations are not stored, because `kubectl apply` stores a complete Secret, including its values, in one of them.
    metadata: ObjectMeta,
    fields: Fields,
}

#[derive(Clone, Debug, Deserialize)]
struct Fields {
    #[serde(default)]
    metadata: Metadata<Labels>,
    #[serde(default, rename = "type")]
    type_: Option<String>,
    data: Option<BTreeMap<String, Digest>>,
    immutable: Option<bool>,
}

/// The label of copies, [`PULL_SECRET_COPY_LABEL`](api::names::PULL_SECRET_COPY_LABEL).
#[derive(Clone, Debug, Deserialize)]
struct Labels {
    #[serde(rename = "rt-bootstrapper.kyma-project.io/pull-secret-copy")]
    copy: Option<String>,
}

impl From<Fields> for SecretView {
    fn from(mut fields: Fields) -> Self {
        let metadata = ObjectMeta {
            annotations: None,
            ..mem::take(&mut fields.metadata.object)
        };
        Self { metadata, fields }
    }
}

/// The origin of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The Secret has the label of copies.
    Labelled,
    /// The field manager of copies manages fields of the Secret: the public manager created it, or its label was removed.
    Managed,
    /// Another client created the Secret.
    Foreign,
}

/// The stored information about a Secret.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SecretState {
    /// Preconditions of a deletion, so that another Secret of the same name is not deleted.
    pub(super) identity: Preconditions,
    /// A finalizer blocks the deletion: the Secret can be neither changed nor created again.
    pub(super) terminating: bool,
    pub(super) origin: Origin,
    immutable: bool,
    /// Digest of the only value, if type and keys are those of a copy.
    value: Option<Digest>,
}

impl SecretState {
    /// Returns the namespace, and the stored information.
    pub(super) fn read(view: SecretView) -> (String, Self) {
        let SecretView { metadata, fields } = view;
        let data = fields.data.unwrap_or_default();
        let shaped = fields.type_.as_deref() == Some(DOCKER_CONFIG_TYPE) && data.len() == 1;
        let label = fields.metadata.labels.and_then(|it| it.copy);
        let state = Self {
            origin: match label {
                Some(value) if value == "true" => Origin::Labelled,
                _ if fields.metadata.managed.has_copy_manager => Origin::Managed,
                _ => Origin::Foreign,
            },
            terminating: fields.metadata.terminating,
            identity: Preconditions {
                uid: metadata.uid,
                resource_version: metadata.resource_version,
            },
            immutable: fields.immutable == Some(true),
            value: data.get(DOCKER_CONFIG_KEY).copied().filter(|_| shaped),
        };
        (metadata.namespace.unwrap_or_default(), state)
    }

    /// Compares the Secret with the source. Further keys (of another field manager) and other bytes in an immutable Secret
    /// also count as misshapen, because an apply cannot correct them.
    pub(super) fn observed(&self, source: Option<Digest>) -> Observed {
        if self.origin == Origin::Foreign {
            return Observed::Foreign;
        }
        let Some(value) = self.value else {
            return Observed::Misshapen;
        };
        match source == Some(value) {
            true if self.origin == Origin::Labelled => Observed::Current,
            false if self.immutable => Observed::Misshapen,
            _ => Observed::Stale,
        }
    }

    /// Returns whether the resource version is lower; `false` if one of them is not a number.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        let number = |it: &Self| it.identity.resource_version.as_ref()?.parse::<u128>().ok();
        let numbers = number(self).zip(number(other));
        numbers.is_some_and(|(this, that)| this < that)
    }
}
