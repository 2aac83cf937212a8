//! However members come, go and fail: no wave is too large, none overtakes, and in the end all are done.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::convergence::waves::{Budget, Rollout, Settings, State};

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
        let settings = Settings { size: NonZeroU32::new(size), failure_budget: budget, paused: false };
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
