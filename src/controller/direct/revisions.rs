//! The manifests of the webhook, by revision.
//!
//! A revision is the hash of the manifests that are rendered from the controller's flags. A runtime that has not
//! started in a rollout has an earlier revision, so the manifests of each revision are stored on KCP in a
//! `ControllerRevision`. Invariant: manifests are rendered once for the same settings. The manifests for the flags
//! are rendered when the controller starts, so that an error is found before a runtime is written to.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::bootstrapper::WebhookSettings;
use api::kcp::CONTROLLER_FIELD_MANAGER;
use component_base::backoff::Backoff;
use component_base::telemetry::error_chain;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use policy::sync::Hash;
use policy::sync::ObjectNames;
use policy::sync::manifests::{Installation, InstallationError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::sleep;

use crate::requests::{Answer as _, MANAGED_BY, own_label};

/// Renders the manifests for settings of the webhook. The second argument is the pull Secret that the configuration
/// document names; the webhook gets the permission to copy it. The error is human-readable.
pub type Render =
    Arc<dyn Fn(&WebhookSettings, Option<&str>) -> Result<Vec<Value>, String> + Send + Sync>;

/// Maximum number of cached installations for settings of single runtimes.
const MAX_CUSTOM: usize = 64;

/// Number of the newest stored revisions that are kept although no rollout needs them.
const NEWEST: usize = 10;

/// Reason why there are no valid manifests.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// The manifests cannot be rendered for these settings.
    #[error("failed to render manifests: {0}")]
    Rendering(String),
    /// The rendered manifests cannot be installed.
    #[error("invalid manifests")]
    Installation(#[source] InstallationError),
}

/// The content of a revision, as stored on KCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    settings: WebhookSettings,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named_secret: Option<String>,
    manifests: Vec<Value>,
}

#[derive(Clone)]
struct Revision {
    source: Source,
    installation: Arc<Installation>,
}

/// The manifests of all revisions, for the settings of all runtimes.
#[derive(Clone)]
pub struct Installations {
    render: Render,
    defaults: WebhookSettings,
    current: Revision,
    /// Stored revisions with their numbers.
    stored: HashMap<Hash, (i64, Revision)>,
    /// The highest number of a stored revision.
    last_number: i64,
    custom: HashMap<(Hash, WebhookSettings), Result<Arc<Installation>, String>>,
}

impl Installations {
    /// Renders the manifests for the controller's flags.
    ///
    /// # Errors
    /// [`ManifestsError`] if they are invalid.
    pub fn new(render: Render, defaults: WebhookSettings) -> Result<Self, ManifestsError> {
        let current = rendered(&render, &defaults, None)?;
        Ok(Self {
            render,
            defaults,
            current,
            stored: HashMap::new(),
            last_number: 0,
            custom: HashMap::new(),
        })
    }

    /// Sets the pull Secret that the configuration document names, which the webhook has to read and copy.
    ///
    /// # Errors
    /// [`ManifestsError`] if the manifests are invalid; the previous manifests remain.
    pub(super) fn permit(&mut self, named_secret: Option<&str>) -> Result<(), ManifestsError> {
        if self.current.source.named_secret.as_deref() != named_secret {
            self.current = rendered(&self.render, &self.defaults, named_secret)?;
        }
        Ok(())
    }

    /// Sets the pull Secret of a stored revision. Used by a leader without a valid configuration document.
    ///
    /// # Errors
    /// See [`Self::permit`].
    pub(super) fn permit_as(&mut self, revision: Hash) -> Result<(), ManifestsError> {
        let stored = self.get(revision);
        let named = stored.map(|it| it.source.named_secret.clone());
        named.map_or(Ok(()), |it| self.permit(it.as_deref()))
    }

    /// Returns the revision of the controller's flags.
    pub(super) fn current(&self) -> Hash {
        self.current.installation.hash()
    }

    /// Returns whether the manifests of a revision are available.
    pub(super) fn has(&self, revision: Hash) -> bool {
        self.get(revision).is_some()
    }

    /// Returns the version of the webhook in a revision.
    pub(super) fn version(&self, revision: Hash) -> Option<String> {
        self.get(revision)
            .map(|it| it.installation.version().to_owned())
    }

    fn get(&self, revision: Hash) -> Option<&Revision> {
        if revision == self.current() {
            return Some(&self.current);
        }
        self.stored.get(&revision).map(|(_, it)| it)
    }

    /// Returns the manifests of a revision for the settings of a runtime. Uses the current revision if `revision` is
    /// unknown. The error contains the manifests without the settings, and the reason why the settings cannot be
    /// rendered.
    pub(super) fn of(
        &mut self,
        revision: Hash,
        overrides: Option<&WebhookSettings>,
    ) -> Result<Arc<Installation>, (Arc<Installation>, String)> {
        let base = self.get(revision).unwrap_or(&self.current);
        let installation = Arc::clone(&base.installation);
        let Some(overrides) = overrides.filter(|it| **it != WebhookSettings::default()) else {
            return Ok(installation);
        };
        let key = (installation.hash(), overrides.clone());
        if let Some(made) = self.custom.get(&key) {
            return made.clone().map_err(|reason| (installation, reason));
        }
        let settings = overrides.clone().or(&base.source.settings);
        let made = rendered(&self.render, &settings, base.source.named_secret.as_deref())
            .map(|it| it.installation)
            .map_err(|error| error_chain(&error));
        // Entries that are still used are rendered again.
        if self.custom.len() >= MAX_CUSTOM {
            self.custom.clear();
        }
        self.custom.insert(key, made.clone());
        made.map_err(|reason| (installation, reason))
    }

    /// Names of the three objects on a runtime whose webhook has a revision, by which that webhook reads them. A revision that is
    /// unknown has the names of the current one.
    pub(super) fn names(
        &self,
        revision: Hash,
        default: &ObjectNames,
        overrides: Option<&WebhookSettings>,
    ) -> ObjectNames {
        let base = self.get(revision).unwrap_or(&self.current);
        let settings = overrides.cloned().unwrap_or_default();
        let settings = settings.or(&base.source.settings);
        let mut names = default.clone();
        if let Some(name) = settings.config_map_name {
            names.configuration = name;
        }
        // A pull Secret that is not synchronized has no name.
        if let (Some(name), Some(set)) = (&mut names.pull_secret, settings.pull_secret_name) {
            *name = set;
        }
        names
    }

    /// Marks the current revision as stored, and returns its object; `None` if it is stored already.
    pub(super) fn take_unstored(&mut self) -> Option<ControllerRevision> {
        let number = self.last_number + 1;
        let hash = self.current();
        if self.stored.contains_key(&hash) {
            return None;
        }
        self.stored.insert(hash, (number, self.current.clone()));
        self.last_number = number;
        let data = serde_json::to_value(&self.current.source).ok()?;
        Some(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(object_name(hash)),
                labels: Some(BTreeMap::from([own_label()])),
                ..ObjectMeta::default()
            },
            data: RawExtension(data),
            revision: Some(number),
        })
    }

    /// Loads stored objects. An object that is invalid, or whose name does not match its hash, is ignored.
    pub(super) fn load(&mut self, objects: Vec<ControllerRevision>) {
        for object in objects {
            let name = object.metadata.name.clone().unwrap_or_default();
            let number = object.revision.unwrap_or_default();
            self.last_number = self.last_number.max(number);
            let source = serde_json::from_value::<Source>(object.data.0).ok();
            let made = source.and_then(|source| {
                let installation = Installation::new(source.manifests.clone()).ok()?;
                let installation = Arc::new(installation);
                Some(Revision {
                    source,
                    installation,
                })
            });
            let made = made.filter(|it| object_name(it.installation.hash()) == name);
            if let Some(made) = made {
                self.stored.insert(made.installation.hash(), (number, made));
            } else {
                tracing::warn!(name, "invalid ControllerRevision ignored");
            }
        }
    }

    /// Removes the revisions that are neither in `kept` nor among the newest, and returns the names of their objects.
    pub(super) fn outdated(&mut self, kept: &[Hash]) -> Vec<String> {
        let mut numbers: Vec<i64> = self.stored.values().map(|(number, _)| *number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = numbers.get(NEWEST - 1).copied().unwrap_or(i64::MIN);
        let is_kept = |it: &Hash| kept.contains(it) || self.stored[it].0 >= oldest;
        let outdated: Vec<Hash> = self
            .stored
            .keys()
            .copied()
            .filter(|it| !is_kept(it))
            .collect();
        for hash in &outdated {
            self.stored.remove(hash);
        }
        outdated.into_iter().map(object_name).collect()
    }
}

fn object_name(revision: Hash) -> String {
    format!("rt-bootstrapper-webhook-{}", &revision.to_string()[..16])
}

fn rendered(
    render: &Render,
    settings: &WebhookSettings,
    named_secret: Option<&str>,
) -> Result<Revision, ManifestsError> {
    let manifests = render(settings, named_secret).map_err(ManifestsError::Rendering)?;
    let installation =
        Installation::new(manifests.clone()).map_err(ManifestsError::Installation)?;
    Ok(Revision {
        source: Source {
            settings: settings.clone(),
            named_secret: named_secret.map(str::to_owned),
            manifests,
        },
        installation: Arc::new(installation),
    })
}

/// Access to the stored revisions on KCP. Clones share it.
#[derive(Clone)]
pub(super) struct RevisionStore(Api<ControllerRevision>);

impl RevisionStore {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        Self(Api::namespaced(client, namespace))
    }

    /// Lists all stored revisions.
    pub(super) async fn list(&self) -> kube::Result<Vec<ControllerRevision>> {
        let label = format!("{MANAGED_BY}={CONTROLLER_FIELD_MANAGER}");
        let listed = self.0.list(&ListParams::default().labels(&label)).await?;
        Ok(listed.items)
    }

    /// Creates an object and deletes others. Retries until it succeeds.
    pub(super) async fn save(self, created: Option<ControllerRevision>, deleted: Vec<String>) {
        let mut failures = 0;
        while let Err(error) = self.try_save(created.as_ref(), &deleted).await {
            let error = error_chain(&error);
            tracing::warn!(error, "failed to store revision, backing off");
            sleep(Backoff::WATCH.delay(failures, fastrand::u64(..))).await;
            failures += 1;
        }
    }

    async fn try_save(
        &self,
        created: Option<&ControllerRevision>,
        deleted: &[String],
    ) -> kube::Result<()> {
        if let Some(object) = created {
            // An existing object has the same content, because its name is a hash of the content.
            let parameters = PostParams::default();
            self.0.create(&parameters, object).await.unless_exists()?;
        }
        for name in deleted {
            let parameters = DeleteParams::default();
            self.0.delete(name, &parameters).await.unless_gone()?;
        }
        Ok(())
    }
}
