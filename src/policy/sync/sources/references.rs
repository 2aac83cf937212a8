//! The objects that a document refers to by name. The webhook does not read other objects, so that they must not be required.

use api::config::Document;
use api::names::CONFIG_KEY;
use serde_json::Value;

use super::SourceKind;
use crate::sync::ObjectNames;
use crate::sync::observed::data;

/// The objects that a document refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencedObjects {
    /// `None` if the webhook uses the name in its flag.
    pull_secret: Option<String>,
    trust_bundle: Option<String>,
}

impl ReferencedObjects {
    pub(super) fn of(document: &Document) -> Self {
        let bundle = document.cluster_trust_bundle.as_ref();
        Self {
            pull_secret: document.image_pull_secret.name.clone(),
            trust_bundle: bundle.map(|it| it.name.clone()),
        }
    }

    /// Returns the objects that a live document refers to; `None` if it cannot be parsed.
    pub(in crate::sync) fn of_live(config_map: &Value) -> Option<Self> {
        let document = Document::parse(data(config_map, CONFIG_KEY)?).ok()?;
        Some(Self::of(&document))
    }

    /// Returns the pull Secret that the document names, if any.
    #[must_use]
    pub fn pull_secret(&self) -> Option<&str> {
        self.pull_secret.as_deref()
    }

    /// Returns whether the document refers to an object other than the synchronized one. A document without a trust
    /// bundle does not refer to another bundle.
    pub(in crate::sync) fn names_other_object(
        &self,
        kind: SourceKind,
        names: &ObjectNames,
    ) -> bool {
        match kind {
            // Without a name, the flag of the webhook applies, which contains the name of the synchronized Secret.
            SourceKind::PullSecret => match &self.pull_secret {
                None => names.pull_secret.is_none(),
                secret => names.pull_secret != *secret,
            },
            SourceKind::TrustBundle => {
                self.trust_bundle.is_some() && names.trust_bundle != self.trust_bundle
            }
            SourceKind::Configuration => false,
        }
    }
}
