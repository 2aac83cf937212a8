//! Which parts a document names. What it does not name, the webhook does not read, and must not be made to wait for.

use api::config::Document;
use api::names::CONFIG_KEY;
use serde_json::Value;

use super::SourceKind;
use crate::sync::observed::{Names, data};

/// Which parts a document names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencedObjects {
    /// `None`: the one that the webhook was told by its flag.
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

    /// What the document of a ConfigMap names; `None` if it cannot be read.
    pub(in crate::sync) fn of_live(config_map: &Value) -> Option<Self> {
        let document = Document::parse(data(config_map, CONFIG_KEY)?).ok()?;
        Some(Self::of(&document))
    }

    /// The pull Secret that the document names, if it names one.
    #[must_use]
    pub fn pull_secret(&self) -> Option<&str> {
        self.pull_secret.as_deref()
    }

    /// Whether the document names another object than the one of these names. One that mounts no bundle names no other.
    pub(in crate::sync) fn another(&self, kind: SourceKind, names: &Names) -> bool {
        match kind {
            // A document that names none leaves it to the webhook's flag, which has the name under which it is written.
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
