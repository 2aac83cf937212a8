//! Tests of the order and the rate of evictions.

use std::time::Duration;

use api::bootstrapper::RestartCause;

use crate::admission::Code;
use crate::repairs::*;

const MISSED: Option<Deviation> = Some(Deviation::Missed(Code::ImageRewritten));

fn all() -> EvictionSettings {
    EvictionSettings {
        missed: true,
        outdated: RestartCause::ALL.to_vec(),
    }
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "shop".into(),
        name: name.into(),
    }
}

fn pod(uid: &str, owner: &str, deviation: Option<Deviation>) -> TrackedPod {
    TrackedPod {
        uid: uid.into(),
        owner: (!owner.is_empty()).then(|| owner.into()),
        ready: true,
        terminating: false,
        adapted: deviation.is_none(),
        deviation,
    }
}

/// The evictions under test, and the current time.
struct World {
    evictions: Evictions,
    now: Duration,
}

impl World {
    /// Creates a state with Pods as `(name, owner)`, all missed.
    fn missed(pods: &[(&str, &str)]) -> Self {
        let mut world = Self {
            evictions: Evictions::default(),
            now: Duration::ZERO,
        };
        for (name, owner) in pods {
            let pod = pod(name, owner, MISSED);
            world
                .evictions
                .observe(key(name), Some(pod), true, world.now);
        }
        world
    }

    fn next(&mut self) -> Option<String> {
        let next = self.evictions.next(&all(), self.now);
        next.map(|(key, _)| key.name.to_string())
    }

    /// Evicts the next Pod with this outcome.
    fn execute(&mut self, outcome: EvictionOutcome) -> String {
        let (key, _) = self.evictions.next(&all(), self.now).unwrap();
        self.evictions.executed(&key, outcome, self.now);
        key.name.to_string()
    }

    /// Deletes the evicted Pod, and creates a new Pod of its owner.
    fn replace(&mut self, old: &str, new: TrackedPod) {
        self.evictions.observe(key(old), None, false, self.now);
        let name = key(&new.uid);
        self.evictions.observe(name, Some(new), false, self.now);
    }

    fn pass(&mut self, duration: Duration) {
        self.now += duration;
    }
}

/// The Pods were created before the document was written that is in use now.
#[test]
fn a_missed_pod_stays_missed_after_a_change_of_the_document() {
    let mut world = World::missed(&[("a", "o1")]);
    for (deviation, expected) in [
        (
            Some(Deviation::Outdated(RestartCause::Configuration)),
            MISSED,
        ),
        (None, None),
    ] {
        let pod = pod("a", "o1", deviation);
        let found = world
            .evictions
            .observe(key("a"), Some(pod), true, world.now);
        assert_eq!(found, None);
        let counts = world.evictions.counts();
        let deviations: Vec<_> = counts.keys().map(|(_, it)| *it).collect();
        assert_eq!(deviations, Vec::from_iter(expected));
    }
}

#[test]
fn the_first_eviction_is_a_test_and_an_adapted_successor_lets_the_others_follow() {
    let mut world = World::missed(&[("a", "o1"), ("b", "o2"), ("c", "o3")]);
    assert_eq!(world.execute(EvictionOutcome::Evicted), "a");
    assert_eq!(world.next(), None, "the effect of the first is not known");
    world.replace("a", pod("a2", "o1", None));
    assert_eq!(world.execute(EvictionOutcome::Evicted), "b");
    assert_eq!(world.execute(EvictionOutcome::Evicted), "c");
    assert_eq!(world.next(), None);
}

#[test]
fn a_successor_that_was_missed_too_stops_evictions_for_a_growing_time() {
    let mut world = World::missed(&[("a", "o1"), ("b", "o2"), ("c", "o3")]);
    world.execute(EvictionOutcome::Evicted);
    world.replace("a", pod("a2", "o1", MISSED));
    assert!(world.evictions.is_open());
    world.pass(Duration::from_secs(299));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(
        world.execute(EvictionOutcome::Evicted),
        "b",
        "the owner of a is left alone"
    );
    world.replace("b", pod("b2", "o2", MISSED));
    world.pass(Duration::from_secs(599));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.next().as_deref(), Some("c"));
}

#[test]
fn the_owner_of_a_pod_that_stays_missed_is_tried_again_after_an_hour_and_more() {
    let mut world = World::missed(&[("a", "o1")]);
    world.execute(EvictionOutcome::Evicted);
    world.replace("a", pod("a2", "o1", MISSED));
    world.pass(Duration::from_secs(3599));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.execute(EvictionOutcome::Evicted), "a2");
    world.replace("a2", pod("a3", "o1", MISSED));
    world.pass(Duration::from_secs(7199));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.next().as_deref(), Some("a3"));
}

#[test]
fn without_any_new_pod_another_test_follows_after_two_minutes() {
    let mut world = World::missed(&[("a", "o1"), ("b", "o2")]);
    world.execute(EvictionOutcome::Evicted);
    world.pass(Duration::from_secs(119));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.next().as_deref(), Some("b"));
}

#[test]
fn at_most_five_evictions_are_ahead_of_their_proof() {
    let names: Vec<String> = (0..9).map(|it| format!("p{it}")).collect();
    let pods: Vec<(&str, &str)> = names.iter().map(|it| (it.as_str(), it.as_str())).collect();
    let mut world = World::missed(&pods);
    world.execute(EvictionOutcome::Evicted);
    world.replace("p0", pod("new", "p0", None));
    for _ in 0..5 {
        world.execute(EvictionOutcome::Evicted);
    }
    assert_eq!(world.next(), None);
    world.replace("p1", pod("newer", "p1", None));
    assert_eq!(world.next().as_deref(), Some("p6"));
}

#[test]
fn pods_of_one_owner_go_one_after_the_other() {
    let mut world = World::missed(&[("a", "o"), ("b", "o"), ("c", "p")]);
    assert_eq!(world.execute(EvictionOutcome::Evicted), "a");
    let unready = TrackedPod {
        ready: false,
        ..pod("a2", "o", None)
    };
    world.replace("a", unready.clone());
    assert_eq!(
        world.execute(EvictionOutcome::Evicted),
        "c",
        "a2 is not ready"
    );
    assert_eq!(world.next(), None);
    let ready = TrackedPod {
        ready: true,
        ..unready
    };
    let now = world.now;
    world.evictions.observe(key("a2"), Some(ready), false, now);
    assert_eq!(world.next().as_deref(), Some("b"));
}

/// A quota or another webhook rejects the new Pod.
#[test]
fn an_owner_that_makes_no_new_pod_keeps_the_others() {
    let mut world = World::missed(&[("a", "o"), ("b", "o"), ("c", "o")]);
    assert_eq!(world.execute(EvictionOutcome::Evicted), "a");
    world.evictions.observe(key("a"), None, false, world.now);
    world.pass(Duration::from_secs(3599));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.execute(EvictionOutcome::Evicted), "b");
    world.evictions.observe(key("b"), None, false, world.now);
    world.pass(Duration::from_secs(7199));
    assert_eq!(world.next(), None);
    // The list after an interrupted watch contains the new Pod, too.
    let new = pod("a2", "o", None);
    world
        .evictions
        .observe(key("a2"), Some(new), true, world.now);
    assert_eq!(world.next().as_deref(), Some("c"));
}

#[test]
fn a_pod_that_does_not_run_anyway_goes_first() {
    let mut world = World::missed(&[("a", "o"), ("b", "o")]);
    let unready = TrackedPod {
        ready: false,
        ..pod("b", "o", MISSED)
    };
    let now = world.now;
    world.evictions.observe(key("b"), Some(unready), false, now);
    assert_eq!(world.next().as_deref(), Some("b"));
}

#[test]
fn pods_without_an_owner_and_causes_that_are_off_are_left_alone() {
    let mut world = World::missed(&[("a", "")]);
    assert_eq!(world.next(), None);
    let outdated = Some(Deviation::Outdated(RestartCause::PullSecret));
    let now = world.now;
    world
        .evictions
        .observe(key("b"), Some(pod("b", "o", outdated)), true, now);
    let off = EvictionSettings {
        outdated: vec![RestartCause::TrustBundle],
        ..all()
    };
    assert_eq!(world.evictions.next(&off, now), None);
    assert_eq!(world.next().as_deref(), Some("b"));
    assert!(EvictionSettings::default().is_empty() && !off.is_empty());
}

#[test]
fn refusals_hold_the_pod_or_its_namespace() {
    for (outcome, seconds) in [
        (EvictionOutcome::BudgetExhausted { retry_after: None }, 30),
        (
            EvictionOutcome::BudgetExhausted {
                retry_after: Some(Duration::from_secs(90)),
            },
            90,
        ),
        (EvictionOutcome::SeveralBudgets, 3600),
        (EvictionOutcome::Failed, 10),
        (EvictionOutcome::Gone, 10),
    ] {
        let mut world = World::missed(&[("a", "o1"), ("b", "o2")]);
        assert_eq!(world.execute(outcome), "a");
        assert_eq!(
            world.next().as_deref(),
            Some("b"),
            "{outcome:?} holds one Pod"
        );
        world.pass(Duration::from_secs(seconds - 1));
        assert_eq!(world.next().as_deref(), Some("b"));
        world.pass(Duration::from_secs(1));
        assert_eq!(world.next().as_deref(), Some("a"));
    }
    let mut world = World::missed(&[("a", "o1"), ("b", "o2")]);
    world.execute(EvictionOutcome::Forbidden);
    assert_eq!(world.evictions.forbidden_namespaces(), 1);
    world.pass(Duration::from_secs(599));
    assert_eq!(
        world.next(),
        None,
        "a namespace without the right is not asked again"
    );
    world.pass(Duration::from_secs(1));
    world.execute(EvictionOutcome::Evicted);
    assert_eq!(world.evictions.forbidden_namespaces(), 0);
}

#[test]
fn a_deviation_is_found_once_and_a_new_list_finds_what_changed() {
    let mut world = World::missed(&[]);
    let (evictions, now) = (&mut world.evictions, world.now);
    let missed = || Some(pod("a", "o", MISSED));
    let found = MISSED;
    assert_eq!(evictions.observe(key("a"), missed(), true, now), found);
    assert_eq!(evictions.observe(key("a"), missed(), true, now), None);
    let current = Some(pod("a", "o", None));
    assert_eq!(evictions.observe(key("a"), current, false, now), None);
    assert_eq!(evictions.observe(key("a"), missed(), false, now), found);
    let successor = Some(pod("a2", "o", MISSED));
    assert_eq!(
        evictions.observe(key("a"), successor, true, now),
        found,
        "another uid"
    );
    assert_eq!(evictions.counts().len(), 1);
    evictions.retain(|_| false);
    assert!(evictions.counts().is_empty());
}

#[test]
fn a_successor_that_is_outdated_at_once_is_not_evicted_again_and_again() {
    let outdated = Some(Deviation::Outdated(RestartCause::TrustBundle));
    let mut world = World::missed(&[]);
    let now = world.now;
    let evictions = &mut world.evictions;
    evictions.observe(key("a"), Some(pod("a", "o", outdated)), true, now);
    assert_eq!(world.execute(EvictionOutcome::Evicted), "a");
    world.replace("a", pod("a2", "o", outdated));
    world.pass(Duration::from_secs(3599));
    assert_eq!(world.next(), None);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.next().as_deref(), Some("a2"));
}

#[test]
fn a_namespace_whose_pods_are_mended_is_not_reported_as_forbidden() {
    let mut world = World::missed(&[("a", "o")]);
    world.execute(EvictionOutcome::Forbidden);
    assert_eq!(world.evictions.forbidden_namespaces(), 1);
    world.replace("a", pod("a2", "o", None));
    assert_eq!(world.evictions.forbidden_namespaces(), 0);
}

/// Namespaces may be created and deleted all the time, while no list of all Pods is needed.
#[test]
fn the_pause_of_a_namespace_that_is_deleted_is_forgotten() {
    let mut world = World::missed(&[("a", "o1")]);
    world.execute(EvictionOutcome::Forbidden);
    world.evictions.retain_namespaces(|name| name == "shop");
    assert_eq!(world.next(), None, "the Namespace exists");
    world.evictions.retain_namespaces(|_| false);
    assert_eq!(world.next().as_deref(), Some("a"));
}

/// A policy of the cluster may forbid the eviction of one Pod with the status of a missing permission.
#[test]
fn pods_whose_evictions_are_forbidden_do_not_block_evictions_of_others() {
    let names = ["a", "b", "c", "d", "e"];
    let pods = names.map(|name| (name, name));
    let mut world = World::missed(&pods);
    for expected in names.into_iter().chain(names) {
        while world.next().is_none() {
            world.pass(Duration::from_mins(1));
        }
        assert_eq!(world.next().as_deref(), Some(expected));
        world.execute(EvictionOutcome::Forbidden);
    }
}

/// An administrator grants the missing permission.
#[test]
fn the_only_pod_of_a_namespace_is_tried_again_after_the_first_pause() {
    let mut world = World::missed(&[("a", "rs-a")]);
    world.execute(EvictionOutcome::Forbidden);
    world.pass(Duration::from_mins(10));
    assert_eq!(world.next().as_deref(), Some("a"));
}
