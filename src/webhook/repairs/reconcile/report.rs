//! Metrics, log messages and Events about the Pods.

use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use policy::repairs::{EvictionOutcome, PodKey};

use super::Reconciler;
use crate::repairs::metrics::PodSeries;
use crate::repairs::pod::LONGEST_NOTE;

/// Maximum number of pending Events. Further Pods are only reported by the gauge.
const MAX_EVENTS: usize = 2000;

/// Maximum number of Events per round.
const EVENTS_PER_TICK: usize = 10;

/// Reason of the Event on a Pod that has not started.
const NOT_MOUNTED: &str = "TrustBundleNotMounted";

impl Reconciler<'_> {
    pub(super) fn count(&mut self, is_complete: bool) {
        let metrics = &self.repairs.metrics;
        let counts = self.evictions.counts();
        let series = PodSeries::of(&counts, &self.unstarted.counts());
        metrics.set(&series, &self.series);
        let forbidden = i64::try_from(self.evictions.forbidden_namespaces());
        metrics.forbidden.set(forbidden.unwrap_or(i64::MAX));
        metrics.suspended.set(i64::from(self.evictions.is_open()));
        let unjudged = i64::try_from(self.unjudged.len());
        metrics.unjudged.set(unjudged.unwrap_or(i64::MAX));
        let missed = counts.iter().filter(|((_, it), _)| it.is_missed());
        let missed: usize = missed.map(|(_, count)| *count as usize).sum();
        if is_complete && (missed == 0) != (self.missed_before == 0) {
            if missed == 0 {
                tracing::info!("no missed Pods any more");
            } else {
                tracing::warn!(missed, "missed Pods found");
            }
        }
        self.series = series;
        if is_complete {
            self.missed_before = missed;
        }
    }

    /// Processes whether the judgment of a Pod ended. One that panicked is logged once, until another one ends.
    pub(super) fn report_judged(&mut self, key: &PodKey, is_judged: bool) {
        if is_judged {
            self.unjudged.remove(key);
        } else if self.unjudged.insert(key.clone()) {
            let (namespace, pod) = (&*key.namespace, &*key.name);
            tracing::error!(namespace, pod, "judgment of a Pod panicked");
        }
    }

    pub(super) fn report_unstarted(&mut self) {
        let late = self.unstarted.newly_late(self.started.elapsed());
        // The others are only reported by the gauge.
        let free = MAX_EVENTS.saturating_sub(self.events.len());
        let late = late.enumerate().filter(|(number, _)| *number < free);
        let late = late.map(|(_, (key, pod))| {
            let note = format!(
                "mounts a ClusterTrustBundle and has not started two minutes after it was scheduled to node {}: \
                 look for Event FailedMount of the kubelet, and whether the feature gate \
                 ClusterTrustBundleProjection is on at the node",
                pod.node
            );
            (reference(key, &pod.uid), note)
        });
        for (pod, note) in late.collect::<Vec<_>>() {
            self.enqueue(pod, NOT_MOUNTED.to_owned(), note);
        }
    }

    /// Queues an Event, unless many Pods changed at once.
    pub(super) fn enqueue(&mut self, pod: ObjectReference, reason: String, note: String) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back((pod, reason, note));
        }
    }

    pub(super) async fn publish_pending(&mut self) {
        for _ in 0..EVENTS_PER_TICK {
            let Some((pod, reason, note)) = self.events.pop_front() else {
                break;
            };
            self.publish(&pod, EventType::Warning, &reason, note).await;
        }
    }

    /// Reports an eviction, or the reason why there is none.
    pub(super) async fn report(
        &self,
        key: &PodKey,
        uid: &str,
        outcome: EvictionOutcome,
        text: &str,
    ) {
        let (namespace, pod) = (&*key.namespace, &*key.name);
        let (type_, reason, note) = match outcome {
            EvictionOutcome::Evicted => {
                let note = "evicted so that its successor gets the changes of the webhook";
                tracing::info!(namespace, pod, "Pod {note}");
                (EventType::Normal, "EvictedForRepair", note.to_owned())
            }
            EvictionOutcome::Forbidden | EvictionOutcome::SeveralBudgets => {
                tracing::warn!(namespace, pod, error = text, "eviction refused");
                let note = format!("lacks changes of the webhook and cannot be evicted: {text}");
                let reason = match outcome {
                    EvictionOutcome::Forbidden => "EvictionForbidden",
                    _ => "SeveralPodDisruptionBudgets",
                };
                let note = note.chars().take(LONGEST_NOTE).collect();
                (EventType::Warning, reason, note)
            }
            EvictionOutcome::Failed => {
                tracing::warn!(namespace, pod, error = text, "eviction failed, retrying");
                return;
            }
            EvictionOutcome::Gone | EvictionOutcome::BudgetExhausted { .. } => return,
        };
        self.publish(&reference(key, uid), type_, reason, note)
            .await;
    }

    async fn publish(&self, pod: &ObjectReference, type_: EventType, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "RepairPod".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.repairs.recorder.publish(&event, pod).await {
            tracing::debug!(error = error_chain(&error), "failed to write Event");
        }
    }
}

fn reference(key: &PodKey, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some((*key.namespace).to_owned()),
        name: Some((*key.name).to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

impl Drop for Reconciler<'_> {
    /// The next leader sets the gauges.
    fn drop(&mut self) {
        let metrics = &self.repairs.metrics;
        metrics.set(&PodSeries::default(), &self.series);
        metrics.forbidden.set(0);
        metrics.suspended.set(0);
        metrics.unjudged.set(0);
    }
}
