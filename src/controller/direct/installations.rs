//! What to install, by the settings of the webhook that a runtime is to have.
//!
//! Invariant: manifests are rendered and understood once for the same settings, and for the controller's own choice when it
//! starts, so that a mistake in it is found before any runtime is touched.

use std::collections::HashMap;
use std::sync::Arc;

use api::bootstrapper::WebhookSettings;
use policy::sync::manifests::{Installation, InstallationError};
use policy::sync::observed::Names;
use policy::sync::status::chain;
use serde_json::Value;

/// Renders the manifests for settings of the webhook. The webhook may copy the Secret of this name, too, because the
/// configuration document names it. The error is for people.
pub type Render =
    Arc<dyn Fn(&WebhookSettings, Option<&str>) -> Result<Vec<Value>, String> + Send + Sync>;

/// How many settings other than the controller's are kept rendered.
const OTHERS: usize = 64;

/// Why there is nothing to install.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// They cannot be rendered for these settings.
    #[error("failed to render manifests: {0}")]
    Rendering(String),
    /// They are not what can be installed.
    #[error("invalid manifests")]
    Installation(#[source] InstallationError),
}

/// The manifests for all settings that runtimes have.
#[derive(Clone)]
pub struct Installations {
    render: Render,
    defaults: WebhookSettings,
    named_secret: Option<String>,
    default: Arc<Installation>,
    others: HashMap<WebhookSettings, Result<Arc<Installation>, String>>,
}

impl Installations {
    /// Those for the controller's own choice.
    ///
    /// # Errors
    /// [`ManifestsError`] if they cannot be installed on any runtime.
    pub fn new(render: Render, defaults: WebhookSettings) -> Result<Self, ManifestsError> {
        let default = Arc::new(understood(&render, &defaults, None)?);
        Ok(Self {
            render,
            defaults,
            named_secret: None,
            default,
            others: HashMap::new(),
        })
    }

    /// The configuration document names this pull Secret from now on, which the webhook has to read and copy.
    ///
    /// # Errors
    /// [`ManifestsError`] if no manifests can be made for it; those before stay.
    pub(super) fn permit(&mut self, named_secret: Option<&str>) -> Result<(), ManifestsError> {
        if self.named_secret.as_deref() == named_secret {
            return Ok(());
        }
        self.default = Arc::new(understood(&self.render, &self.defaults, named_secret)?);
        self.named_secret = named_secret.map(str::to_owned);
        self.others.clear();
        Ok(())
    }

    /// The controller's own choice.
    pub(super) fn default(&self) -> &Arc<Installation> {
        &self.default
    }

    /// What a runtime with settings of its own gets; beside an error stands what it would get without them.
    pub(super) fn of(
        &mut self,
        own: Option<&WebhookSettings>,
    ) -> Result<Arc<Installation>, (Arc<Installation>, String)> {
        let Some(own) = own.filter(|it| **it != WebhookSettings::default()) else {
            return Ok(Arc::clone(&self.default));
        };
        if !self.others.contains_key(own) {
            let settings = own.clone().or(&self.defaults);
            let made = understood(&self.render, &settings, self.named_secret.as_deref())
                .map(Arc::new)
                .map_err(|error| chain(&error));
            // Rendered again where they are still used.
            if self.others.len() >= OTHERS {
                self.others.clear();
            }
            self.others.insert(own.clone(), made);
        }
        self.others[own]
            .clone()
            .map_err(|reason| (Arc::clone(&self.default), reason))
    }
}

/// Names of the three objects on a runtime with settings of its own: the webhook reads them by these names.
pub(super) fn object_names(default: &Names, own: Option<&WebhookSettings>) -> Names {
    let mut names = default.clone();
    let Some(own) = own else {
        return names;
    };
    if let Some(name) = &own.config_map_name {
        names.configuration.clone_from(name);
    }
    // A pull Secret that is not synchronized remains so.
    if let (Some(name), Some(own)) = (&mut names.pull_secret, &own.pull_secret_name) {
        name.clone_from(own);
    }
    names
}

fn understood(
    render: &Render,
    settings: &WebhookSettings,
    named_secret: Option<&str>,
) -> Result<Installation, ManifestsError> {
    let documents = render(settings, named_secret).map_err(ManifestsError::Rendering)?;
    Installation::new(documents).map_err(ManifestsError::Installation)
}
