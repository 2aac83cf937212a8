//! However members come, go and fail: no wave is too large, none overtakes, and in the end all are done.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;

use crate::sync::waves::{Budget, RUNNING_DEADLINE, ReconcileResult, Rollout, Settings, State};

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Waves are never larger than they may be; nobody starts while a wave before is unsettled or the budget is spent; and
    /// once everybody arrives, the rollout is finished.
    #[test]
    fn rollouts(
        size in 0u32..5,
        budget in prop_oneof![(0u32..4).prop_map(Budget::Count), (0u8..=100).prop_map(Budget::Percent)],
        members in prop_oneof![prop::collection::vec(0u32..1, 0..24), prop::collection::vec(0u32..3, 0..24)],
        events in prop::collection::vec((any::<prop::sample::Index>(), 0u8..6), 0..120),
    ) {
        let settings = Settings { size: NonZeroU32::new(size), failure_budget: budget, paused: false, deadline: RUNNING_DEADLINE };
        let orders: BTreeMap<String, u32> = members.iter().enumerate().map(|(index, order)| (format!("m{index:02}"), *order)).collect();
        let names: Vec<String> = orders.keys().cloned().collect();
        let mut rollout = Rollout::begin(settings, orders.clone());
        // Who comes back, or tries again, is of a wave that may be settled long ago.
        let mut returned: BTreeSet<String> = BTreeSet::new();
        for (index, event) in events {
            if names.is_empty() { break; }
            let name = index.get(&names);
            let before = rollout.state(name);
            let to = match event {
                0 | 1 if before != Some(State::Done) && rollout.may_start(name) => State::Running,
                2 | 3 if before == Some(State::Running) => State::Done,
                4 if before == Some(State::Running) => State::Failed,
                5 => if before == Some(State::Unreachable) { State::Waiting } else { State::Unreachable },
                _ => continue,
            };
            if to == State::Unreachable || before == Some(State::Failed) {
                returned.insert(name.clone());
            }
            let is_unsettled = |rollout: &Rollout, other: &String| {
                matches!(rollout.state(other), Some(State::Waiting | State::Running))
            };
            if to == State::Running && before == Some(State::Waiting) && !returned.contains(name) {
                for other in names.iter().filter(|it| orders[*it] < orders[name] && !returned.contains(*it)) {
                    prop_assert!(!is_unsettled(&rollout, other), "{name} overtook {other}");
                }
            }
            rollout.set(name, to);
            let failed = names.iter().filter(|it| rollout.state(it) == Some(State::Failed)).count();
            let allowed = match budget {
                Budget::Count(count) => count as usize,
                Budget::Percent(percent) => names.len() * usize::from(percent) / 100,
            };
            let one_wave = size == 0 && members.iter().all(|it| *it == members[0]);
            if one_wave {
                let starters = names.iter().filter(|it| rollout.state(it) == Some(State::Waiting) && rollout.may_start(it)).count();
                prop_assert!(failed <= allowed || starters == 0);
            }
            if size > 0 {
                let open = names.iter()
                    .filter(|it| !returned.contains(*it) && is_unsettled(&rollout, it) && rollout.may_start(it))
                    .count();
                prop_assert!(open <= size as usize, "{open} at once");
            }
        }
        for name in &names {
            rollout.set(name, State::Done);
        }
        prop_assert!(rollout.progress().finished);
        prop_assert_eq!(rollout.progress().counts.done as usize, names.len());
        prop_assert_eq!(rollout.progress().wave, rollout.progress().waves);
    }
}

/// What happens to a rollout: to one of its members, by the place of its name, or to all of it.
#[derive(Clone, Debug)]
enum Event {
    Set(usize, State),
    Start(usize),
    Note(usize, ReconcileResult, bool),
    Join(usize, u32),
    Leave(usize),
    Pause(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let state = prop::sample::select(vec![
        State::Waiting,
        State::Running,
        State::Done,
        State::Failed,
        State::Unreachable,
    ]);
    let result = prop::sample::select(vec![
        ReconcileResult::Done,
        ReconcileResult::Progressing,
        ReconcileResult::Interrupted,
        ReconcileResult::Failed,
        ReconcileResult::Unreachable,
        ReconcileResult::Withheld,
    ]);
    prop_oneof![
        4 => (0usize..12, state).prop_map(|(member, state)| Event::Set(member, state)),
        4 => (0usize..12).prop_map(Event::Start),
        4 => (0usize..12, result, any::<bool>()).prop_map(|(member, result, wrote)| Event::Note(member, result, wrote)),
        1 => (0usize..12, 0u32..3).prop_map(|(member, order)| Event::Join(member, order)),
        1 => (0usize..12).prop_map(Event::Leave),
        1 => any::<bool>().prop_map(Event::Pause),
    ]
}

fn has_begun(state: Option<State>) -> bool {
    matches!(state, Some(State::Running | State::Failed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Running and Failed members may be written to whatever their wave, so no event may bring a member there while the
    /// rollout is paused, a wave has too many failures, or a wave of a smaller order has not settled.
    #[test]
    fn a_member_that_may_not_start_never_begins(
        size in 0u32..4,
        allowed in 0u32..3,
        members in prop::collection::vec(0u32..3, 0..9),
        events in prop::collection::vec(event(), 0..80),
    ) {
        let settings = Settings { size: NonZeroU32::new(size), failure_budget: Budget::Count(allowed), paused: false, deadline: RUNNING_DEADLINE };
        let name = |member: usize| format!("m{member:02}");
        let mut orders: BTreeMap<String, u32> = members.iter().enumerate().map(|(index, order)| (name(index), *order)).collect();
        let mut rollout = Rollout::begin(settings, orders.clone());
        let mut is_paused = false;
        let mut is_as_begun = true;
        for event in events {
            let before = rollout.clone();
            let failed = before.failed().count();
            match event {
                Event::Set(member, state) => rollout.set(&name(member), state),
                Event::Start(member) => {
                    let may_start = before.may_start(&name(member));
                    prop_assert_eq!(rollout.start(&name(member), Duration::ZERO), may_start);
                }
                Event::Note(member, result, wrote) => rollout.note(&name(member), result, wrote, Duration::ZERO),
                Event::Join(member, order) => {
                    is_as_begun = false;
                    orders.entry(name(member)).or_insert(order);
                    rollout.join(&name(member), order);
                }
                Event::Leave(member) => {
                    is_as_begun = false;
                    orders.remove(&name(member));
                    rollout.leave(&name(member));
                }
                Event::Pause(paused) => {
                    is_paused = paused;
                    rollout.configure(Settings { paused, ..settings });
                }
            }
            for (name, order) in &orders {
                let (was, is) = (before.state(name), rollout.state(name));
                if has_begun(was) || was == Some(State::Done) || !has_begun(is) {
                    continue;
                }
                prop_assert!(before.may_start(name), "{name} became {is:?} and may not start");
                prop_assert!(!is_paused, "{name} became {is:?} while paused");
                // As all waves allow equally many failures, more than all of them together means that one is over.
                let waves = before.progress().waves;
                prop_assert!(failed <= (waves * allowed) as usize, "{name} became {is:?} after {failed} failures");
                if is_as_begun && before.progress().wave == 1 {
                    let smallest = orders.values().min();
                    prop_assert_eq!(Some(order), smallest, "{} overtook", name);
                }
            }
        }
    }
}
