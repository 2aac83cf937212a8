//! One scenario: its environment, the names of its objects, what it has observed, and what it has to undo.
//!
//! A step that changes anything registers how to undo it, before or right after the change. At the end of a scenario all
//! of that runs, the newest first, whatever fails; the errors are collected and fail the scenario.

mod environment;
mod object;
mod observed;

pub use environment::{Cluster, Environment};
pub use object::ObjectRef;
pub use observed::{Observed, Written};

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::LocalBoxFuture;
use serde_json::Value;

use crate::client::Client;

/// One scenario; cucumber's World of all suites.
#[derive(Default, cucumber::World)]
pub struct Scenario {
    environment: Option<Arc<dyn Environment>>,
    /// The environment that a step started for this scenario alone; steps use it instead of the other one.
    own_environment: Option<Arc<dyn Environment>>,
    title: String,
    /// Name in the feature → name on the cluster.
    names: BTreeMap<String, String>,
    undo: Vec<Undo>,
    /// What the steps have seen and sent so far.
    pub observed: Observed,
}

struct Undo {
    what: String,
    action: LocalBoxFuture<'static, anyhow::Result<()>>,
}

impl Scenario {
    /// Gives the scenario its environment; the runner calls it before the first step.
    pub fn begin(&mut self, environment: Arc<dyn Environment>, title: &str) {
        self.environment = Some(environment);
        title.clone_into(&mut self.title);
    }

    /// The environment.
    ///
    /// # Errors
    /// When the runner gave it none.
    pub fn environment(&self) -> anyhow::Result<&dyn Environment> {
        let environment = self.own_environment.as_ref().or(self.environment.as_ref());
        environment
            .map(|it| &**it)
            .context("the scenario has no environment")
    }

    /// The environment, for an action that outlives the step.
    ///
    /// # Errors
    /// When the runner gave it none.
    pub fn environment_handle(&self) -> anyhow::Result<Arc<dyn Environment>> {
        let environment = self.own_environment.as_ref().or(self.environment.as_ref());
        environment
            .cloned()
            .context("the scenario has no environment")
    }

    /// The environment of a suite.
    ///
    /// # Errors
    /// When the scenario runs in another environment: the step belongs to another suite or driver.
    pub fn environment_of<E: Environment>(&self) -> anyhow::Result<Arc<E>> {
        let environment: Arc<dyn Any + Send + Sync> = self.environment_handle()?;
        environment.downcast().ok().with_context(|| {
            format!(
                "this step needs the environment {}",
                std::any::type_name::<E>()
            )
        })
    }

    /// Moves the scenario to an environment of its own, which the clean-up stops.
    pub fn move_to(&mut self, environment: Arc<dyn Environment>) {
        self.own_environment = Some(environment);
    }

    /// Client of the cluster that holds an object.
    ///
    /// # Errors
    /// When the environment has no such cluster.
    pub fn client_of(&self, object: &ObjectRef) -> anyhow::Result<Client> {
        self.environment()?.client(&object.cluster())
    }

    /// Registers what the end of the scenario has to do. The future is not polled before that.
    pub fn undo(
        &mut self,
        what: impl Into<String>,
        action: impl Future<Output = anyhow::Result<()>> + 'static,
    ) {
        self.undo.push(Undo {
            what: what.into(),
            action: Box::pin(action),
        });
    }

    /// Makes `name` stand for a name of its own on the cluster, so that scenarios can run side by side.
    pub fn name(&mut self, name: &str) -> String {
        let unique = format!("{name}-{:016x}", fastrand::u64(..));
        self.names.insert(name.to_owned(), unique.clone());
        unique
    }

    /// Makes `name` stand for a name on the cluster that something else chose.
    pub fn alias(&mut self, name: &str, name_on_cluster: &str) {
        self.names
            .insert(name.to_owned(), name_on_cluster.to_owned());
    }

    /// The name on the cluster; names that the scenario did not make are taken literally.
    #[must_use]
    pub fn resolve(&self, name: &str) -> String {
        self.names
            .get(name)
            .cloned()
            .unwrap_or_else(|| name.to_owned())
    }

    /// Whether the scenario made this name on the cluster, and with it everything in that namespace.
    #[must_use]
    pub fn owns(&self, name_on_cluster: &str) -> bool {
        self.names.values().any(|own| own == name_on_cluster)
    }

    /// The object with its names on the cluster.
    #[must_use]
    pub fn resolved(&self, object: &ObjectRef) -> ObjectRef {
        let mut object = object.clone();
        object.namespace = object.namespace.map(|it| self.resolve(&it));
        object.name = self.resolve(&object.name);
        object
    }

    /// Reads a YAML document of a step; keys and texts that are a name of the scenario become the name on the cluster.
    ///
    /// # Errors
    /// When it is not YAML.
    pub fn yaml(&self, text: &str) -> anyhow::Result<Value> {
        let mut value: Value = serde_saphyr::from_str(text).context("not a YAML document")?;
        self.rename(&mut value);
        Ok(value)
    }

    fn rename(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.resolve(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item)),
            Value::Object(fields) => {
                for (key, mut value) in std::mem::take(fields) {
                    self.rename(&mut value);
                    fields.insert(self.resolve(&key), value);
                }
            }
            _ => {}
        }
    }

    /// Runs everything that was registered, the newest first.
    ///
    /// # Errors
    /// Each failure, in the order in which it happened.
    pub async fn end(&mut self) -> Result<(), Vec<String>> {
        // An action stops the scenario's own environment, which has to have no other user then.
        self.own_environment = None;
        let mut errors = Vec::new();
        while let Some(undo) = self.undo.pop() {
            let done = tokio::time::timeout(UNDO_LIMIT, undo.action).await;
            if let Err(error) = done.map_err(anyhow::Error::from).flatten() {
                tracing::warn!(what = undo.what, error = %format!("{error:#}"), "clean-up failed");
                errors.push(format!("{}: {error:#}", undo.what));
            }
        }
        // Only now: another scenario may wait for the environment. Cucumber keeps a failed scenario for its report.
        self.environment = None;
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("title", &self.title)
            .field("names", &self.names)
            .field("observed", &self.observed)
            .finish_non_exhaustive()
    }
}

/// Longest time that one clean-up action may take.
const UNDO_LIMIT: Duration = Duration::from_mins(3);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn clean_up_runs_whole_and_in_reverse_order_when_an_action_fails() {
        let ran = Rc::new(RefCell::new(Vec::new()));
        let mut scenario = Scenario::default();
        for number in 1..=3 {
            let ran = Rc::clone(&ran);
            scenario.undo(format!("action {number}"), async move {
                ran.borrow_mut().push(number);
                anyhow::ensure!(number == 1, "broken");
                Ok(())
            });
        }
        let errors = scenario.end().await.unwrap_err();
        assert_eq!(*ran.borrow(), [3, 2, 1]);
        assert_eq!(errors, ["action 3: broken", "action 2: broken"]);
        assert!(scenario.end().await.is_ok(), "each action runs once");
    }

    #[tokio::test]
    async fn the_environment_is_released_after_the_clean_up() {
        struct Pooled;

        impl Environment for Pooled {
            fn client(&self, _: &Cluster) -> anyhow::Result<Client> {
                anyhow::bail!("no cluster")
            }

            fn diagnose<'a>(&'a self, _: &'a std::path::Path) -> LocalBoxFuture<'a, ()> {
                Box::pin(std::future::ready(()))
            }
        }

        let environment = Arc::new(Pooled);
        let pool = Arc::downgrade(&environment);
        let mut scenario = Scenario::default();
        scenario.begin(environment, "title");
        let in_use = pool.clone();
        scenario.undo("restore the cluster", async move {
            anyhow::ensure!(in_use.strong_count() == 1, "another scenario has it");
            Ok(())
        });
        assert_eq!(scenario.end().await, Ok(()));
        assert_eq!(pool.strong_count(), 0);
    }

    #[test]
    fn names_of_the_scenario_are_replaced_in_documents() {
        let mut scenario = Scenario::default();
        let shop = scenario.name("shop");
        let document = scenario
            .yaml("namespaceFeatures: {shop: [a]}\nlist: [shop, shopping]")
            .unwrap();
        assert_eq!(
            document,
            serde_json::json!({"namespaceFeatures": {shop.as_str(): ["a"]}, "list": [shop, "shopping"]})
        );
    }
}
