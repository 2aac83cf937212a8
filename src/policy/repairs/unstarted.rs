//! Pods that wait for the volume of the trust bundle.
//!
//! A kubelet that cannot mount it, such as one without the feature gate ClusterTrustBundleProjection, tries again for ever,
//! and the Pod does not change meanwhile: only its time shows it. This process measures the time, from its first observation
//! of the scheduled Pod. The condition's `lastTransitionTime` is a time of the API server, which is never compared with the
//! clock of this process: a clock that is two minutes fast would report every Pod that starts. A new leader measures again,
//! so it reports a Pod that waits two minutes later.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::PodKey;

/// Time after which a Pod is late. A kubelet mounts volumes and creates the sandbox within seconds.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// What a container waits for while its Pod has no sandbox.
const BEFORE_START: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// A Pod that has been scheduled and has not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstartedPod {
    /// Its uid.
    pub uid: Box<str>,
    /// The name of its node.
    pub node: Box<str>,
}

/// The Pods that have not started, each with the time of its first observation as such.
#[derive(Debug, Default)]
pub struct UnstartedPods(BTreeMap<PodKey, Wait>);

#[derive(Debug)]
struct Wait {
    pod: UnstartedPod,
    since: Duration,
    is_late: bool,
}

impl UnstartedPod {
    /// Reads a stored Pod, given as JSON; `None` if it is not scheduled, is being deleted, or has got a sandbox.
    #[must_use]
    pub fn of(pod: &Value) -> Option<Self> {
        let (metadata, status) = (&pod["metadata"], &pod["status"]);
        let is_true = |condition: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.any(|it| it["type"] == condition && it["status"] == "True")
        };
        let lists = ["initContainerStatuses", "containerStatuses"];
        let mut containers = lists
            .iter()
            .filter_map(|it| status[it].as_array())
            .flatten();
        let waits = metadata["deletionTimestamp"].is_null()
            && status["phase"] == "Pending"
            && is_true("PodScheduled")
            && !is_true("PodReadyToStartContainers")
            && containers.all(|it| {
                let reason = it["state"]["waiting"]["reason"].as_str();
                reason.is_some_and(|it| BEFORE_START.contains(&it))
            });
        waits.then_some(())?;
        Some(Self {
            uid: metadata["uid"].as_str()?.into(),
            node: pod["spec"]["nodeName"].as_str()?.into(),
        })
    }
}

impl UnstartedPods {
    /// Takes what a list or watch tells of a Pod; `None` if it has started, is gone, or lacks the volume.
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

    /// Removes the Pods that a complete list does not have.
    pub fn retain(&mut self, is_listed: impl Fn(&PodKey) -> bool) {
        self.0.retain(|key, _| is_listed(key));
    }

    /// The Pods that have become late since the last call.
    pub fn newly_late(&mut self, now: Duration) -> impl Iterator<Item = (&PodKey, &UnstartedPod)> {
        let waits = self.0.iter_mut();
        let late = waits.filter(move |(_, it)| !it.is_late && it.since + START_TIMEOUT <= now);
        late.map(|(key, wait)| {
            wait.is_late = true;
            (key, &wait.pod)
        })
    }

    /// The number of late Pods by node.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&str, u32> {
        let mut counts = BTreeMap::new();
        for wait in self.0.values().filter(|it| it.is_late) {
            *counts.entry(&*wait.pod.node).or_default() += 1;
        }
        counts
    }
}
