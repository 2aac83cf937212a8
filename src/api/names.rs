//! Names of objects and keys on which other systems depend, so they must not change.
//!
//! The names are those of <https://github.com/kyma-project/rt-bootstrapper>.

/// Annotation on a Pod that the webhook changed at CREATE; its value is `"true"`.
pub const MARKER: &str = "rt-bootstrapper.kyma-project.io/defaulted";

/// Annotation that the kubelet sets on mirror Pods, which are never changed or evicted.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// Label on each copy of the pull Secret; its value is `"true"`.
pub const PULL_SECRET_COPY_LABEL: &str = "rt-bootstrapper.kyma-project.io/pull-secret-copy";

/// Secret of the serving certificate of the webhook in the product namespace. The name equals that of the public
/// installation, so that an upgrade finds it.
pub const WEBHOOK_CERTIFICATE: &str = "rt-bootstrapper-webhook-cert";

/// Lease of all tasks that only one replica of the webhook may run.
pub const WEBHOOK_LEASE: &str = "rt-bootstrapper-webhook";

/// Secret with the times of the parts of the active revision, which the leader of the webhook stores for the next leader.
pub const REPAIR_RECORD: &str = "rt-bootstrapper-revisions";

/// Name of the pull Secret, in the product namespace and in each namespace that requires it.
pub const PULL_SECRET: &str = "registry-credentials";

/// The only key of a pull Secret that is copied.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Type of a pull Secret.
pub const DOCKER_CONFIG_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// ConfigMap with the configuration document.
pub const CONFIG_MAP: &str = "rt-bootstrapper-config";

/// Key of the configuration document in [`CONFIG_MAP`].
pub const CONFIG_KEY: &str = "rt-bootstrapper-config.json";

/// Namespace of the product on an SKR.
pub const SKR_NAMESPACE: &str = "kyma-system";

/// The only namespace whose Pods are not sent to the webhook, because they belong to the cluster.
pub const EXCLUDED_NAMESPACE: &str = "kube-system";

/// Label of the Pods of the webhook, and its value. Such a Pod in [`SKR_NAMESPACE`] is not sent to the webhook.
pub const OWN_LABEL: (&str, &str) = ("app.kubernetes.io/name", "rt-bootstrapper");

/// The webhook configuration object on an SKR.
pub const WEBHOOK_CONFIGURATION: &str = "rt-bootstrapper-mutating-webhook-configuration";

/// The only entry of [`WEBHOOK_CONFIGURATION`]. Entry names are merge keys, so this name must not change.
pub const WEBHOOK_ENTRY: &str = "mpod-v1.kb.io";

/// MutatingAdmissionPolicy and its binding, for the time when no replica of the webhook responds.
pub const FALLBACK_POLICY: &str = "rt-bootstrapper-mutating-admission-policy";

/// Pod of the dry runs that check whether the API server calls the webhook, in [`SKR_NAMESPACE`].
pub const PROBE_POD: &str = "rt-bootstrapper-probe";

/// Pod of the dry runs that check whether the API server evaluates [`FALLBACK_POLICY`], in [`SKR_NAMESPACE`].
pub const POLICY_PROBE_POD: &str = "rt-bootstrapper-policy-probe";

/// Annotation that the policy adds to [`POLICY_PROBE_POD`]; its value changes with the policy.
pub const POLICY_REVISION: &str = "rt-bootstrapper.kyma-project.io/policy-revision";

/// Path of the admission endpoint.
pub const WEBHOOK_PATH: &str = "/mutate--v1-pod";

/// Field manager of the copies of the pull Secret. The name equals that of the public manager, so its copies count as
/// copies of this webhook.
pub const SECRET_MANAGER: &str = "rt-bootstrapper";

/// Field manager of the `caBundle`.
pub const CA_BUNDLE_MANAGER: &str = "rt-bootstrapper-webhook";

/// Field manager of [`FALLBACK_POLICY`].
pub const FALLBACK_POLICY_MANAGER: &str = "rt-bootstrapper-policy";

/// Variable with the name of the landscape in a workload.
pub const LANDSCAPE_VARIABLE: &str = "KYMA_LANDSCAPE";

/// Default of `fipsVariables` in the configuration.
pub const FIPS_VARIABLE: &str = "KYMA_FIPS_MODE_ENABLED";
