//! The CustomResourceDefinitions of KIM and KLM. They have the fields, required fields and enumerations of the public
//! definitions, as far as a double or the product reads or writes them. Other fields are accepted and kept.

/// CustomResourceDefinition of `runtimes.infrastructuremanager.kyma-project.io`.
pub const RUNTIMES: &str = include_str!("crds/runtimes.yaml");
/// CustomResourceDefinition of `gardenerclusters.infrastructuremanager.kyma-project.io`.
pub const GARDENER_CLUSTERS: &str = include_str!("crds/gardenerclusters.yaml");
/// CustomResourceDefinition of `kymas.operator.kyma-project.io`, on KCP and on every runtime.
pub const KYMAS: &str = include_str!("crds/kymas.yaml");
