//! The product's controller and two hundred simulated runtimes, most of them with an injected fault.
//!
//! Invariant: the controller is the binary that ships, the control plane a real API server; chance is the fleet's, which
//! is the same in every run. Every runtime has converged before its fault is injected, so that one with the second
//! version got it despite the fault. Runtimes that never answer are part of `harness bench fanout`.

#![cfg(test)]

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::bootstrapper::{ConditionStatus, READY, RuntimeBootstrapper};
use api::runtimes::MODE_DIRECT;
use bench::fleet::{
    Certificate, Conditions, Faults, Fleet, FleetOptions, Selection, content_of, runtime_id,
};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::control_plane::{ControlPlane, Member, Sources, controller_flags};
use clusters::progress::{Progress, tail};
use clusters::run::Run;
use clusters::setup::Setup;
use clusters::{images, workspace};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use testkit::until::until;
use tokio::process::{Child, Command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_some_runtimes_do_not_affect_others() {
    let binary = images::binary(&Progress::new(), images::Profile::E2e)
        .await
        .unwrap();
    let setup = Setup::load().unwrap();
    let run = Run::begin(false).await.unwrap();
    let options = ClusterOptions::new("faults").without_node();
    let cluster = Cluster::start(&run, &setup.provider, &options)
        .await
        .unwrap();
    let ran = run_cases(&cluster, &binary).await;
    cluster.stop().await.unwrap();
    run.end().await.unwrap();
    let log = workspace::logs().join(LOG);
    assert!(ran.is_ok(), "{ran:?}\n{}", tail(&log, 20));
}

async fn run_cases(cluster: &Cluster, binary: &Path) -> anyhow::Result<()> {
    let crds = Command::new(binary).arg("crds").output().await?;
    cluster.apply(std::str::from_utf8(&crds.stdout)?).await?;
    let control_plane = ControlPlane::prepare(cluster.client(), Some(MODE_DIRECT)).await?;
    let fleet = Fleet::start(FleetOptions {
        runtimes: cases().len() * OF_EACH,
        ..FleetOptions::default()
    })
    .await?;
    let all = 0..cases().len() * OF_EACH;
    let members = all.clone().map(|number| {
        let kubeconfig = fleet.kubeconfig(number)?;
        anyhow::Ok(Member { number, kubeconfig })
    });
    control_plane
        .fill(&members.collect::<anyhow::Result<Vec<_>>>()?)
        .await?;
    let (first, second) = (Sources::of_version(1)?, Sources::of_version(2)?);
    control_plane.put_sources(&first).await?;
    let _controller = start(binary, cluster.kubeconfig_path())?;
    have(&fleet, all.clone(), &first).await?;
    // Content is written before the installation ends, which would otherwise write to another cluster.
    let resources = Api::<RuntimeBootstrapper>::all(cluster.client());
    until("the runtimes are as they should be", PATIENCE, || {
        are_ready(&resources, all.len())
    })
    .await?;

    for (case, numbers) in cases().iter().zip(groups()) {
        for number in numbers {
            let mut conditions = case.conditions.clone();
            // Two runtimes with the same cluster would be another fault.
            conditions.identity = conditions.identity.map(|it| format!("{it}-{number}"));
            fleet.set(&Selection::Numbers(vec![number]), conditions);
        }
    }
    control_plane.put_sources(&second).await?;
    for (case, numbers) in cases().iter().zip(groups()) {
        if case.refused.is_none() {
            let arrived = have(&fleet, numbers, &second).await;
            arrived.with_context(|| format!("{}: {:?}", case.what, fleet.totals()))?;
        }
    }
    // Each of the others was tried as long as the slowest that arrived.
    for (case, numbers) in cases().iter().zip(groups()) {
        if let Some(reason) = case.refused {
            let said = until("each says why", PATIENCE, || {
                are_refused(&resources, numbers.clone(), reason)
            });
            said.await.context(case.what)?;
            let kept = has(&fleet, numbers, &first);
            kept.with_context(|| format!("{}: written to", case.what))?;
        }
    }
    let counts = fleet.totals().counts;
    ensure!(counts.spoiled > 0, "nothing went wrong: {counts:?}");
    ensure!(counts.foreign_writes == 0, "gone astray: {counts:?}");
    Ok(())
}

async fn are_refused(
    resources: &Api<RuntimeBootstrapper>,
    numbers: Range<usize>,
    reason: &str,
) -> anyhow::Result<()> {
    let resources = resources.list(&ListParams::default()).await?;
    for name in numbers.map(runtime_id) {
        let resource = resources.iter().find(|it| it.name_any() == name);
        let status = resource.and_then(|it| it.status.as_ref());
        let mut conditions = status.iter().flat_map(|status| &status.conditions);
        let said = conditions.find(|it| it.kind == READY);
        ensure!(
            said.is_some_and(|it| it.status == ConditionStatus::False && it.reason == reason),
            "{name}: {said:?}"
        );
    }
    Ok(())
}

async fn are_ready(resources: &Api<RuntimeBootstrapper>, expected: usize) -> anyhow::Result<()> {
    let resources = resources.list(&ListParams::default()).await?;
    let ready = resources.iter().filter(|resource| {
        let status = resource.status.as_ref();
        let mut conditions = status.iter().flat_map(|status| &status.conditions);
        conditions.any(|it| it.kind == READY && it.status == ConditionStatus::True)
    });
    let ready = ready.count();
    ensure!(ready == expected, "{ready} of {expected}");
    Ok(())
}

/// What is wrong with some runtimes.
struct FaultCase {
    what: &'static str,
    conditions: Conditions,
    /// The reason of `Ready` for not writing to them; those without one converge all the same.
    refused: Option<&'static str>,
}

fn cases() -> Vec<FaultCase> {
    let case = |what, conditions, refused| FaultCase {
        what,
        conditions,
        refused,
    };
    let faults = |faults| Conditions {
        faults,
        ..Conditions::default()
    };
    let none = Faults::default();
    let throttled = Faults {
        throttled: SHARE,
        retry_after: 1,
        ..none
    };
    let failing = Faults {
        failing: SHARE,
        ..none
    };
    // Of the writes alone.
    let conflicting = Faults {
        conflicting: SHARE * 8,
        ..none
    };
    let reset = Faults {
        reset: SHARE,
        ..none
    };
    let slow = Conditions {
        drip: Duration::from_millis(2),
        ..Conditions::default()
    };
    let expired = Conditions {
        certificate: Certificate::Expired,
        ..Conditions::default()
    };
    let another = Conditions {
        identity: Some("00000000-another-cluster".to_owned()),
        ..Conditions::default()
    };
    vec![
        case("nothing", Conditions::default(), None),
        case("429", faults(throttled), None),
        case("500", faults(failing), None),
        case("409", faults(conflicting), None),
        case("connections are reset", faults(reset), None),
        case("bodies drip", slow, None),
        case(
            "the certificate is over",
            expired,
            Some("TLSHandshakeFailed"),
        ),
        case(
            "another cluster is there",
            another,
            Some("ClusterUIDChanged"),
        ),
    ]
}

fn groups() -> impl Iterator<Item = Range<usize>> {
    (0..).map(|number| number * OF_EACH..(number + 1) * OF_EACH)
}

/// Waits until runtimes have what the sources say.
async fn have(fleet: &Fleet, numbers: Range<usize>, sources: &Sources) -> anyhow::Result<()> {
    until("the runtimes have it", PATIENCE, || async {
        has(fleet, numbers.clone(), sources)
    })
    .await?;
    Ok(())
}

fn has(fleet: &Fleet, numbers: Range<usize>, sources: &Sources) -> anyhow::Result<()> {
    for (place, object) in Sources::places().iter().zip(&sources.objects()) {
        let wanted = Some(content_of(object));
        let entries = fleet.entries(place);
        let others = entries[numbers.clone()]
            .iter()
            .filter(|entry| entry.content != wanted)
            .map(|entry| entry.runtime);
        let others: Vec<usize> = others.collect();
        ensure!(others.is_empty(), "{}: not {others:?}", place.name);
    }
    Ok(())
}

fn start(binary: &Path, kubeconfig: &Path) -> anyhow::Result<Child> {
    std::fs::create_dir_all(workspace::logs())?;
    let mut command = Command::new(binary);
    command
        .args(controller_flags(kubeconfig, "faults"))
        // Most of them fail now and then, and all of them shall try.
        .arg("--max-failures=100%")
        .arg("--health-probe-bind-address=127.0.0.1:0")
        .arg("--metrics-bind-address=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(File::create(workspace::logs().join(LOG))?)
        .kill_on_drop(true);
    command.spawn().context("the controller")
}

/// Two hundred in all.
const OF_EACH: usize = 25;
/// Of a thousand requests: a pass over a runtime asks dozens, and most shall come to their end.
const SHARE: u16 = 10;
const LOG: &str = "faults-controller.log";
/// A runtime that is refused again and again is left alone for longer and longer.
const PATIENCE: Duration = Duration::from_mins(5);
