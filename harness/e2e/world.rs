//! What scenarios share, and what each of them remembers.
//!
//! Invariant: scenarios run side by side on one [`Landscape`], or on one of their own that ends with them. A scenario owns the namespaces that it made, whose names
//! nobody else has; whoever changes something that all see (the configuration, the pull Secret, the product itself)
//! is `@serial` and marks it here, so that it is put back before the next one begins.

pub mod bundle;
mod door;
mod draft;
pub mod effects;
mod landscape;
mod private;
pub mod replicas;
pub mod second;
pub(crate) mod supplies;
pub mod twin;

pub use crate::client::{Answer, Client as Dialogue};
pub use draft::Draft;
pub use effects::{Effect, Feature};
pub use landscape::{
    A_WHILE, Landscape, PATIENCE, PRODUCT_NAMESPACE, Shared, shared_configuration,
};
pub use replicas::Replica;

pub(crate) use landscape::REFUSING;

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use anyhow::Context as _;
use serde_json::Value;

use clusters::evidence::{Evidence, slug};

/// One scenario.
#[derive(cucumber::World)]
#[world(init = Self::begin)]
pub struct World {
    landscape: Arc<Landscape>,
    title: String,
    namespace: Option<String>,
    annotations: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    /// The Pod that the scenario speaks of.
    pub pod: Option<Answer>,
    /// What was sent to get it.
    pub draft: Option<Draft>,
    /// An answer that is no Pod's.
    pub answer: Option<Answer>,
    /// Pods that the scenario stored, by their paths in the API.
    pub stored: Vec<String>,
    /// What an earlier step saw and a later one compares, by a name of their choice.
    pub seen: BTreeMap<String, Value>,
    /// What the scenario changed for all.
    pub changed: Vec<Shared>,
    /// Tasks that serve the scenario; they end with it.
    pub tasks: Vec<tokio::task::JoinHandle<()>>,
    /// Objects without a namespace that go with the scenario, as manifests.
    pub leftovers: Vec<String>,
}

static LANDSCAPE: RwLock<Option<Arc<Landscape>>> = RwLock::new(None);

impl World {
    /// Every scenario from now on runs there.
    pub fn run_on(landscape: Option<Arc<Landscape>>) {
        if let Ok(mut current) = LANDSCAPE.write() {
            *current = landscape;
        }
    }

    fn shared() -> anyhow::Result<Arc<Landscape>> {
        let landscape = LANDSCAPE.read().ok().and_then(|current| current.clone());
        landscape.context("no landscape was started")
    }

    async fn begin() -> anyhow::Result<Self> {
        std::future::ready(Ok(Self {
            landscape: Self::shared()?,
            title: String::new(),
            namespace: None,
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            pod: None,
            draft: None,
            answer: None,
            stored: Vec::new(),
            seen: BTreeMap::new(),
            changed: Vec::new(),
            tasks: Vec::new(),
            leftovers: Vec::new(),
        }))
        .await
    }

    /// What all scenarios share.
    #[must_use]
    pub fn landscape(&self) -> &Landscape {
        &self.landscape
    }

    /// The scenario plays on a landscape of its own from now on.
    pub fn move_to(&mut self, own: Landscape) {
        self.landscape = Arc::new(own);
    }

    /// Names the scenario.
    pub fn entitle(&mut self, title: &str) {
        title.clone_into(&mut self.title);
    }

    /// The Pod that the scenario speaks of.
    ///
    /// # Errors
    /// When no step made one.
    pub fn pod(&self) -> anyhow::Result<&Answer> {
        self.pod.as_ref().context("no Pod yet")
    }

    /// An annotation with which the scenario's namespace will be made.
    pub fn annotate_namespace(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.to_owned(), value.to_owned());
    }

    /// A label with which the scenario's namespace will be made.
    pub fn label_namespace(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), value.to_owned());
    }

    /// The scenario plays in a namespace that is there for all.
    pub fn borrow_namespace(&mut self, name: &str) {
        self.namespace = Some(name.to_owned());
    }

    /// The namespace in which the scenario plays; it is made at the first mention.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn namespace(&mut self) -> anyhow::Result<String> {
        if let Some(name) = &self.namespace {
            return Ok(name.clone());
        }
        let mut scenario = slug(&self.title);
        scenario.truncate(50);
        let name = format!("scenario-{}", random());
        let label = scenario.trim_end_matches('-').to_owned();
        self.labels.insert("scenario".to_owned(), label);
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": self.labels, "annotations": self.annotations },
        });
        self.landscape.cluster().apply(&object.to_string()).await?;
        self.namespace = Some(name.clone());
        self.landscape.account_exists(&name).await?;
        Ok(name)
    }

    /// Ends the scenario: evidence if it failed, then everything is put back.
    ///
    /// # Errors
    /// When something could not be put back.
    pub async fn end(&mut self, feature: &str, failed: bool) -> anyhow::Result<()> {
        if failed {
            let evidence = Evidence::of(feature, &self.title)?;
            self.landscape.cluster().collect_evidence(&evidence).await;
            self.landscape.keep_replicas(&evidence).await;
        }
        for path in self.stored.drain(..) {
            self.landscape.remove_pod(&path).await?;
        }
        // Before what serves it ends: a webhook that does not answer is in everyone's way.
        for manifest in self.leftovers.drain(..) {
            self.landscape.cluster().delete(&manifest).await?;
        }
        for task in self.tasks.drain(..) {
            task.abort();
        }
        if let Some(name) = self
            .namespace
            .as_ref()
            .filter(|name| !landscape::is_shared(name))
        {
            self.landscape.remove_namespace(name).await?;
        }
        for changed in std::mem::take(&mut self.changed) {
            self.landscape.put_back(changed).await?;
        }
        // The shared one has other owners and is taken down by the last of them.
        match Arc::into_inner(std::mem::replace(&mut self.landscape, Self::shared()?)) {
            Some(own) => own.stop().await,
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("namespace", &self.namespace)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

/// Five characters that a second run will not have.
#[must_use]
pub fn random() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    // Every state of the standard library's map is seeded by chance.
    let chance = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    format!("{:05x}", chance & 0xf_ffff)
}
