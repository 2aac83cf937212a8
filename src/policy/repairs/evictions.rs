//! The order of evictions: one Pod of an owner at a time, and no Pod while evictions have no effect.
//!
//! A circuit breaker verifies that the API server sends Pods to the webhook. It starts half-open: one Pod is evicted,
//! and evictions continue when the next new Pod is adapted. At most five evictions are not verified yet. A new Pod
//! that was missed opens the circuit for an increasing time. If a new Pod deviates, its owner is skipped for one hour
//! or longer, so that a Pod that another webhook changes back is not evicted repeatedly. An owner that creates no new
//! Pod, for example because of a quota, is skipped in the same way: each further eviction would remove another of its
//! Pods.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use api::bootstrapper::RestartCause;

use super::Deviation;

/// Time limit for a new Pod after the eviction that tests the circuit. After it, another Pod is evicted.
const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Number of evictions after which a new Pod must have been adapted.
const UNPROVEN: u32 = 5;

/// Pauses after a new Pod that was missed.
const OPEN: Pause = Pause::of(Duration::from_mins(5), Duration::from_hours(1));

/// Pauses of an owner whose new Pod deviates, too, or that has created no new Pod since the eviction.
const NO_EFFECT: Pause = Pause::of(Duration::from_hours(1), Duration::from_hours(24));

/// Pauses of a namespace in which evictions are forbidden.
const FORBIDDEN: Pause = Pause::of(Duration::from_mins(10), Duration::from_hours(1));

/// Pauses of a Pod whose PodDisruptionBudget is exhausted.
const BUDGET: Pause = Pause::of(Duration::from_secs(30), Duration::from_mins(10));

/// Pause of a Pod that several PodDisruptionBudgets select: the API server rejects each eviction of it.
const SEVERAL_BUDGETS: Duration = Duration::from_hours(1);

/// Pauses of a Pod whose eviction failed for another reason.
const FAILED: Pause = Pause::of(Duration::from_secs(10), Duration::from_mins(5));

/// A Pod by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

/// The known state of a covered Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedPod {
    /// UID of the Pod.
    pub uid: Box<str>,
    /// UID of the ReplicaSet, StatefulSet or DaemonSet that replaces the Pod; `None` if it would not be replaced.
    pub owner: Option<Box<str>>,
    /// Whether the Pod is ready.
    pub ready: bool,
    /// Whether the Pod is being deleted.
    pub terminating: bool,
    /// The deviation of the Pod, if it deviates.
    pub deviation: Option<Deviation>,
    /// Whether the webhook adapted the Pod: it has the marker and does not deviate.
    pub adapted: bool,
}

/// The deviations whose Pods are evicted; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionSettings {
    /// Whether missed Pods are evicted.
    pub missed: bool,
    /// The causes for which outdated Pods are evicted.
    pub outdated: Vec<RestartCause>,
}

/// The result of an eviction. As a string it is a label of metrics, such as `budget_exhausted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum EvictionOutcome {
    /// The Pod is being deleted.
    Evicted,
    /// The Pod is deleted, or another Pod has its name.
    Gone,
    /// A PodDisruptionBudget currently allows no disruption.
    BudgetExhausted {
        /// The pause that the API server requires.
        retry_after: Option<Duration>,
    },
    /// Several PodDisruptionBudgets select the Pod.
    SeveralBudgets,
    /// The permission is missing in the namespace.
    Forbidden,
    /// The eviction failed for another reason.
    Failed,
}

/// All covered Pods, and the results of evictions.
#[derive(Debug, Default)]
pub struct Evictions {
    pods: BTreeMap<PodKey, Entry>,
    namespaces: HashMap<Box<str>, Held>,
    owners: HashMap<Box<str>, Held>,
    /// The owners for which a new Pod is expected after an eviction.
    awaited: HashMap<Box<str>, Held>,
    circuit: Circuit,
}

#[derive(Debug)]
struct Entry {
    pod: TrackedPod,
    is_evicted: bool,
    /// Number of forbidden evictions. The Pods of a namespace are tried in turn, because a policy of the cluster may
    /// forbid the eviction of single Pods with the status of a missing permission.
    forbidden: u32,
    held: Held,
}

/// A pause, and the number of pauses so far.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    until: Option<Duration>,
    times: u32,
}

/// Limits of pauses that double.
#[derive(Clone, Copy)]
struct Pause {
    base: Duration,
    cap: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Circuit {
    /// Evictions have the expected effect. `unproven` is the number of evictions whose effect is not verified yet,
    /// and `last` the time of the last one.
    Closed {
        unproven: u32,
        last: Option<Duration>,
    },
    /// One eviction is allowed. `tested` is its time, since which its effect is expected.
    HalfOpen {
        tested: Option<Duration>,
        failures: u32,
    },
    /// No eviction is allowed.
    Open { until: Duration, failures: u32 },
}

/// State of the Pods of one owner.
#[derive(Default)]
struct OwnerState {
    disrupted: bool,
    unready: bool,
}

impl Default for Circuit {
    fn default() -> Self {
        Self::HalfOpen {
            tested: None,
            failures: 0,
        }
    }
}

impl Evictions {
    /// Processes a Pod from a list or watch; `None` if it is deleted or not covered. A new Pod of a watch shows the
    /// effect of evictions. Returns the deviation of the Pod, if it is new.
    pub fn observe(
        &mut self,
        key: PodKey,
        pod: Option<TrackedPod>,
        is_listed: bool,
        now: Duration,
    ) -> Option<Deviation> {
        let Some(mut pod) = pod else {
            self.pods.remove(&key);
            return None;
        };
        let known = self.pods.get_mut(&key);
        let known = known.filter(|it| it.pod.uid == pod.uid);
        let before = known.as_ref().and_then(|it| it.pod.deviation);
        // A change of the document does not add what the webhook missed to do.
        let configuration = Deviation::Outdated(RestartCause::Configuration);
        if before.is_some_and(Deviation::is_missed) && pod.deviation == Some(configuration) {
            pod.deviation = before;
        }
        let found = pod.deviation.filter(|it| before != Some(*it));
        if let Some(entry) = known {
            entry.pod = pod;
        } else {
            if let Some(owner) = &pod.owner {
                self.awaited.remove(owner);
            }
            if !is_listed {
                self.test(&pod, now);
            }
            let entry = Entry {
                pod,
                is_evicted: false,
                forbidden: 0,
                held: Held::default(),
            };
            self.pods.insert(key, entry);
        }
        found
    }

    /// Removes the Pods that a complete list does not contain.
    pub fn retain(&mut self, is_listed: impl Fn(&PodKey) -> bool) {
        self.pods.retain(|key, _| is_listed(key));
        let owners: HashSet<&str> = self
            .pods
            .values()
            .filter_map(|it| it.pod.owner.as_deref())
            .collect();
        self.owners.retain(|owner, _| owners.contains(&**owner));
        self.awaited.retain(|owner, _| owners.contains(&**owner));
    }

    /// Removes the pauses of Namespaces that do not exist any more.
    pub fn retain_namespaces(&mut self, exists: impl Fn(&str) -> bool) {
        self.namespaces.retain(|name, _| exists(name));
    }

    /// Updates the circuit with a new Pod, which shows whether the API server sends Pods to the webhook.
    fn test(&mut self, pod: &TrackedPod, now: Duration) {
        let failures = match self.circuit {
            Circuit::Closed { .. } => 0,
            Circuit::HalfOpen {
                tested: Some(_),
                failures,
            } => failures,
            Circuit::HalfOpen { tested: None, .. } | Circuit::Open { .. } => return,
        };
        if pod.adapted {
            self.circuit = Circuit::Closed {
                unproven: 0,
                last: None,
            };
            if let Some(owner) = &pod.owner {
                self.owners.remove(owner);
            }
            return;
        }
        let Some(deviation) = pod.deviation else {
            return;
        };
        if deviation.is_missed() {
            self.circuit = Circuit::Open {
                until: now + OPEN.after(failures),
                failures: failures.saturating_add(1),
            };
        }
        // This includes a Pod that is outdated at its creation, which occurs if the clocks of API servers differ.
        // Another eviction would change nothing.
        if let Some(owner) = &pod.owner {
            let held = self.owners.entry(owner.clone()).or_default();
            held.again(NO_EFFECT, now);
        }
    }

    /// Returns the Pod to evict now, with its UID.
    #[must_use]
    pub fn next(
        &mut self,
        settings: &EvictionSettings,
        now: Duration,
    ) -> Option<(PodKey, Box<str>)> {
        self.half_open(now);
        match self.circuit {
            Circuit::Closed { unproven, .. } if unproven < UNPROVEN => {}
            Circuit::HalfOpen { tested: None, .. } => {}
            Circuit::Closed { .. } | Circuit::HalfOpen { .. } | Circuit::Open { .. } => {
                return None;
            }
        }
        let owners = self.owner_states();
        let is_held = |held: Option<&Held>| held.is_some_and(|it| it.is_active(now));
        let candidates = self.pods.iter().filter(|(key, entry)| {
            let pod = &entry.pod;
            let Some(owner) = &pod.owner else {
                return false;
            };
            let others = &owners[&**owner];
            pod.deviation.is_some_and(|it| settings.has(it))
                && !pod.terminating
                && !entry.is_evicted
                && !entry.held.is_active(now)
                && !is_held(self.namespaces.get(&key.namespace))
                && !is_held(self.owners.get(owner))
                && !is_held(self.awaited.get(owner))
                && !others.disrupted
                && !(pod.ready && others.unready)
        });
        // Among Pods with the fewest forbidden evictions, one that is not ready has priority, then a missed Pod.
        let (key, entry) = candidates.min_by_key(|(_, entry)| {
            let is_missed = entry.pod.deviation.is_some_and(Deviation::is_missed);
            (entry.forbidden, entry.pod.ready, !is_missed)
        })?;
        Some((key.clone(), entry.pod.uid.clone()))
    }

    fn half_open(&mut self, now: Duration) {
        let failures = match self.circuit {
            Circuit::Open { until, failures } if until <= now => failures,
            Circuit::HalfOpen {
                tested: Some(since),
                failures,
            } if since + TEST_TIMEOUT <= now => failures,
            Circuit::Closed {
                unproven: UNPROVEN..,
                last: Some(last),
            } if last + TEST_TIMEOUT <= now => 0,
            _ => return,
        };
        self.circuit = Circuit::HalfOpen {
            tested: None,
            failures,
        };
    }

    fn owner_states(&self) -> HashMap<&str, OwnerState> {
        let mut states: HashMap<&str, OwnerState> = HashMap::new();
        for entry in self.pods.values() {
            let Some(owner) = &entry.pod.owner else {
                continue;
            };
            let state = states.entry(owner).or_default();
            state.disrupted |= entry.is_evicted || entry.pod.terminating;
            state.unready |= !entry.pod.ready;
        }
        states
    }

    /// Processes the result of the eviction that [`Evictions::next`] selected.
    pub fn executed(&mut self, key: &PodKey, outcome: EvictionOutcome, now: Duration) {
        if outcome == EvictionOutcome::Forbidden {
            let held = self.namespaces.entry(key.namespace.clone()).or_default();
            held.again(FORBIDDEN, now);
        }
        if outcome == EvictionOutcome::Evicted {
            self.namespaces.remove(&key.namespace);
            match &mut self.circuit {
                Circuit::HalfOpen { tested, .. } => *tested = Some(now),
                Circuit::Closed { unproven, last } => {
                    *unproven += 1;
                    *last = Some(now);
                }
                Circuit::Open { .. } => {}
            }
        }
        let Some(entry) = self.pods.get_mut(key) else {
            return;
        };
        let held = &mut entry.held;
        match outcome {
            EvictionOutcome::Evicted => {
                entry.is_evicted = true;
                if let Some(owner) = &entry.pod.owner {
                    let awaited = self.awaited.entry(owner.clone()).or_default();
                    awaited.again(NO_EFFECT, now);
                }
            }
            EvictionOutcome::BudgetExhausted { retry_after } => {
                held.again(BUDGET, now);
                held.until = held
                    .until
                    .max(retry_after.map(|it| now + it.min(BUDGET.cap)));
            }
            EvictionOutcome::SeveralBudgets => held.until = Some(now + SEVERAL_BUDGETS),
            EvictionOutcome::Forbidden => entry.forbidden = entry.forbidden.saturating_add(1),
            // The watch reports whether the Pod still exists.
            EvictionOutcome::Gone | EvictionOutcome::Failed => {
                held.again(FAILED, now);
            }
        }
    }

    /// Returns the number of deviating Pods, by namespace and deviation.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&str, Deviation), u32> {
        let mut counts = BTreeMap::new();
        for (key, entry) in &self.pods {
            if let Some(deviation) = entry.pod.deviation {
                *counts.entry((&*key.namespace, deviation)).or_default() += 1;
            }
        }
        counts
    }

    /// Returns the number of namespaces with deviating Pods in which the last eviction was forbidden.
    #[must_use]
    pub fn forbidden_namespaces(&self) -> usize {
        let deviating = self
            .pods
            .iter()
            .filter(|(_, it)| it.pod.deviation.is_some());
        let namespaces: HashSet<&str> = deviating.map(|(key, _)| &*key.namespace).collect();
        let forbidden = self.namespaces.keys();
        forbidden.filter(|it| namespaces.contains(&***it)).count()
    }

    /// Returns whether a new Pod was missed, so that no Pod is evicted for some time.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.circuit, Circuit::Open { .. })
    }
}

impl EvictionSettings {
    fn has(&self, deviation: Deviation) -> bool {
        match deviation {
            Deviation::Missed(_) => self.missed,
            Deviation::Outdated(cause) => self.outdated.contains(&cause),
        }
    }

    /// Returns whether no Pod is ever evicted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Held {
    fn is_active(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn again(&mut self, pause: Pause, now: Duration) {
        self.until = Some(now + pause.after(self.times));
        self.times = self.times.saturating_add(1);
    }
}

impl Pause {
    const fn of(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    fn after(self, times: u32) -> Duration {
        let doublings = 2_u32.saturating_pow(times);
        self.base.saturating_mul(doublings).min(self.cap)
    }
}
