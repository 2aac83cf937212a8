//! Invariants for any events of a fleet: nothing is written that a gate forbids, and finally every runtime has all revisions.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Change(Lane, u8),
    Bad(u8, bool),
    Reachable(usize, bool),
    PauseRollout(Lane, bool),
    PauseRuntime(usize, bool),
    Join(usize, u32),
    Leave(usize),
    Finish(usize, bool),
    ChangeLeader(bool),
    Advance(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let lane = || prop::sample::select(Lane::ALL.to_vec());
    let member = || 0usize..10;
    prop_oneof![
        2 => (lane(), 1u8..5).prop_map(|(lane, number)| Event::Change(lane, number)),
        1 => (1u8..5, any::<bool>()).prop_map(|(number, bad)| Event::Bad(number, bad)),
        2 => (member(), any::<bool>()).prop_map(|(member, yes)| Event::Reachable(member, yes)),
        1 => (lane(), any::<bool>()).prop_map(|(lane, paused)| Event::PauseRollout(lane, paused)),
        1 => (member(), any::<bool>()).prop_map(|(member, paused)| Event::PauseRuntime(member, paused)),
        2 => (member(), 0u32..3).prop_map(|(member, order)| Event::Join(member, order)),
        1 => member().prop_map(Event::Leave),
        8 => (member(), prop::bool::weighted(0.1)).prop_map(|(index, interrupted)| Event::Finish(index, interrupted)),
        1 => any::<bool>().prop_map(Event::ChangeLeader),
        3 => (0u64..300).prop_map(Event::Advance),
    ]
}

impl Fleet {
    fn handle(&mut self, event: Event) {
        let name = |member: usize| Name::from(format!("r{member:02}"));
        match event {
            Event::Change(lane, number) => {
                if *self.targets.get(lane) != revision(number) {
                    *self.targets.get_mut(lane) = revision(number);
                    self.begin(lane, None);
                }
            }
            Event::Bad(number, true) => drop(self.bad.insert(revision(number))),
            Event::Bad(number, false) => drop(self.bad.remove(&revision(number))),
            Event::Reachable(member, yes) => {
                if let Some(runtime) = self.runtimes.get_mut(&name(member)) {
                    runtime.is_unreachable = !yes;
                }
            }
            Event::PauseRollout(lane, paused) => self.pause(lane, paused),
            Event::PauseRuntime(member, paused) => {
                if let Some(runtime) = self.runtimes.get_mut(&name(member)) {
                    runtime.is_paused = paused;
                    if paused {
                        self.deleted.remove(&name(member));
                        self.permitted.remove(&name(member));
                        self.started.remove(&name(member));
                    }
                    self.put(&name(member));
                }
            }
            Event::Join(member, order) => {
                self.runtimes.entry(name(member)).or_default().order = order;
                self.put(&name(member));
            }
            Event::Leave(member) => {
                self.runtimes.remove(&name(member));
                let webhook = self.scheduler.rollout(Lane::Webhook);
                if webhook.phase(&name(member)).is_some_and(Phase::is_failed)
                    && !webhook.progress().is_complete
                {
                    self.deleted.insert(name(member));
                }
                self.started.remove(&name(member));
                self.permitted.remove(&name(member));
                self.scheduler.remove(&name(member), self.now);
                // The reconcile of this runtime ends because its resource does not exist.
                for work in self.running.extract_if(.., |it| it.name == name(member)) {
                    let report = Report::Idle;
                    self.scheduler.finish(&work.name, report, self.now, 0);
                }
            }
            Event::Finish(index, interrupted) => self.finish(index, interrupted),
            Event::ChangeLeader(has_written) => self.change_leader(has_written),
            Event::Advance(seconds) => self.now += Duration::from_secs(seconds),
        }
        self.start_all();
    }

    fn pause(&mut self, lane: Lane, is_paused: bool) {
        let before = std::mem::replace(self.is_paused.get_mut(lane), is_paused);
        if lane == Lane::Webhook && before && !is_paused {
            self.deleted.clear();
        }
        self.scheduler.pause(lane, is_paused, self.now);
    }

    fn heal(&mut self) {
        self.bad.clear();
        for lane in Lane::ALL {
            // An operator resumes a rollout that stopped because of runtimes that are deleted.
            self.pause(lane, true);
            self.pause(lane, false);
        }
        for name in self.runtimes.keys().cloned().collect::<Vec<_>>() {
            let runtime = self.runtimes.get_mut(&name).unwrap();
            (runtime.is_unreachable, runtime.is_paused) = (false, false);
            self.put(&name);
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u32..4).prop_map(Step::Count),
        (1u8..100).prop_map(Step::Percent)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    /// No runtime starts that a step, a pause or the failure limit blocks, and no two reconciles of one runtime
    /// overlap (both are asserted while events are handled). When all faults are corrected, every runtime has the
    /// target of both lanes, and nothing is written any more.
    #[test]
    fn every_runtime_gets_every_revision_and_none_too_early(
        steps in prop::collection::vec(step(), 0..3),
        allowed in 0u32..3,
        soak in prop_oneof![Just(0u64), Just(120)],
        events in prop::collection::vec(event(), 0..100),
    ) {
        let mut fleet = Fleet::new(steps, allowed, Duration::from_secs(soak));
        for event in events {
            fleet.handle(event);
        }
        fleet.heal();
        fleet.run_dry();
        for (name, runtime) in &fleet.runtimes {
            for lane in Lane::ALL {
                prop_assert_eq!(*runtime.written.get(lane), Some(*fleet.targets.get(lane)), "{} {:?}", name, lane);
            }
        }
        let writes = fleet.writes;
        fleet.now += RESYNC * 2;
        for _ in 0..fleet.runtimes.len() * 4 {
            fleet.start_all();
            fleet.finish(0, false);
        }
        prop_assert_eq!(fleet.writes, writes, "something is written although nothing differs");
    }

    /// The configuration reaches every reachable runtime, even if the rollout of the webhook is stopped.
    #[test]
    fn configuration_waits_for_no_rollout_of_the_webhook(
        steps in prop::collection::vec(step(), 0..3),
        events in prop::collection::vec(event(), 0..60),
    ) {
        let mut fleet = Fleet::new(steps, 0, Duration::from_mins(2));
        for event in events {
            fleet.handle(event);
        }
        fleet.is_paused.configuration = false;
        fleet.scheduler.pause(Lane::Configuration, false, fleet.now);
        fleet.handle(Event::PauseRollout(Lane::Webhook, true));
        fleet.bad.extend((1..5).map(revision));
        fleet.handle(Event::Change(Lane::Configuration, 9));
        // At least the longest delay of a runtime that was unreachable.
        for _ in 0..200 {
            fleet.now += Duration::from_secs(1);
            fleet.start_all();
            while !fleet.running.is_empty() {
                fleet.finish(0, false);
            }
        }
        for (name, runtime) in &fleet.runtimes {
            if !runtime.is_unreachable && !runtime.is_paused {
                prop_assert_eq!(runtime.written.configuration, Some(revision(9)), "{}", name);
            }
        }
    }
}
