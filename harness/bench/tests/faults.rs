//! The product's controller and 200 simulated runtimes, most of them with an injected fault.
//!
//! The control plane is a real API server. Every runtime has converged before its fault is injected, so one with the second
//! version got it despite the fault. Runtimes that never respond are part of `harness bench fanout`.

#![cfg(test)]

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::bootstrapper::{ConditionStatus, READY, RuntimeBootstrapper};
use api::runtimes::MODE_DIRECT;
use bench::fleet::{Conditions, Expected, Fleet, FleetOptions, runtime_id};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::control_plane::{ControlPlane, Sources, controller_flags};
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
    let progress = Progress::new();
    let binary = images::binary(&progress, images::Profile::E2e).await;
    let (binary, setup) = (binary.unwrap(), Setup::load().unwrap());
    let run = Run::begin(false).await.unwrap();
    let options = ClusterOptions::new("faults").without_node();
    let start = Cluster::start(&run, &setup.provider, &options);
    let cluster = start.await.unwrap();
    let ran = run_cases(&cluster, &binary).await;
    cluster.stop().await.unwrap();
    run.end().await.unwrap();
    let log = tail(&workspace::logs().join(LOG), 20);
    assert!(ran.is_ok(), "{ran:?}\n{log}");
}

async fn run_cases(cluster: &Cluster, binary: &Path) -> anyhow::Result<()> {
    let cases = cases();
    let all = 0..cases.len() * OF_EACH;
    let crds = Command::new(binary).arg("crds").output().await?;
    cluster.apply(str::from_utf8(&crds.stdout)?).await?;
    let control_plane = ControlPlane::prepare(cluster.client(), Some(MODE_DIRECT)).await?;
    let options = FleetOptions {
        runtimes: all.end,
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(options).await?;
    control_plane.fill(&fleet.members()?).await?;
    let (first, second) = (Sources::of_version(1)?, Sources::of_version(2)?);
    control_plane.put_sources(&first).await?;
    let _controller = start(binary, cluster.kubeconfig_path())?;
    let have = async |what: &str, numbers: Range<usize>, sources: &Sources| {
        let has = || async { has(&fleet, numbers.clone(), sources) };
        let arrived = until("the sources on the runtimes", PATIENCE, has).await;
        arrived.with_context(|| what.to_owned())
    };
    have("first version", all.clone(), &first).await?;
    // Sources are written before the installation ends, which would otherwise write to another cluster.
    let resources = Api::<RuntimeBootstrapper>::all(cluster.client());
    let ready = || has_condition(&resources, all.clone(), ConditionStatus::True, None);
    until("every runtime is ready", PATIENCE, ready).await?;

    for (case, numbers) in cases.iter().zip(groups()) {
        for number in numbers {
            let mut conditions = case.conditions.clone();
            // Two runtimes with the same cluster would be another fault.
            conditions.identity = conditions.identity.map(|it| format!("{it}-{number}"));
            fleet.set(number..number + 1, &conditions);
        }
    }
    control_plane.put_sources(&second).await?;
    // Those that do not converge come last, so each was tried as long as the slowest that did.
    for (case, numbers) in cases.iter().zip(groups()) {
        let Some(reason) = case.reason else {
            have(case.what, numbers, &second).await?;
            continue;
        };
        let status = ConditionStatus::False;
        let reported = || has_condition(&resources, numbers.clone(), status, Some(reason));
        let reported = until("each has the reason", PATIENCE, reported).await;
        reported.context(case.what)?;
        let kept = has(&fleet, numbers, &first);
        kept.with_context(|| format!("{}: written to", case.what))?;
    }
    let counts = fleet.counts();
    ensure!(counts.faults > 0, "no fault was injected: {counts:?}");
    ensure!(
        counts.foreign_writes == 0,
        "writes to other clusters: {counts:?}"
    );
    Ok(())
}

/// Whether condition `Ready` of all runtimes has this status and reason.
async fn has_condition(
    resources: &Api<RuntimeBootstrapper>,
    numbers: Range<usize>,
    status: ConditionStatus,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let resources = resources.list(&ListParams::default()).await?;
    for name in numbers.map(runtime_id) {
        let resource = resources.iter().find(|it| it.name_any() == name);
        let status_of = resource.and_then(|it| it.status.as_ref());
        let mut conditions = status_of.into_iter().flat_map(|it| &it.conditions);
        let ready = conditions.find(|it| it.kind == READY);
        let same = |reason| ready.is_some_and(|it| it.reason == reason);
        let has_status = ready.is_some_and(|it| it.status == status);
        ensure!(has_status && reason.is_none_or(same), "{name}: {ready:?}");
    }
    Ok(())
}

/// Runtimes with a fault.
struct FaultCase {
    what: &'static str,
    conditions: Conditions,
    /// The reason of `Ready` for not writing to them; those without one converge all the same.
    reason: Option<&'static str>,
}

fn cases() -> [FaultCase; 8] {
    let case = |what, reason, change: fn(&mut Conditions)| FaultCase {
        what,
        conditions: Conditions::with(change),
        reason,
    };
    [
        case("no fault", None, |_| ()),
        case("status 429", None, |it| {
            (it.faults.throttled, it.faults.retry_after) = (SHARE, 1);
        }),
        case("status 500", None, |it| it.faults.failing = SHARE),
        // Of the writes alone.
        case("status 409", None, |it| it.faults.conflicting = SHARE * 8),
        case("resets", None, |it| it.faults.reset = SHARE),
        case("slow bodies", None, |it| it.drip = Duration::from_millis(2)),
        case("expired certificate", Some("TLSHandshakeFailed"), |it| {
            it.expired = true;
        }),
        case("another cluster", Some("ClusterUIDChanged"), |it| {
            it.identity = Some("00000000-another-cluster".to_owned());
        }),
    ]
}

fn groups() -> impl Iterator<Item = Range<usize>> {
    (0..).map(|number| number * OF_EACH..(number + 1) * OF_EACH)
}

/// Whether all runtimes have these sources.
fn has(fleet: &Fleet, numbers: Range<usize>, sources: &Sources) -> anyhow::Result<()> {
    for expected in Expected::of(sources) {
        let arrivals = fleet.arrivals(&expected, Duration::ZERO);
        let mut others = numbers.clone().filter(|it| arrivals[*it].is_none());
        let first = others.next();
        ensure!(first.is_none(), "{}: not {first:?}", expected.place.name);
    }
    Ok(())
}

fn start(binary: &Path, kubeconfig: &Path) -> anyhow::Result<Child> {
    std::fs::create_dir_all(workspace::logs())?;
    let mut command = Command::new(binary);
    command
        .args(controller_flags(kubeconfig, "faults"))
        // Most runtimes fail at times, and all of them are to be tried.
        .arg("--max-failures=100%")
        .arg("--health-probe-bind-address=127.0.0.1:0")
        .arg("--metrics-bind-address=127.0.0.1:0")
        .stdout(Stdio::null())
        .stderr(File::create(workspace::logs().join(LOG))?)
        .kill_on_drop(true);
    command.spawn().context("the controller")
}

/// 200 in all.
const OF_EACH: usize = 25;
/// Per mille: a reconcile of a runtime has dozens of requests, and most reconciles are to succeed.
const SHARE: u16 = 10;
const LOG: &str = "faults-controller.log";
/// The time between two reconciles of a runtime that fails increases.
const PATIENCE: Duration = Duration::from_mins(5);
