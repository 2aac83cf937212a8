//! `cargo demo`: the product on real clusters, in three demo steps: one Deployment without and with the webhook; a pull
//! Secret that changes on KCP; a change on a runtime that is reported to KCP.
//!
//! Everything shown was read from an API server or in a container, and the demo fails when it is not what the scenario
//! expects. The steps run at the same time, each on clusters of its own, and are printed in order. The landscape is the
//! first file in `scenarios/`.

mod comparison;
mod pod;
mod report;

use std::time::Instant;

use anyhow::ensure;

use clusters::cluster::ProviderChoice;
use clusters::evidence::Evidence;
use clusters::images::{self, Role};
use clusters::progress;
use clusters::setup::{self, Setup};
use clusters::workspace;
use comparison::{Comparison, Environment};
use e2e::landscape::{Scenario, shown};
use e2e::synchronization::Clusters;
use e2e::watching::Watching;

/// Sets the machine up, runs the demo steps, and removes everything that was started, unless `keep`. It fails when the Pods
/// are not as the scenario expects; diagnostics are then in `target/harness/evidence/demo`.
pub(crate) async fn run(choice: Option<ProviderChoice>, keep: bool) -> anyhow::Result<()> {
    let begin = Instant::now();
    let scenario = Scenario::first()?;
    let setup = setup::run_with_product(choice).await?;
    // Before the steps, so that none of them builds while another one does.
    images::probe().await?;
    for role in Role::ALL {
        images::product(role).await?;
    }
    images::gateway(&setup).await?;
    let set_up = begin.elapsed();
    let (comparison, rotation, delivery) = tokio::join!(
        Box::pin(compare(&setup, &scenario, keep)),
        Box::pin(rotate(&setup, keep)),
        Box::pin(watch(&setup, keep)),
    );
    let comparison = comparison?;
    anstream::print!("{}", report::comparison(&comparison));
    let note = "a controller on KCP, the webhook on a runtime";
    let rotation = report::step("A pull Secret changes on KCP", note, &rotation?);
    anstream::print!("{rotation}");
    let note = "a watcher on a runtime, a gateway and a listener on KCP";
    let delivery = report::step("A change on a runtime is reported to KCP", note, &delivery?);
    anstream::print!("{delivery}");
    let is_kept = comparison.kept.is_some();
    anstream::println!("{}", report::closing(is_kept, begin.elapsed(), set_up));
    let file = shown(&scenario.file);
    ensure!(
        comparison.differences.is_empty(),
        "the Pod is not as {file} expects"
    );
    Ok(())
}

async fn compare(setup: &Setup, scenario: &Scenario, keep: bool) -> anyhow::Result<Comparison> {
    let environment = Environment::start(setup, keep).await?;
    let compared = Box::pin(environment.compare(scenario)).await;
    let folder = workspace::state().join("evidence/demo");
    if compared.is_err()
        && let Ok(evidence) = Evidence::in_folder(folder)
    {
        environment.cluster.collect_evidence(&evidence).await;
        progress::say(&format!("diagnostics: {}", evidence.folder.display()));
    }
    ended(compared, environment.stop().await)
}

async fn rotate(setup: &Setup, keep: bool) -> anyhow::Result<[String; 3]> {
    let environment = Clusters::start(setup, keep).await?;
    let title = "change the pull Secret on KCP";
    let rotation = progress::show(title, environment.rotate()).await;
    ended(rotation, Box::pin(environment.stop()).await)
}

async fn watch(setup: &Setup, keep: bool) -> anyhow::Result<[String; 4]> {
    let environment = Watching::start(setup, keep).await?;
    let title = "create Kymas on a runtime";
    let delivery = progress::show(title, environment.deliver()).await;
    ended(delivery, Box::pin(environment.stop()).await)
}

/// The result of a step whose clusters were stopped; its error comes before that of the stop.
fn ended<T>(result: anyhow::Result<T>, stopped: anyhow::Result<()>) -> anyhow::Result<T> {
    result.and_then(|result| stopped.map(|()| result))
}
