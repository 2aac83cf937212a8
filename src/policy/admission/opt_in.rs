//! Enabled features of a Pod: the features of three levels (configuration, Namespace, Pod), minus the features from
//! which the Pod opts out.

use api::{Feature, FeatureSet};

use super::{Annotations, Configuration, Namespace, Reason};

/// The result for every feature of one Pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptIn {
    requested: FeatureSet,
    refused: FeatureSet,
    available: FeatureSet,
}

impl OptIn {
    pub(super) fn of(
        configuration: &Configuration,
        namespace_name: &str,
        namespace: Option<&Namespace>,
        pod: Annotations,
    ) -> Self {
        let available = configuration.available();
        let by_namespace =
            namespace.map_or(FeatureSet::EMPTY, |it| it.annotations.requested(available));
        Self {
            requested: configuration
                .namespace_features(namespace_name)
                .union(by_namespace)
                .union(pod.requested(available)),
            refused: pod.refused().intersection(configuration.opt_out()),
            available,
        }
    }

    /// Returns the reason why the feature is not applied; `None` if it is applied.
    pub(super) fn refusal(self, feature: Feature) -> Option<Reason<'static>> {
        if !self.requested.contains(feature) {
            Some(Reason::NotRequested)
        } else if !self.available.contains(feature) {
            Some(Reason::NotAvailable)
        } else if self.refused.contains(feature) {
            Some(Reason::OptedOutByPod)
        } else {
            None
        }
    }

    pub(super) fn enabled(self) -> FeatureSet {
        self.requested
            .intersection(self.available)
            .difference(self.refused)
    }
}
