//! Names of objects and keys that other systems rely on, so they may not change.
//!
//! They are those of <https://github.com/kyma-project/rt-bootstrapper>.

/// Annotation on a Pod that we changed at CREATE; its value is `"true"`.
pub const MARKER: &str = "rt-bootstrapper.kyma-project.io/defaulted";

/// Annotation that the kubelet puts on mirror Pods; such Pods are never changed nor evicted.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";

/// Label on every copy of the pull Secret that we made; its value is `"true"`.
pub const PULL_SECRET_COPY_LABEL: &str = "rt-bootstrapper.kyma-project.io/pull-secret-copy";

/// Secret of the webhook's serving certificate in the product namespace. The public installation calls it so too, so an
/// upgrade finds it.
pub const WEBHOOK_CERTIFICATE: &str = "rt-bootstrapper-webhook-cert";

/// Lease of everything that only one replica of the webhook may do.
pub const WEBHOOK_LEASE: &str = "rt-bootstrapper-webhook";

/// Secret with the times of the active revision's parts, which the leader of the webhook keeps for the next one.
pub const REPAIR_RECORD: &str = "rt-bootstrapper-revisions";

/// Name of the pull Secret, in the product namespace and in every namespace that needs it.
pub const PULL_SECRET: &str = "registry-credentials";

/// The only key of a pull Secret that is copied.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Type of a pull Secret.
pub const DOCKER_CONFIG_TYPE: &str = "kubernetes.io/dockerconfigjson";

/// ConfigMap that holds the configuration document.
pub const CONFIG_MAP: &str = "rt-bootstrapper-config";

/// Key of the configuration document in [`CONFIG_MAP`].
pub const CONFIG_KEY: &str = "rt-bootstrapper-config.json";

/// Namespace of the product on an SKR.
pub const SKR_NAMESPACE: &str = "kyma-system";

/// The one namespace whose Pods are not sent to the webhook: those of the cluster itself.
pub const EXCLUDED_NAMESPACE: &str = "kube-system";

/// Label of the webhook's own Pods, and its value; such a Pod in [`SKR_NAMESPACE`] is not sent to the webhook.
pub const OWN_LABEL: (&str, &str) = ("app.kubernetes.io/name", "rt-bootstrapper");

/// The webhook configuration object on an SKR.
pub const WEBHOOK_CONFIGURATION: &str = "rt-bootstrapper-mutating-webhook-configuration";

/// The one entry of [`WEBHOOK_CONFIGURATION`]. Entry names are merge keys, so this one is frozen.
pub const WEBHOOK_ENTRY: &str = "mpod-v1.kb.io";

/// The MutatingAdmissionPolicy and its binding, for the time when no replica of the webhook answers.
pub const FALLBACK_POLICY: &str = "rt-bootstrapper-mutating-admission-policy";

/// Pod of the dry runs that show whether the API server asks the webhook, in [`SKR_NAMESPACE`].
pub const PROBE_POD: &str = "rt-bootstrapper-probe";

/// Pod of the dry runs that show whether the API server evaluates [`FALLBACK_POLICY`], in [`SKR_NAMESPACE`].
pub const POLICY_PROBE_POD: &str = "rt-bootstrapper-policy-probe";

/// Annotation that the policy adds to [`POLICY_PROBE_POD`]; its value changes with the policy.
pub const POLICY_REVISION: &str = "rt-bootstrapper.kyma-project.io/policy-revision";

/// Path of the admission endpoint.
pub const WEBHOOK_PATH: &str = "/mutate--v1-pod";

/// Field manager of the copies of the pull Secret (the public manager's name: its copies count as ours).
pub const SECRET_MANAGER: &str = "rt-bootstrapper";

/// Field manager of the `caBundle`.
pub const CA_BUNDLE_MANAGER: &str = "rt-bootstrapper-webhook";

/// Field manager of [`FALLBACK_POLICY`].
pub const FALLBACK_POLICY_MANAGER: &str = "rt-bootstrapper-policy";

/// Variable that names the landscape to a workload.
pub const LANDSCAPE_VARIABLE: &str = "KYMA_LANDSCAPE";

/// Default of the configuration's `fipsVariables`.
pub const FIPS_VARIABLE: &str = "KYMA_FIPS_MODE_ENABLED";
