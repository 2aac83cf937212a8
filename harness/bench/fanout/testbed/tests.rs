//! The controller and 200 simulated runtimes, most of them with an injected fault.
//!
//! Every runtime has converged before its fault is injected, so a runtime with the second version received it despite the
//! fault. Runtimes that never respond are part of `harness bench fanout`.

use std::ops::Range;

use anyhow::Context as _;
use api::bootstrapper::{ConditionStatus, READY, RuntimeBootstrapper};
use clusters::control_plane::runtime_id;
use clusters::images::{self, Profile};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::*;
use crate::fleet::Fault;
use crate::report::{Effort, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_some_runtimes_do_not_affect_others() {
    images::binary(Profile::E2e).await.unwrap();
    let options = Options {
        check: true,
        effort: Effort { quick: true },
        core: Some(0),
    };
    let bench = Bench::new(&options).unwrap();
    let settings = Settings {
        runtimes: cases().len() * OF_EACH,
        production: false,
        watchers: false,
    };
    let mut testbed = Testbed::start(&bench, settings).await.unwrap();
    let mut flags = testbed.flags();
    // Most runtimes fail sometimes, and the controller must try all of them.
    flags.push("--max-failures=100%".to_owned());
    let mut controller = testbed.controller.start(flags).unwrap();
    let ran = run_cases(&mut testbed).await;
    let running = controller.check_running();
    testbed.end().await.unwrap();
    running.and(ran).unwrap();
}

async fn run_cases(testbed: &mut Testbed<'_>) -> anyhow::Result<()> {
    let cases = cases();
    let first = Expected::of(&testbed.sources);
    let converged = testbed.converged(0);
    converged.await.context("first version")?;
    // The controller writes sources before the installation ends. Without this wait, the installation would write to another
    // cluster.
    let resources = Api::<RuntimeBootstrapper>::all(testbed.cluster.client());
    let all = 0..testbed.settings.runtimes;
    let ready = || has_condition(&resources, all.clone(), ConditionStatus::True, None);
    until("every runtime is ready", PATIENCE, ready).await?;

    for ((_, _, conditions), numbers) in cases.iter().zip(groups()) {
        for number in numbers {
            let mut conditions = conditions.clone();
            // Two runtimes with the same cluster would be a different fault.
            conditions.identity = conditions.identity.map(|it| format!("{it}-{number}"));
            testbed.fleet.set(number..number + 1, &conditions);
        }
    }
    testbed.change(Change::AllThree).await?;
    let second = Expected::of(&testbed.sources);
    // Runtimes that never converge are last, so that the controller tried them as long as the slowest others.
    for ((what, reason, _), numbers) in cases.iter().zip(groups()) {
        let Some(reason) = *reason else {
            let arrived = || async { have(&testbed.fleet, numbers.clone(), &second) };
            let arrived = until("the sources on the runtimes", PATIENCE, arrived).await;
            arrived.context(*what)?;
            continue;
        };
        let status = ConditionStatus::False;
        let reported = || has_condition(&resources, numbers.clone(), status, Some(reason));
        let reported = until("each has the reason", PATIENCE, reported).await;
        reported.context(*what)?;
        let kept = have(&testbed.fleet, numbers, &first);
        kept.with_context(|| format!("{what}: written to"))?;
    }
    let counts = testbed.fleet.counts();
    ensure!(counts.faults > 0, "no fault was injected: {counts:?}");
    ensure!(counts.foreign_writes == 0, "other clusters: {counts:?}");
    Ok(())
}

/// Fails unless condition `Ready` of all runtimes has this status and reason.
async fn has_condition(
    resources: &Api<RuntimeBootstrapper>,
    numbers: Range<usize>,
    status: ConditionStatus,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let resources = resources.list(&ListParams::default()).await?;
    let ready = |resource: &RuntimeBootstrapper| {
        let conditions = &resource.status.as_ref()?.conditions;
        conditions.iter().find(|it| it.kind == READY).cloned()
    };
    for name in numbers.map(runtime_id) {
        let resource = resources.iter().find(|it| it.name_any() == name);
        let ready = resource.and_then(ready);
        let is_expected = ready.as_ref().is_some_and(|it| {
            it.status == status && reason.is_none_or(|reason| it.reason == reason)
        });
        ensure!(is_expected, "{name}: {ready:?}");
    }
    Ok(())
}

/// Fails unless all of these runtimes have the objects.
fn have(fleet: &Fleet, numbers: Range<usize>, objects: &[Expected]) -> anyhow::Result<()> {
    for expected in objects {
        let arrivals = fleet.arrivals(expected, Duration::ZERO);
        let first = numbers.clone().find(|it| arrivals[*it].is_none());
        ensure!(first.is_none(), "{}: not {first:?}", expected.place.name);
    }
    Ok(())
}

fn groups() -> impl Iterator<Item = Range<usize>> {
    (0..).map(|number| number * OF_EACH..(number + 1) * OF_EACH)
}

/// Returns faults, the reason of `Ready` if the controller must not write to such a runtime (`None` if the runtime converges),
/// and conditions.
fn cases() -> [(&'static str, Option<&'static str>, Conditions); 8] {
    let faulty = Conditions::faulty;
    let resets = [
        (Fault::ResetBefore, SHARE / 2),
        (Fault::ResetAfter, SHARE / 2),
    ];
    let mut special = [(); 3].map(|()| Conditions::default());
    special[0].drip = Duration::from_millis(2);
    special[1].expired = true;
    special[2].identity = Some("00000000-another-cluster".to_owned());
    let [slow, expired, other] = special;
    [
        ("no fault", None, Conditions::default()),
        ("status 429", None, faulty(&[(Fault::Throttled(1), SHARE)])),
        ("status 500", None, faulty(&[(Fault::Failing, SHARE)])),
        // This fault affects only writes.
        (
            "status 409",
            None,
            faulty(&[(Fault::Conflicting, SHARE * 8)]),
        ),
        ("resets", None, faulty(&resets)),
        ("slow bodies", None, slow),
        ("expired certificate", Some("TLSHandshakeFailed"), expired),
        ("another cluster", Some("ClusterUIDChanged"), other),
    ]
}

/// Number of runtimes for each fault; 200 in total.
const OF_EACH: usize = 25;
/// Share of faulty requests, per mille. A reconcile of a runtime has dozens of requests, and most reconciles must succeed.
const SHARE: u16 = 10;
/// Time limit for a state. The delay between two reconciles of a failing runtime increases.
const PATIENCE: Duration = Duration::from_mins(5);

#[test]
fn the_environment_is_that_of_the_manifest() {
    let manifest = include_str!("../../../../deploy/controller/deployment.yaml");
    for (name, value) in ENVIRONMENT {
        let variable = format!("- name: {name}\n          value: \"{value}\"\n");
        assert!(manifest.contains(&variable), "{variable}");
    }
}
