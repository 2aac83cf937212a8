//! Metrics of repairs.

use std::collections::BTreeMap;

use component_base::metrics::register;
use policy::repairs::Deviation;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The largest number of namespaces, and of nodes, with series of their own; the others are counted together.
const MAX_NAMES: usize = 200;

/// The label of the namespaces and nodes beyond [`MAX_NAMES`]. No Namespace or Node can have this name.
const OTHERS: &str = "(others)";

/// Label sets of a gauge of Pods: namespace and reason.
type PodLabels = [(&'static str, String); 2];

/// Metrics of repairs. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RepairMetrics {
    missed: Family<PodLabels, Gauge>,
    outdated: Family<PodLabels, Gauge>,
    unstarted: Family<[(&'static str, String); 1], Gauge>,
    pub(super) evictions: Family<[(&'static str, &'static str); 1], Counter>,
    pub(super) forbidden: Gauge,
    pub(super) suspended: Gauge,
}

impl RepairMetrics {
    /// Registers `missed_pods{namespace,reason}`, `outdated_pods{namespace,reason}`, `trust_bundle_pods_not_started{node}`,
    /// `pod_evictions_total{result}`, `pod_eviction_forbidden_namespaces` and `pod_evictions_suspended`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let missed = "Number of Pods that were created after the configuration that covers them and lack a change, by namespace and first missing change (none on replicas that do not lead)";
        let outdated = "Number of Pods that were created before a change that reaches new Pods only, by namespace and kind of change (none on replicas that do not lead)";
        let unstarted = "Number of Pods that mount the trust bundle and have not started two minutes after they were scheduled, by node (none on replicas that do not lead)";
        let evictions = "Number of evictions of missed and outdated Pods, by result";
        let forbidden = "Number of namespaces in which the last eviction was forbidden";
        let suspended = "Whether evictions are suspended because a new Pod was missed too (1)";
        Self {
            missed: register(registry, "missed_pods", missed),
            outdated: register(registry, "outdated_pods", outdated),
            unstarted: register(registry, "trust_bundle_pods_not_started", unstarted),
            evictions: register(registry, "pod_evictions", evictions),
            forbidden: register(registry, "pod_eviction_forbidden_namespaces", forbidden),
            suspended: register(registry, "pod_evictions_suspended", suspended),
        }
    }

    /// Creates one series in each family, for the generated reference.
    pub fn create_series(&self) {
        let labels = || [("namespace", String::new()), ("reason", String::new())];
        drop(self.missed.get_or_create(&labels()));
        drop(self.outdated.get_or_create(&labels()));
        drop(self.unstarted.get_or_create(&[("node", String::new())]));
        drop(self.evictions.get_or_create(&[("result", "")]));
    }

    /// Sets both gauges to these series, and removes those that were set before and have no Pods any more.
    pub(super) fn set(&self, series: &PodSeries, before: &PodSeries) {
        for ((is_missed, labels), count) in &series.0 {
            self.family(*is_missed).get_or_create(labels).set(*count);
        }
        for (is_missed, labels) in before.0.keys() {
            if !series.0.contains_key(&(*is_missed, labels.clone())) {
                self.family(*is_missed).remove(labels);
            }
        }
    }

    /// Sets the gauge of Pods that have not started, and removes the nodes that had such Pods before and have none any more.
    pub(super) fn set_unstarted(&self, series: &NodeSeries, before: &NodeSeries) {
        for (node, count) in &series.0 {
            let labels = [("node", node.clone())];
            self.unstarted.get_or_create(&labels).set(*count);
        }
        for node in before.0.keys().filter(|it| !series.0.contains_key(*it)) {
            self.unstarted.remove(&[("node", node.clone())]);
        }
    }

    fn family(&self, is_missed: bool) -> &Family<PodLabels, Gauge> {
        if is_missed {
            &self.missed
        } else {
            &self.outdated
        }
    }
}

/// Series of both gauges: whether it is that of missed Pods, its labels, and the number of Pods.
#[derive(Debug, Default)]
pub(super) struct PodSeries(BTreeMap<(bool, PodLabels), i64>);

impl PodSeries {
    /// The series of these numbers of Pods.
    pub(super) fn of(counts: &BTreeMap<(&str, Deviation), u32>) -> Self {
        let mut series = Self::default();
        let mut namespaces = 0;
        let mut last = "";
        for ((namespace, deviation), count) in counts {
            if *namespace != last {
                namespaces += 1;
                last = namespace;
            }
            let namespace = if namespaces > MAX_NAMES {
                OTHERS
            } else {
                namespace
            };
            let labels = [
                ("namespace", namespace.to_owned()),
                ("reason", deviation.reason().to_owned()),
            ];
            let key = (deviation.is_missed(), labels);
            *series.0.entry(key).or_default() += i64::from(*count);
        }
        series
    }
}

/// Pods that have not started, by node.
#[derive(Debug, Default)]
pub(super) struct NodeSeries(BTreeMap<String, i64>);

impl NodeSeries {
    /// The series of these numbers of Pods.
    pub(super) fn of(counts: &BTreeMap<&str, u32>) -> Self {
        let mut series = Self::default();
        for (index, (node, count)) in counts.iter().enumerate() {
            let node = if index < MAX_NAMES { node } else { OTHERS };
            *series.0.entry(node.to_owned()).or_default() += i64::from(*count);
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use policy::admission::Code;

    use super::*;

    #[test]
    fn more_namespaces_than_two_hundred_share_a_series() {
        let names: Vec<String> = (0..203).map(|it| format!("ns-{it:03}")).collect();
        let deviation = Deviation::Missed(Code::ImageRewritten);
        let counts = names.iter().map(|it| ((it.as_str(), deviation), 2));
        let series = PodSeries::of(&counts.collect());
        assert_eq!(series.0.len(), 201);
        let labels = [
            ("namespace", OTHERS.to_owned()),
            ("reason", "ImageRewritten".to_owned()),
        ];
        assert_eq!(series.0[&(true, labels)], 6);
    }

    #[test]
    fn more_nodes_than_two_hundred_share_a_series() {
        let names: Vec<String> = (0..203).map(|it| format!("node-{it:03}")).collect();
        let series = NodeSeries::of(&names.iter().map(|it| (it.as_str(), 2)).collect());
        assert_eq!(series.0.len(), 201);
        assert_eq!(series.0[OTHERS], 6);
    }
}
