//! What to install, by the image that a runtime is to have.
//!
//! Invariant: manifests are rendered and understood once an image, and the controller's own choice when it starts, so
//! that a mistake in it is found before any runtime is touched.

use std::collections::HashMap;
use std::sync::Arc;

use policy::convergence::manifests::{Installation, InstallationError};
use policy::convergence::status::chain;
use serde_json::Value;

/// Renders the manifests for an image; the error is for people.
pub type Render = Arc<dyn Fn(&str) -> Result<Vec<Value>, String> + Send + Sync>;

/// Why there is nothing to install.
#[derive(Debug, thiserror::Error)]
pub enum ManifestsError {
    /// They cannot be rendered for this image.
    #[error("the manifests cannot be rendered: {0}")]
    Rendering(String),
    /// They are not what can be installed.
    #[error("the manifests cannot be installed")]
    Installation(#[source] InstallationError),
}

/// Every image's manifests that were asked for.
#[derive(Clone)]
pub struct Installations {
    render: Render,
    default: Arc<Installation>,
    others: HashMap<String, Result<Arc<Installation>, String>>,
}

impl Installations {
    /// Those of the controller's own choice.
    ///
    /// # Errors
    /// [`ManifestsError`] if they cannot be installed on any runtime.
    pub fn new(render: Render, image: &str) -> Result<Self, ManifestsError> {
        let default = Arc::new(understood(&render, image)?);
        Ok(Self {
            render,
            default,
            others: HashMap::new(),
        })
    }

    /// The controller's own choice.
    pub(super) fn default(&self) -> &Arc<Installation> {
        &self.default
    }

    /// What a runtime gets; beside an error stands what it would get without its own image.
    pub(super) fn of(
        &mut self,
        image: Option<&str>,
    ) -> Result<Arc<Installation>, (Arc<Installation>, String)> {
        let Some(image) = image else {
            return Ok(Arc::clone(&self.default));
        };
        if !self.others.contains_key(image) {
            let made = understood(&self.render, image)
                .map(Arc::new)
                .map_err(|error| chain(&error));
            self.others.insert(image.to_owned(), made);
        }
        self.others[image]
            .clone()
            .map_err(|reason| (Arc::clone(&self.default), reason))
    }
}

fn understood(render: &Render, image: &str) -> Result<Installation, ManifestsError> {
    let documents = render(image).map_err(ManifestsError::Rendering)?;
    Installation::new(documents).map_err(ManifestsError::Installation)
}
