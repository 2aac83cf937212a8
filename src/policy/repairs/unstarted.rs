//! Pods that wait for the volume of the trust bundle.
//!
//! A kubelet that cannot mount the volume, such as a kubelet without the feature gate ClusterTrustBundleProjection,
//! retries forever. The Pod does not change meanwhile, so only its age shows the failure. This process measures the
//! time from its first observation of the scheduled Pod. The `lastTransitionTime` of the condition is a time of the
//! API server, which is never compared with the clock of this process: a clock that is two minutes fast would report
//! every Pod that starts. A new leader measures again, so it reports a waiting Pod two minutes later.

use std::collections::BTreeMap;
use std::time::Duration;

use partial_json::{Summarize, Summary, Text};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::PodKey;

/// Time after which a Pod is late. A kubelet mounts volumes and creates the sandbox within seconds.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Reasons for which a container waits while its Pod has no sandbox.
const BEFORE_START: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A Pod that was scheduled and has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstartedPod {
    /// UID of the Pod.
    pub uid: Box<str>,
    /// Name of the node of the Pod.
    pub node: Box<str>,
}

/// The Pods that have not started, each with the time of its first observation in this state.
#[derive(Debug, Default)]
pub struct UnstartedPods(BTreeMap<PodKey, Wait>);

#[derive(Debug)]
struct Wait {
    pod: UnstartedPod,
    since: Duration,
    is_late: bool,
}

impl UnstartedPod {
    /// Reads a stored Pod, given as JSON. `None` if it is not scheduled, is being deleted, has a sandbox, or is not a Pod.
    #[must_use]
    pub fn of(pod: &str) -> Option<Self> {
        let pod: StoredPod<'_> = partial_json::from_str(pod, usize::MAX).ok()?;
        let status = &pod.status;
        let waits = pod.metadata.deletion_timestamp.is_none()
            && status.phase.as_deref() == Some("Pending")
            && status.conditions.0.is_scheduled
            && !status.conditions.0.has_sandbox
            && !status.init_container_statuses.0.has_started
            && !status.container_statuses.0.has_started;
        waits.then_some(())?;
        Some(Self {
            uid: pod.metadata.uid.as_deref()?.into(),
            node: pod.spec.node_name.as_deref()?.into(),
        })
    }
}

/// Relevant fields of a stored Pod.
#[derive(Deserialize)]
struct StoredPod<'a> {
    #[serde(default, borrow)]
    metadata: Metadata<'a>,
    #[serde(default, borrow)]
    spec: Spec<'a>,
    #[serde(default, borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    #[serde(default)]
    conditions: Summary<PodConditions>,
    #[serde(default)]
    init_container_statuses: Summary<Containers>,
    #[serde(default)]
    container_statuses: Summary<Containers>,
}

/// Relevant conditions of a Pod.
#[derive(Debug, Default)]
pub struct PodConditions {
    /// Whether the Pod is ready.
    pub is_ready: bool,
    is_scheduled: bool,
    has_sandbox: bool,
}

/// One condition of a Pod.
#[derive(Debug, Deserialize)]
pub struct PodCondition<'a> {
    #[serde(default, borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(default, borrow)]
    status: Text<'a>,
}

impl<'de> Summarize<'de> for PodConditions {
    type Item = PodCondition<'de>;

    fn add(&mut self, condition: PodCondition<'de>) {
        let is_true = &*condition.status == "True";
        match &*condition.kind {
            "Ready" => self.is_ready |= is_true,
            "PodScheduled" => self.is_scheduled |= is_true,
            "PodReadyToStartContainers" => self.has_sandbox |= is_true,
            _ => {}
        }
    }
}

#[derive(Default)]
struct Containers {
    has_started: bool,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(default, borrow)]
    state: State<'a>,
}

#[derive(Default, Deserialize)]
struct State<'a> {
    #[serde(borrow)]
    waiting: Option<Waiting<'a>>,
}

#[derive(Deserialize)]
struct Waiting<'a> {
    #[serde(default, borrow)]
    reason: Text<'a>,
}

impl<'de> Summarize<'de> for Containers {
    type Item = Container<'de>;

    fn add(&mut self, container: Container<'de>) {
        let waits = container.state.waiting.as_ref();
        self.has_started |= waits.is_none_or(|it| !BEFORE_START.contains(&&*it.reason));
    }
}

impl UnstartedPods {
    /// Processes a Pod from a list or watch; `None` if it has started, is deleted, or lacks the volume.
    pub fn observe(&mut self, key: &PodKey, pod: Option<UnstartedPod>, now: Duration) {
        let known = self.0.get(key);
        if known.map(|it| &it.pod) == pod.as_ref() {
            return;
        }
        self.0.remove(key);
        if let Some(pod) = pod {
            let wait = Wait {
                pod,
                since: now,
                is_late: false,
            };
            self.0.insert(key.clone(), wait);
        }
    }

    /// Removes the Pods that a complete list does not contain.
    pub fn retain(&mut self, is_listed: impl Fn(&PodKey) -> bool) {
        self.0.retain(|key, _| is_listed(key));
    }

    /// Returns the Pods that have become late since the last call.
    pub fn newly_late(&mut self, now: Duration) -> impl Iterator<Item = (&PodKey, &UnstartedPod)> {
        let waits = self.0.iter_mut();
        let late = waits.filter(move |(_, it)| !it.is_late && it.since + START_TIMEOUT <= now);
        late.map(|(key, wait)| {
            wait.is_late = true;
            (key, &wait.pod)
        })
    }

    /// Returns the number of late Pods by node.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for wait in self.0.values().filter(|it| it.is_late) {
            *counts.entry(&*wait.pod.node).or_default() += 1;
        }
        counts
    }
}
