//! One scenario: its environment, the names of its objects, its observations, and its clean-up actions.
//!
//! A step that makes a change registers a clean-up action, before or right after the change. At the end of a scenario all
//! actions run in reverse order, even if some fail. Their errors are collected and fail the scenario.

mod object;

pub use object::ObjectRef;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::Value;

use crate::definitions::random;
use testkit::client::{Answer, Client, Write};
use testkit::matching::walk;

/// A cluster of an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cluster {
    /// The control plane.
    Kcp,
    /// A runtime; without a name, the default runtime of the suite.
    Runtime(Option<String>),
}

/// Environment of a scenario: one or more API servers, in containers or in this process.
pub trait Environment: Any + Send + Sync {
    /// Returns the client of a cluster.
    fn client(&self, cluster: &Cluster) -> Result<Client>;

    /// Waits until the product uses an object that a step changed or the clean-up restored.
    fn settle<'a>(&'a self, _object: &'a ObjectRef) -> LocalBoxFuture<'a, Result<()>> {
        futures::future::ready(Ok(())).boxed_local()
    }

    /// Excludes the environment from use by other scenarios, because a clean-up action failed in it.
    fn retire(&self) {}

    /// Collects diagnostics of a failure: objects, Events, product logs and node logs of every cluster. Unreadable data is
    /// recorded.
    #[cfg(feature = "clusters")]
    fn diagnose<'a>(&'a self, _: &'a clusters::evidence::Evidence) -> LocalBoxFuture<'a, ()> {
        futures::future::ready(()).boxed_local()
    }
}

/// One scenario: cucumber's World of all suites.
#[derive(Default, cucumber::World)]
pub struct Scenario {
    /// The environment that the runner sets before the first step.
    pub(crate) shared: Option<Arc<dyn Environment>>,
    /// The environment that a step started for this scenario only. Steps use it instead of the shared one, and the clean-up
    /// stops it.
    pub(crate) own: Option<Arc<dyn Environment>>,
    /// Map from the name in the feature to the name on the cluster.
    names: BTreeMap<String, String>,
    undo: Vec<(String, LocalBoxFuture<'static, Result<()>>)>,
    pub(crate) observed: Observed,
}

impl Scenario {
    pub(crate) fn environment(&self) -> Result<Arc<dyn Environment>> {
        let environment = self.own.clone().or_else(|| self.shared.clone());
        environment.context("the scenario has no environment")
    }

    /// Returns the environment of a suite. Fails if the step belongs to another suite or driver.
    pub(crate) fn environment_of<E: Environment>(&self) -> Result<Arc<E>> {
        let environment: Arc<dyn Any + Send + Sync> = self.environment()?;
        let name = std::any::type_name::<E>();
        let found = environment.downcast().ok();
        found.with_context(|| format!("this step needs the environment {name}"))
    }

    pub(crate) fn client_of(&self, object: &ObjectRef) -> Result<Client> {
        self.environment()?.client(&object.cluster())
    }

    /// Registers a clean-up action for the end of the scenario. The future is not polled before.
    pub(crate) fn undo(
        &mut self,
        what: impl Into<String>,
        action: impl Future<Output = Result<()>> + 'static,
    ) {
        self.undo.push((what.into(), Box::pin(action)));
    }

    /// Maps `name` to a unique name on the cluster, so that scenarios can run in parallel.
    pub(crate) fn name(&mut self, name: &str) -> String {
        let unique = format!("{name}-{}", random());
        self.alias(name, &unique);
        unique
    }

    /// Maps `name` to an existing name on the cluster.
    pub(crate) fn alias(&mut self, name: &str, name_on_cluster: &str) {
        let names = (name.to_owned(), name_on_cluster.to_owned());
        self.names.extend([names]);
    }

    /// Returns the name on the cluster. A name that the scenario did not create is returned unchanged.
    pub(crate) fn resolve(&self, name: &str) -> String {
        let on_cluster = self.names.get(name).map(String::as_str);
        on_cluster.unwrap_or(name).to_owned()
    }

    /// Whether the scenario created this name on the cluster, and therefore owns all objects in the namespace.
    pub(crate) fn owns(&self, name_on_cluster: &str) -> bool {
        self.names.values().any(|own| own == name_on_cluster)
    }

    pub(crate) fn resolved(&self, object: &ObjectRef) -> ObjectRef {
        let mut object = object.clone();
        object.namespace = object.namespace.map(|it| self.resolve(&it));
        object.name = self.resolve(&object.name);
        object
    }

    /// Returns the last document that the scenario sent to create an object.
    pub(crate) fn sent(&self, object: &ObjectRef) -> Result<&Value> {
        let sent = self.observed.described.get(&self.resolved(object));
        sent.with_context(|| format!("no step describes or sends {object}"))
    }

    /// Returns the object before the last step that changed or compared it.
    pub(crate) fn earlier(&self, object: &ObjectRef) -> Result<&Value> {
        let before = self.observed.before.get(&self.resolved(object));
        before.with_context(|| format!("no earlier step saw {object}"))
    }

    /// Parses a YAML document of a step. Keys and texts that are a name of the scenario are replaced with the name on the
    /// cluster.
    pub(crate) fn yaml(&self, text: &str) -> Result<Value> {
        let mut value: Value = serde_saphyr::from_str(text).context("not a YAML document")?;
        walk(&mut value, &|value| match value {
            Value::String(text) => *text = self.resolve(text),
            Value::Object(fields) => {
                let own = std::mem::take(fields).into_iter();
                *fields = own.map(|(key, it)| (self.resolve(&key), it)).collect();
            }
            _ => {}
        });
        Ok(value)
    }

    /// Runs all clean-up actions in reverse order, and returns the failures in the order of their occurrence.
    pub(crate) async fn end(&mut self) -> Vec<String> {
        // An action stops the scenario's own environment, which must have no other user then.
        self.own = None;
        let mut errors = Vec::new();
        while let Some((what, action)) = self.undo.pop() {
            let action = AssertUnwindSafe(action).catch_unwind();
            match tokio::time::timeout(UNDO_LIMIT, action).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => errors.push(format!("{what}: {error:#}")),
                Ok(Err(panic)) => errors.push(format!("{what}: {}", text_of(&*panic))),
                Err(elapsed) => errors.push(format!("{what}: {elapsed}")),
            }
        }
        if let Some(environment) = self.shared.as_ref().filter(|_| !errors.is_empty()) {
            environment.retire();
        }
        // The reference is dropped only now, because another scenario may wait for the environment. Cucumber keeps a failed
        // scenario for its report.
        self.shared = None;
        errors
    }
}

/// Returns the text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked without a text")
}

/// Data that a scenario has sent and received. Objects have their names on the cluster.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Objects that steps describe and no step has sent yet, or the last document that was sent.
    pub(crate) described: BTreeMap<ObjectRef, Value>,
    /// Last request that wrote an object.
    pub(crate) written: BTreeMap<ObjectRef, (Answer, Write)>,
    /// Objects before the step that changed or compared them.
    pub(crate) before: BTreeMap<ObjectRef, Value>,
    /// Last response to any request of a step.
    pub(crate) last: Option<Answer>,
    /// Numbers and texts of one step for a later one, by name.
    noted: BTreeMap<&'static str, Value>,
}

impl Observed {
    pub(crate) fn wrote(&mut self, object: &ObjectRef, answer: Answer, how: Write) {
        self.last = Some(answer.clone());
        self.written.insert(object.clone(), (answer, how));
    }

    pub(crate) fn last(&self) -> Result<&Answer> {
        self.last.as_ref().context("no request was sent")
    }

    pub(crate) fn note(&mut self, name: &'static str, value: Value) {
        self.noted.insert(name, value);
    }

    pub(crate) fn noted(&self, name: &'static str) -> Result<&Value> {
        let noted = self.noted.get(name);
        noted.with_context(|| format!("no earlier step noted the {name}"))
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("names", &self.names)
            .field("observed", &self.observed)
            .finish_non_exhaustive()
    }
}

/// Time limit of one clean-up action.
const UNDO_LIMIT: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn clean_up_runs_whole_and_in_reverse_order_when_an_action_fails() {
        let ran = Rc::new(RefCell::new(Vec::new()));
        let mut scenario = Scenario::default();
        for number in 1..=3 {
            let ran = Rc::clone(&ran);
            scenario.undo(format!("action {number}"), async move {
                ran.borrow_mut().push(number);
                assert_ne!(number, 2, "a panic");
                anyhow::ensure!(number == 1, "broken");
                Ok(())
            });
        }
        let errors = scenario.end().await;
        assert_eq!(*ran.borrow(), [3, 2, 1]);
        assert_eq!(errors[0], "action 3: broken");
        assert!(errors[1].starts_with("action 2: ") && errors[1].contains("a panic"));
        assert!(scenario.end().await.is_empty(), "each action runs once");
    }

    #[rstest::rstest]
    #[tokio::test]
    async fn the_environment_is_released_after_the_clean_up_and_retired_if_that_failed(
        #[values(true, false)] fails: bool,
    ) {
        struct Pooled(Arc<AtomicBool>);

        impl Environment for Pooled {
            fn client(&self, _: &Cluster) -> anyhow::Result<Client> {
                anyhow::bail!("no cluster")
            }

            fn retire(&self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }

        let is_retired = Arc::new(AtomicBool::new(false));
        let environment = Arc::new(Pooled(Arc::clone(&is_retired)));
        let pool = Arc::downgrade(&environment);
        let shared: Option<Arc<dyn Environment>> = Some(environment);
        let mut scenario = Scenario {
            shared,
            ..Scenario::default()
        };
        let in_use = pool.clone();
        scenario.undo("restore the cluster", async move {
            assert_eq!(in_use.strong_count(), 1, "another scenario has it");
            anyhow::ensure!(!fails, "broken");
            Ok(())
        });
        assert_eq!(scenario.end().await.is_empty(), !fails);
        assert_eq!(pool.strong_count(), 0);
        assert_eq!(is_retired.load(Ordering::Relaxed), fails);
    }
}
