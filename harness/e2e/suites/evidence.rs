//! A failed example leaves a folder of its own with the diagnostics of its environment, and its error in the output. No example
//! runs after a failed clean-up.

#![cfg(test)]

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use clusters::evidence::Evidence;
use e2e::runner::{self, Environments, Suite};
use e2e::scenario::{Cluster, Environment};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use testkit::apiserver::ApiServer;
use testkit::client::Client;

const SUITE: Suite = Suite {
    name: "evidence",
    ..Suite::new("admission", 4)
};

/// An outline with two examples, of which each fails in its first step, and another feature's scenario.
const TITLES: &str = "^A Pod with the webhook's own label|^A missed Pod is evicted$";

#[tokio::test]
async fn every_failed_example_leaves_a_folder_with_diagnostics() {
    let folder = runner::state().join("evidence").join(SUITE.name);
    // An earlier run must not have left what this one is to write.
    let _ = std::fs::remove_dir_all(&folder);
    let options = runner::parse(["suite", "--name", TITLES]).unwrap();
    let selection = runner::select(&SUITE, &options).await.unwrap();
    assert_eq!(selection.scenarios, 3);
    let out = tempfile::NamedTempFile::new().unwrap();
    let written = out.reopen().unwrap();
    let passed = runner::run(&SUITE, options, selection, Rc::new(Broken), written);
    assert!(!passed.await.unwrap(), "without a cluster each step fails");
    let junit = runner::state().join("junit-evidence.xml");
    for file in [out.path(), &*junit] {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("no cluster"), "{text}");
        assert!(!text.contains("Step panicked. Captured"), "{text}");
        assert!(text.contains("features/admission/reviewed_pods.feature:"));
        assert!(!text.contains(&runner::root().display().to_string()[1..]));
    }

    let examples = below(&folder.join("reviewed_pods"));
    assert_eq!(examples.len(), 2, "{examples:?}");
    let others = below(&folder.join("evictions"));
    assert_eq!(others.len(), 1, "{others:?}");
    for example in examples.iter().chain(&others) {
        let read = |name: &str| std::fs::read_to_string(example.join(name)).unwrap();
        assert_eq!(read("runtime/pods.yaml"), "items: []");
        assert_eq!(read("missing.txt"), "runtime/node: no cluster\n");
    }
    // Results of a passed test must not look like failures.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::remove_file(junit).unwrap();
}

/// Two examples, which write a Namespace.
const EXAMPLES: &str = "^A Pod with the webhook's own label";

#[tokio::test(start_paused = true)]
async fn no_scenario_runs_in_an_environment_after_a_failed_clean_up() {
    let suite = Suite {
        name: "clean-up",
        ..Suite::new("admission", 1)
    };
    let options = runner::parse(["suite", "--name", EXAMPLES]).unwrap();
    let selection = runner::select(&suite, &options).await.unwrap();
    assert_eq!(selection.scenarios, 2);
    let environments = Rc::new(Undeletable::default());
    let out = tempfile::NamedTempFile::new().unwrap();
    let written = out.reopen().unwrap();
    let ran = runner::run(
        &suite,
        options,
        selection,
        Rc::clone(&environments),
        written,
    );
    assert!(!ran.await.unwrap());
    let text = std::fs::read_to_string(out.path()).unwrap();
    assert_eq!(environments.0.get(), 1, "{text}");
    assert!(text.contains("clean-up: delete Namespace"), "{text}");
    assert!(
        text.contains("not run: the clean-up of \"A Pod with"),
        "{text}"
    );
    std::fs::remove_dir_all(runner::state().join("evidence").join(suite.name)).unwrap();
    std::fs::remove_file(runner::state().join("junit-clean-up.xml")).unwrap();
}

/// Environments of an API server that deletes nothing, and how many scenarios have used it.
#[derive(Default)]
struct Undeletable(Cell<usize>);

impl Environments for Undeletable {
    async fn next(&self, _: Vec<String>) -> anyhow::Result<Arc<dyn Environment>> {
        self.0.set(self.0.get() + 1);
        let server = ApiServer::new();
        server.fault("delete namespaces").status(500);
        Ok(Arc::new(InMemory(Client::new(server.client()))))
    }

    async fn stop(self) -> anyhow::Result<()> {
        Ok(())
    }
}

struct InMemory(Client);

impl Environment for InMemory {
    fn client(&self, _: &Cluster) -> anyhow::Result<Client> {
        Ok(self.0.clone())
    }
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|it| it.unwrap().path()).collect()
}

/// An environment whose cluster does not answer, so that the first step of each scenario fails.
struct Broken;

impl Environments for Broken {
    async fn next(&self, _: Vec<String>) -> anyhow::Result<Arc<dyn Environment>> {
        Ok(Arc::new(Self))
    }

    async fn stop(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Environment for Broken {
    fn client(&self, _: &Cluster) -> anyhow::Result<Client> {
        anyhow::bail!("no cluster")
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        evidence.keep("runtime/pods.yaml", "items: []");
        evidence.keep_result("runtime/node", Err::<&str, _>("no cluster"));
        futures::future::ready(()).boxed_local()
    }
}
