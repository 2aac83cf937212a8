//! Metrics of repairs.

use std::collections::BTreeMap;

use component_base::metrics::{family, register};
use policy::repairs::Deviation;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Maximum number of namespaces, and of nodes, with separate series. The others are counted together.
const MAX_NAMES: usize = 200;

/// The label of the namespaces and nodes beyond [`MAX_NAMES`]. No Namespace or Node can have this name.
const OTHERS: &str = "(others)";

type Labels<const N: usize> = [(&'static str, String); N];

type PodGauge<const N: usize> = Family<Labels<N>, Gauge>;

/// Metrics of repairs. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct RepairMetrics {
    missed: PodGauge<2>,
    pub(super) missed_found: Counter,
    outdated: PodGauge<2>,
    unstarted: PodGauge<1>,
    pub(super) evictions: Family<[(&'static str, &'static str); 1], Counter>,
    pub(super) forbidden: Gauge,
    pub(super) suspended: Gauge,
    pub(super) unjudged: Gauge,
}

impl RepairMetrics {
    /// Registers `missed_pods{namespace,reason}`, `missed_pods_found_total`, `outdated_pods{namespace,reason}`, `trust_bundle_pods_not_started{node}`,
    /// `pod_evictions_total{result}`, `pod_eviction_forbidden_namespaces`, `pod_evictions_suspended` and `unjudged_pods`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let missed = "Number of Pods that were created after the configuration that covers them and lack a change, by namespace and first missing change (none on replicas that do not lead)";
        let found = "Number of Pods that were found to be missed, also those that were deleted or evicted since then; a new leader, or its repairs after a panic, count those of the last 30 minutes again";
        let outdated = "Number of Pods that were created before a change that reaches new Pods only, by namespace and kind of change (none on replicas that do not lead)";
        let unstarted = "Number of Pods that mount the trust bundle and have not started two minutes after they were scheduled, by node (none on replicas that do not lead)";
        let evictions = "Number of evictions of missed and outdated Pods, by result";
        let forbidden = "Number of namespaces in which the last eviction was forbidden";
        let suspended = "Whether evictions are suspended because a new Pod was missed too (1)";
        let unjudged = "Number of Pods of which an internal error leaves unknown whether they lack changes (0 on replicas that do not lead)";
        Self {
            missed: family(registry, "missed_pods", missed, ["namespace", "reason"]),
            missed_found: register(registry, "missed_pods_found", found),
            outdated: family(registry, "outdated_pods", outdated, ["namespace", "reason"]),
            unstarted: family(
                registry,
                "trust_bundle_pods_not_started",
                unstarted,
                ["node"],
            ),
            evictions: family(registry, "pod_evictions", evictions, ["result"]),
            forbidden: register(registry, "pod_eviction_forbidden_namespaces", forbidden),
            suspended: register(registry, "pod_evictions_suspended", suspended),
            unjudged: register(registry, "unjudged_pods", unjudged),
        }
    }

    /// Sets the gauges to these series, and removes previous series that have no Pods anymore.
    pub(super) fn set(&self, series: &PodSeries, before: &PodSeries) {
        update(&self.missed, &series.missed, &before.missed);
        update(&self.outdated, &series.outdated, &before.outdated);
        update(&self.unstarted, &series.unstarted, &before.unstarted);
    }
}

fn update<const N: usize>(gauge: &PodGauge<N>, series: &Series<N>, before: &Series<N>) {
    for (labels, count) in series {
        gauge.get_or_create(labels).set(*count);
    }
    for labels in before.keys().filter(|it| !series.contains_key(*it)) {
        gauge.remove(labels);
    }
}

/// Number of Pods by labels.
type Series<const N: usize> = BTreeMap<Labels<N>, i64>;

/// Series of all gauges of Pods.
#[derive(Debug, Default)]
pub(super) struct PodSeries {
    missed: Series<2>,
    outdated: Series<2>,
    unstarted: Series<1>,
}

impl PodSeries {
    /// Creates the series for these numbers of missed and outdated Pods, and of Pods that have not started, by node.
    pub(super) fn of(
        counts: &BTreeMap<(&str, Deviation), u32>,
        unstarted: &BTreeMap<&str, u32>,
    ) -> Self {
        let mut series = Self::default();
        let mut namespaces = 0;
        let mut last = "";
        for ((namespace, deviation), count) in counts {
            if *namespace != last {
                namespaces += 1;
                last = namespace;
            }
            let labels = [
                ("namespace", name_or_others(namespace, namespaces)),
                ("reason", deviation.reason().to_owned()),
            ];
            let pods = if deviation.is_missed() {
                &mut series.missed
            } else {
                &mut series.outdated
            };
            *pods.entry(labels).or_default() += i64::from(*count);
        }
        for (number, (node, count)) in (1..).zip(unstarted) {
            let labels = [("node", name_or_others(node, number))];
            *series.unstarted.entry(labels).or_default() += i64::from(*count);
        }
        series
    }
}

/// Returns the label value for a name, which is the `number`-th name.
fn name_or_others(name: &str, number: usize) -> String {
    let name = if number > MAX_NAMES { OTHERS } else { name };
    name.to_owned()
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
        let series = PodSeries::of(&counts.collect(), &BTreeMap::new());
        assert_eq!(series.missed.len(), 201);
        let labels = [
            ("namespace", OTHERS.to_owned()),
            ("reason", "ImageRewritten".to_owned()),
        ];
        assert_eq!(series.missed[&labels], 6);
    }

    #[test]
    fn more_nodes_than_two_hundred_share_a_series() {
        let names: Vec<String> = (0..203).map(|it| format!("node-{it:03}")).collect();
        let unstarted = names.iter().map(|it| (it.as_str(), 2)).collect();
        let series = PodSeries::of(&BTreeMap::new(), &unstarted);
        assert_eq!(series.unstarted.len(), 201);
        assert_eq!(series.unstarted[&[("node", OTHERS.to_owned())]], 6);
    }
}
