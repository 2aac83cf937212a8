//! `cargo demo`: shows the documented flow on clusters. A Runtime is created on KCP, and KIM provisions a cluster, which gets
//! the webhook. The Pod of a module runs there only because the webhook changed it. A change of the Kyma on the runtime is
//! reported to KCP.
//!
//! The product runs with its default settings. KEB, KIM and KLM are the doubles of the flow suite. All displayed data is read
//! from an API server. The demo fails if a step does not happen.

mod report;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use doubles::keb::Instance;
use jiff::Timestamp;
use serde_json::Value;
use testkit::matching::differences;
use testkit::until::{holds, until};

use clusters::cluster::ProviderChoice;
use clusters::evidence::Evidence;
use clusters::images::{self, Role};
use clusters::progress;
use clusters::setup;
use clusters::workspace;
use e2e::flow::{Flow, STEPS, instance};
use e2e::landscape;

/// Data that the demo has read.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Name of each step, and seconds since the first step.
    steps: Vec<(&'static str, i64)>,
    /// Template of the module's Deployment, and its Pod.
    template: Value,
    pod: Value,
    /// Differences between the Pod and the expectation of the scenario.
    differences: Vec<String>,
    /// Time from the change on the runtime to the reconcile on KCP.
    reported: Duration,
}

/// Sets the machine up, shows the flow, and removes all started clusters, unless `keep`. Diagnostics of a failure are in
/// `target/harness/evidence/demo`.
pub(crate) async fn run(choice: Option<ProviderChoice>, keep: bool) -> Result<()> {
    let begin = Instant::now();
    let setup = setup::run_with_product(choice).await?;
    // The images are built before any measurement.
    for role in Role::ALL {
        images::product(role).await?;
    }
    let scenario = landscape::scenario("eu-sovereign")?;
    let flow = Box::pin(Flow::start_with_defaults(&setup, keep, &scenario)).await?;
    let set_up = begin.elapsed();
    let own = instance(api::kcp::MODE_DIRECT, &["pause"]);
    let seen = Box::pin(show(&flow, &own)).await;
    if seen.is_err()
        && let Ok(evidence) = Evidence::in_folder(workspace::state().join("evidence/demo"))
    {
        flow.collect(&evidence).await;
        progress::say(&format!("diagnostics: {}", evidence.folder.display()));
    }
    if keep && let Ok(seen) = &seen {
        let kubeconfigs = [flow.kcp_kubeconfig(), flow.kubeconfig(&own)?];
        anstream::print!("{}", report::flow(seen, Some(&kubeconfigs)));
        anstream::print!("{}", report::closing(true, begin.elapsed(), set_up));
        progress::say("press Ctrl-C to remove the runtime; the control plane is kept");
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    let removed = progress::show("KEB deprovisions the Runtime", flow.deprovision(&own)).await;
    let stopped = Box::pin(flow.stop()).await;
    let seen = seen?;
    removed.and(stopped)?;
    if !keep {
        anstream::print!("{}", report::flow(&seen, None));
        anstream::print!("{}", report::closing(false, begin.elapsed(), set_up));
    }
    ensure!(
        seen.differences.is_empty(),
        "the Pod is not as the scenario expects: {:?}",
        seen.differences
    );
    Ok(())
}

async fn show(flow: &Flow, own: &Instance) -> Result<Seen> {
    let provision = flow.provision(own, LIMIT);
    progress::show("KEB creates a Runtime; its Kyma becomes Ready", provision).await?;
    let mut steps = Vec::new();
    let mut first: Option<Timestamp> = None;
    for (_, step) in STEPS {
        let time = flow.time_of(own, step).await?;
        let begin = *first.get_or_insert(time);
        steps.push((step, time.as_second() - begin.as_second()));
    }
    let (template, pod) = flow.module(own).await?;
    let scenario = landscape::scenario("eu-sovereign")?;
    let workload = scenario
        .landscape
        .workloads
        .first()
        .context("the scenario has no workload")?;
    let expected = Value::Object(workload.expect.pod.clone());
    let change = async {
        // Events of the installation are repeated five seconds later and must not be counted as this change.
        let is_idle = || async {
            let before = flow.reconciles(own).await?;
            let is_same = || async {
                let now = flow.reconciles(own).await?;
                ensure!(now == before, "{now} reconciles, {before} before");
                anyhow::Ok(())
            };
            holds("KLM has nothing to do", IDLE, is_same).await?;
            anyhow::Ok(before)
        };
        let before = until("KLM has nothing to do", LIMIT, is_idle).await?;
        flow.edit_kyma(own).await?;
        let begin = Instant::now();
        let is_seen = || async {
            ensure!(flow.reconciles(own).await? > before, "no reconcile");
            Ok(())
        };
        until("KLM reconciles the Kyma", LIMIT, is_seen).await?;
        anyhow::Ok(begin.elapsed())
    };
    let reported = progress::show("the Kyma is changed on the runtime", change).await?;
    Ok(Seen {
        steps,
        differences: differences(&expected, &pod),
        template,
        pod,
        reported,
    })
}

/// Period without reconciles; longer than the delay of a follow-up event.
const IDLE: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_mins(3);
