//! Single decisions of the scheduler; its invariants are property tests.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::rollout::{self, Begin, Initial, LaneResult, Name, Step};
use crate::sync::scheduler::{LaneReport, Participation, Report, Scheduler, Settings, Work};
use crate::sync::{Hash, Lane, Lanes};

const RESYNC: Duration = Duration::from_mins(10);
/// A random number in the middle of its interval.
const RANDOM: u64 = 1 << 63;

fn scheduler(runtimes: &[&str]) -> Scheduler {
    let settings = rollout::Settings::new(Vec::new());
    with_rollouts(runtimes, Lanes::both(settings))
}

fn with_rollouts(runtimes: &[&str], rollouts: Lanes<rollout::Settings>) -> Scheduler {
    let delay = |_, _| Duration::from_secs(5);
    let mut scheduler = Scheduler::new(Settings {
        rollouts,
        concurrency: 4,
        webhook_concurrency: 1,
        slow_after: Duration::from_secs(2),
        resync: RESYNC,
        failure_delay: Arc::new(delay),
        progress_delay: Arc::new(delay),
    });
    for lane in Lane::ALL {
        let begin = Begin {
            target: "0".repeat(64).parse::<Hash>().unwrap(),
            completed: None,
            resumed: None,
            now: Duration::ZERO,
        };
        scheduler.begin(lane, begin, |_| Initial::default());
    }
    for name in runtimes {
        let name = Name::from(*name);
        let participation = Participation::Active { order: 0 };
        scheduler.put(&name, participation, Duration::ZERO, |_| Initial::default());
        scheduler.wake(&name, Duration::ZERO);
    }
    scheduler
}

fn start_all(scheduler: &mut Scheduler, now: Duration) -> Vec<Work> {
    std::iter::from_fn(|| scheduler.start(now)).collect()
}

/// Ends a reconcile with a complete configuration and without the webhook lane.
fn finish(scheduler: &mut Scheduler, work: &Work, now: Duration) {
    let configuration = LaneReport {
        result: LaneResult::Done,
        wrote: false,
        needs_requeue: false,
        retry_after: None,
    };
    let lanes = Lanes {
        configuration: Some(configuration),
        webhook: None,
    };
    let report = Report::Reconciled {
        lanes,
        webhook_differs: true,
    };
    scheduler.finish(&work.name, report, now, RANDOM);
}

/// Otherwise all runtimes that wait for the installation of the webhook would be read repeatedly, and delay it.
#[test]
fn a_runtime_that_waits_for_the_webhook_lane_is_not_reconciled_in_the_other_one_all_the_time() {
    let mut scheduler = scheduler(&["a", "b", "c", "d"]);
    let started = start_all(&mut scheduler, Duration::ZERO);
    let (heavy, light): (Vec<Work>, Vec<Work>) = started
        .into_iter()
        .partition(|it| it.lanes.webhook.is_some());
    assert_eq!((heavy.len(), light.len()), (1, 3));
    for work in light {
        finish(&mut scheduler, &work, Duration::ZERO);
    }
    // The first reconcile is slow, so that another one may start. Both continue.
    let now = Duration::from_secs(3);
    assert_eq!(start_all(&mut scheduler, now).len(), 1);
    let now = RESYNC;
    let started = start_all(&mut scheduler, now);
    assert_eq!(started.len(), 2, "the resync");
    assert!(started.iter().all(|it| it.lanes.webhook.is_none()));
    for work in started {
        finish(&mut scheduler, &work, now);
    }
    assert_eq!(start_all(&mut scheduler, now), []);
    let next = scheduler.next(now).unwrap();
    assert!(next > now);
    let soon = now + Duration::from_secs(30);
    assert_eq!(start_all(&mut scheduler, soon), []);
}

fn report(result: LaneResult) -> LaneReport {
    LaneReport {
        result,
        wrote: true,
        needs_requeue: false,
        retry_after: None,
    }
}

/// The Runtime of the removed runtime may need another resource, and no other event wakes it.
#[test]
fn a_runtime_that_is_removed_and_woken_during_its_reconcile_is_due_afterwards() {
    let mut scheduler = scheduler(&["a"]);
    let work = scheduler.start(Duration::ZERO).unwrap();
    scheduler.remove("a", Duration::ZERO);
    assert_eq!(scheduler.start(Duration::ZERO), None);
    scheduler.wake(&work.name, Duration::ZERO);
    scheduler.finish(&work.name, Report::Idle, Duration::ZERO, RANDOM);
    assert!(scheduler.start(Duration::ZERO).is_some());
}

#[test]
fn a_request_to_wait_holds_for_both_lanes() {
    let mut scheduler = scheduler(&["a"]);
    let work = scheduler.start(Duration::ZERO).unwrap();
    let wait = Duration::from_mins(1);
    let lanes = Lanes {
        configuration: Some(LaneReport {
            retry_after: Some(wait),
            ..report(LaneResult::Interrupted)
        }),
        webhook: Some(report(LaneResult::Progressing)),
    };
    let end = Report::Reconciled {
        lanes,
        webhook_differs: true,
    };
    scheduler.finish(&work.name, end, Duration::ZERO, RANDOM);
    assert_eq!(
        scheduler.start(wait.saturating_sub(Duration::from_secs(1))),
        None
    );
    assert!(scheduler.start(wait).is_some());
}

/// Pods that end during the soak are detected, not only Pods that are not ready at its end.
#[test]
fn a_runtime_is_observed_several_times_while_it_soaks() {
    let soak = Duration::from_mins(2);
    let settings = rollout::Settings {
        soak,
        ..rollout::Settings::new(vec![Step::Count(1)])
    };
    let mut scheduler = with_rollouts(&["a", "b"], Lanes::both(settings));
    let work = scheduler.start(Duration::ZERO).unwrap();
    // The other runtime waits for the next step.
    let waiting = scheduler.start(Duration::ZERO).unwrap();
    let deferred = Some(LaneReport {
        wrote: false,
        ..report(LaneResult::Deferred)
    });
    let end = Report::Reconciled {
        lanes: Lanes::both(deferred),
        webhook_differs: false,
    };
    scheduler.finish(&waiting.name, end, Duration::ZERO, RANDOM);
    let mut now = Duration::ZERO;
    let mut looks = 0;
    while now < soak {
        let done = Some(report(LaneResult::Done));
        let end = Report::Reconciled {
            lanes: Lanes::both(done),
            webhook_differs: false,
        };
        scheduler.finish(&work.name, end, now, RANDOM);
        now = scheduler.next(now).unwrap();
        assert_eq!(scheduler.start(now).unwrap().name, work.name);
        looks += 1;
    }
    assert_eq!((now, looks), (soak, 8));
}

/// An object of the lane cannot be read or written, and no event shows when it can be.
#[test]
fn a_lane_with_an_inaccessible_object_is_reconciled_again_after_the_failure_delay() {
    let mut scheduler = scheduler(&["a"]);
    let work = scheduler.start(Duration::ZERO).unwrap();
    let done = LaneReport {
        wrote: false,
        ..report(LaneResult::Done)
    };
    let requeued = LaneReport {
        needs_requeue: true,
        ..done
    };
    let report = Report::Reconciled {
        lanes: Lanes {
            configuration: Some(requeued),
            webhook: Some(done),
        },
        webhook_differs: false,
    };
    scheduler.finish(&work.name, report, Duration::ZERO, RANDOM);
    assert_eq!(scheduler.start(Duration::from_secs(4)), None);
    let again = scheduler.start(Duration::from_secs(5)).unwrap();
    assert!(again.lanes.configuration.is_some() && again.lanes.webhook.is_none());
}
