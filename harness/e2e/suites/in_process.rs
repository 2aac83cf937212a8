//! The scenarios of features/admission that are pure decisions, with the webhook's router in this process.
//!
//! Every scenario has its own stand-in for the API server, so scenarios are independent.

#[path = "in_process/stand_in.rs"]
mod stand_in;

use std::rc::Rc;
use std::sync::Arc;

use e2e::runner::{self, Environments, Options, Suite};
use e2e::scenario::{Cluster, Environment};
use testkit::client::Client;

use stand_in::StandIn;

const SUITE: Suite = Suite {
    name: "admission-in-process",
    selects: |tags| !tags.contains("cluster") && !tags.contains("node"),
    ..Suite::new("admission", 16)
};

#[tokio::test]
async fn admission_decisions() {
    let options = Options::default();
    let selection = runner::select(&SUITE, &options).await.unwrap();
    let scenarios = selection.scenarios;
    std::fs::create_dir_all(runner::state()).unwrap();
    let log = runner::state().join("in-process.log");
    let out = std::fs::File::create(&log).unwrap();
    let passed = runner::run(&SUITE, options, selection, Rc::new(InProcess), out);
    let passed = passed.await.unwrap();
    if !passed {
        println!("{}", std::fs::read_to_string(&log).unwrap());
        // Without a message and a backtrace, so that the summary is the last that is printed.
        std::panic::resume_unwind(Box::new(()));
    }
    // A lower number would mean that the tags of the features exclude scenarios that belong here.
    assert!(scenarios >= 90, "only {scenarios} scenarios");
}

struct InProcess;

impl Environments for InProcess {
    const ARE_SHARED: bool = false;

    async fn next(&self, _: Vec<String>) -> anyhow::Result<Arc<dyn Environment>> {
        let client = Client::new(StandIn::start()?.client());
        Ok(Arc::new(Decisions { client }))
    }

    async fn stop(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// One cluster: the stand-in.
struct Decisions {
    client: Client,
}

impl Environment for Decisions {
    fn client(&self, cluster: &Cluster) -> anyhow::Result<Client> {
        anyhow::ensure!(
            *cluster == Cluster::Runtime(None),
            "in process there is one runtime and no control plane"
        );
        Ok(self.client.clone())
    }
}
