//! The CustomResourceDefinitions of the neighbours: fields, required fields and enumerations of the public ones, as far as a
//! double or the product reads or writes them. Other fields are accepted and kept.

/// `runtimes.infrastructuremanager.kyma-project.io`.
pub const RUNTIMES: &str = include_str!("crds/runtimes.yaml");
/// `gardenerclusters.infrastructuremanager.kyma-project.io`.
pub const GARDENER_CLUSTERS: &str = include_str!("crds/gardenerclusters.yaml");
/// `kymas.operator.kyma-project.io`, on KCP and on every runtime.
pub const KYMAS: &str = include_str!("crds/kymas.yaml");
