//! Single decisions of the scheduler; its invariants are property tests.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::rollout::{self, Begin, Initial, LaneResult, Name};
use crate::sync::scheduler::{LaneReport, Participation, Report, Scheduler, Settings, Work};
use crate::sync::{Hash, Lane, Lanes};

const RESYNC: Duration = Duration::from_mins(10);
/// In the middle of the interval that it chooses from.
const RANDOM: u64 = 1 << 63;

fn scheduler(runtimes: &[&str]) -> Scheduler {
    let delay = |_, _| Duration::from_secs(5);
    let mut scheduler = Scheduler::new(Settings {
        rollouts: Lanes::both(rollout::Settings::new(Vec::new())),
        concurrency: 4,
        webhook_concurrency: 1,
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

/// The configuration is complete, and the webhook was not looked at.
fn finish(scheduler: &mut Scheduler, work: &Work, now: Duration) {
    let configuration = LaneReport {
        result: LaneResult::Done,
        wrote: false,
        look_again: false,
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

/// Otherwise all that wait for the installation of the webhook are read again and again, and delay it.
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
    // The first one is slow, so one more may start; both go on.
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
