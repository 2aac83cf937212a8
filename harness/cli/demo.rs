//! `cargo demo`: the main job on real clusters, in three acts. One Deployment, without the webhook and with it; a pull
//! Secret that changes on the control plane and arrives on a runtime; a change on a runtime of which the control plane
//! hears.
//!
//! Invariant: nothing is staged: what is shown was read from the API server or asked from inside a container, and the
//! demo fails when it is not what the scenario expects. The acts are played at once, each on clusters of its own, and
//! shown one after the other. Whatever happened, what was started is taken down, unless it shall be kept. Deliberately
//! absent: knowledge of the landscape; it is the first file in `scenarios/`.
#![expect(
    clippy::print_stdout,
    reason = "this file talks to the person at the terminal"
)]

mod act;
mod diff;
mod event;
mod paint;
mod pod;
mod preview;
mod rotation;
mod screen;
mod stage;

use std::time::{Duration, Instant};

use anyhow::ensure;

use act::Story;
use clusters::cluster::ProviderChoice;
use clusters::evidence::Evidence;
use clusters::images::{self, Role};
use clusters::progress::Progress;
use clusters::setup::{self, Setup};
use clusters::workspace;
use e2e::landscape::Scenario;
use paint::Paint;
use stage::Stage;

/// Sets up, shows the landscape, takes everything down unless `keep`.
///
/// # Errors
/// When something does not come up, or the Pods do not come out as the scenario expects; evidence is then in
/// `target/harness/evidence/demo`.
pub async fn run(
    progress: &Progress,
    choice: Option<ProviderChoice>,
    keep: bool,
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let scenario = Scenario::first()?;
    let setup = setup::run_with_product(progress, choice).await?;
    images(progress).await?;
    let ready = begin.elapsed();
    let (story, rotation, arrival) = tokio::join!(
        Box::pin(first_act(progress, &setup, &scenario, keep)),
        Box::pin(rotation::play(progress, &setup, keep)),
        Box::pin(event::play(progress, &setup, keep)),
    );
    let (paint, story) = (Paint::of_this_terminal(), story?);
    print!("{}", screen::render(&story, paint));
    print!("{}", rotation::render(&rotation?, paint));
    print!("{}", event::render(&arrival?, paint));
    println!("{}", closing(&story, begin.elapsed(), ready));
    ensure!(
        story.differences.is_empty(),
        "the Pod is not as {} expects",
        scenario.shown()
    );
    Ok(())
}

/// All that the acts need, so that none of them builds beside another.
async fn images(progress: &Progress) -> anyhow::Result<()> {
    images::probe(progress).await?;
    for role in Role::ALL {
        images::product(progress, role).await?;
    }
    images::gateway(progress).await?;
    Ok(())
}

async fn first_act(
    progress: &Progress,
    setup: &Setup,
    scenario: &Scenario,
    keep: bool,
) -> anyhow::Result<Story> {
    let stage = Stage::set(progress, setup, keep).await?;
    let story = Box::pin(act::play(progress, &stage, scenario)).await;
    if story.is_err() {
        keep_evidence(progress, &stage).await;
    }
    let struck = progress
        .show("take the first cluster down", stage.strike())
        .await;
    let story = story?;
    struck.map(|()| story)
}

/// Never in the way of what went wrong first, nor of taking everything down.
async fn keep_evidence(progress: &Progress, stage: &Stage) {
    match Evidence::in_folder(workspace::state().join("evidence/demo")) {
        Ok(evidence) => {
            let collected = stage.cluster.collect_evidence(&evidence);
            progress.show("collect evidence", collected).await;
            progress.say(&format!("evidence is in {}", evidence.folder().display()));
        }
        Err(error) => progress.say(&format!("evidence is lost: {error}")),
    }
}

fn closing(story: &Story, total: Duration, set_up: Duration) -> String {
    let left = if story.stays {
        "the cluster stays; remove it with: cargo harness cluster down"
    } else {
        "everything is taken down; keep it with: cargo demo --keep"
    };
    format!(
        "\n  {:.1} s in all, {:.1} s of it set-up and builds\n  {left}\n",
        total.as_secs_f64(),
        set_up.as_secs_f64()
    )
}
