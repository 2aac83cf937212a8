//! Reasons why a feature changed a Pod, or did not: a typed value from which Events, metrics, logs and reports are derived.

use api::Feature;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::registry::User;

/// One reason, for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// Feature of the reason.
    pub feature: Feature,
    /// The reason.
    pub reason: Reason<'a>,
}

impl<'a> Finding<'a> {
    pub(super) fn new(feature: Feature, reason: Reason<'a>) -> Self {
        Self { feature, reason }
    }
}

/// Serializes a finding for reports: `{"feature","applied","reason","message"}`.
impl Serialize for Finding<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut finding = serializer.serialize_struct("Finding", 4)?;
        finding.serialize_field("feature", &self.feature)?;
        finding.serialize_field("applied", &self.reason.applied())?;
        finding.serialize_field("reason", self.reason.code().name())?;
        finding.serialize_field("message", &self.reason.to_string())?;
        finding.end()
    }
}

/// Every reason there is. The variant's name is its code; its text is for people.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display, strum::EnumDiscriminants)]
#[strum_discriminants(
    name(Code),
    doc = "A [`Reason`] without its fields.",
    derive(PartialOrd, Ord, Hash, strum::EnumCount, strum::IntoStaticStr)
)]
#[expect(
    missing_docs,
    reason = "the fields are the user of the image, the container, … that the variant speaks of"
)]
pub enum Reason<'a> {
    /// Neither configuration, Namespace nor Pod opts in to the feature.
    #[strum(to_string = "not requested by the configuration, the Namespace or the Pod")]
    NotRequested,
    /// The Pod opts in to the feature, but `availableFeatures` does not contain it.
    #[strum(to_string = "requested, but not in availableFeatures")]
    NotAvailable,
    /// The Pod opts out with `"false"`, and the configuration allows that for this feature.
    #[strum(to_string = "the Pod's annotation is \"false\"")]
    OptedOutByPod,
    /// The Pod is the mirror Pod of a static Pod, which the kubelet owns.
    #[strum(to_string = "a mirror Pod belongs to its kubelet")]
    MirrorPod,
    /// The Pod is being deleted.
    #[strum(to_string = "the Pod is being deleted")]
    PodTerminating,
    /// The field cannot be changed after creation.
    #[strum(to_string = "set at creation only: the field is immutable afterwards")]
    ImmutableField,
    /// The operation is not supported.
    #[strum(to_string = "this operation is not handled")]
    OperationNotHandled,
    /// Pods of this namespace are never sent to the webhook.
    #[strum(to_string = "Pods of namespace {namespace} are not sent to the webhook")]
    NamespaceExcluded { namespace: &'a str },
    /// The Pod is a Pod of the webhook, which is never sent to the webhook.
    #[strum(to_string = "the webhook's own Pods are not sent to it")]
    OwnPod,
    /// The patch of all features would be larger than the limit for a review of this size.
    #[strum(to_string = "the patch is larger than the limit for this review; the Pod is unchanged")]
    PatchTooLarge,
    /// All changes were in place before the review, and the fallback policy is active.
    #[strum(to_string = "in place before the review; the MutatingAdmissionPolicy is in force")]
    AppliedByPolicy,

    /// The registry of the image was replaced.
    #[strum(to_string = "{user}: {from} → {to}")]
    ImageRewritten {
        user: User<'a>,
        from: &'a str,
        to: String,
    },
    /// The image already starts with its replacement.
    #[strum(to_string = "{user}: the image starts with its replacement")]
    ImageAlreadyRewritten { user: User<'a> },
    /// This request did not change the image.
    #[strum(to_string = "container {container}: image not changed")]
    ImageUnchanged { container: &'a str },
    /// There is no override for the registry of the image.
    #[strum(to_string = "{user}: no override for the registry of {image}")]
    NoMatchingOverride { user: User<'a>, image: &'a str },
    /// The result of the override would not be a valid image reference.
    #[strum(to_string = "{user}: invalid result of the override for {image}")]
    InvalidOverride { user: User<'a>, image: &'a str },
    /// The text is not an image reference.
    #[strum(to_string = "{user}: {image:?} is not a valid image reference")]
    InvalidImageReference { user: User<'a>, image: &'a str },

    /// An image's registry is in the Secret's `auths`.
    #[strum(to_string = "{secret} has credentials for {image}")]
    PullSecretRequired { secret: &'a str, image: String },
    /// The Secret is not known yet, so the entry is added in any case.
    #[strum(to_string = "{secret} is not observed yet, so it is named")]
    PullSecretNotObserved { secret: &'a str },
    /// The configuration contains `inject: always`.
    #[strum(to_string = "{secret} is named in every Pod")]
    PullSecretAlwaysInjected { secret: &'a str },
    /// The entry already exists.
    #[strum(to_string = "{secret} is named already")]
    PullSecretAlreadyPresent { secret: &'a str },
    /// The image of a stored Pod needs the Secret, and the entry cannot be added any more.
    #[strum(to_string = "the stored Pod does not name {secret}, so {image} may not be pulled")]
    PullSecretNotNamed { secret: &'a str, image: String },
    /// No kubelet can parse the Secret, so every pull of a Pod that names it would fail.
    #[strum(
        to_string = "{secret} is not a valid docker configuration, so it is not named: every pull of the Pod would fail"
    )]
    InvalidPullSecret { secret: &'a str },
    /// No registry of the Pod needs credentials.
    #[strum(to_string = "no registry of the Pod needs credentials")]
    PullSecretNotRequired,
    /// The selector excludes the namespace from credentials.
    #[strum(to_string = "the namespace selector keeps credentials out of this namespace")]
    NamespaceNotSelected,

    /// The volume of the bundle was added to the Pod.
    #[strum(to_string = "volume {volume} from {bundle}")]
    VolumeAdded { volume: &'a str, bundle: &'a str },
    /// The volume was mounted in the container.
    #[strum(to_string = "container {container}: mounted at {path}")]
    TrustBundleMounted { container: &'a str, path: &'a str },
    /// The container already has the mount.
    #[strum(to_string = "container {container}: mounted already")]
    MountAlreadyPresent { container: &'a str },
    /// The container has another mount or block device at the path.
    #[strum(to_string = "container {container}: own mount or device at {path}")]
    MountPathConflict { container: &'a str, path: &'a str },
    /// The Pod has another volume with the name.
    #[strum(to_string = "the Pod has another volume named {volume}")]
    VolumeNameConflict { volume: &'a str },
    /// The configuration names no bundle.
    #[strum(to_string = "clusterTrustBundle is not configured")]
    TrustBundleNotConfigured,
    /// The configured bundle could not be mounted by any Pod.
    #[strum(to_string = "clusterTrustBundle.{key}: invalid")]
    InvalidTrustBundleConfig { key: &'static str },
    /// The bundle does not exist in the cluster; a Pod would wait for it forever.
    #[strum(to_string = "ClusterTrustBundle {bundle} not found")]
    TrustBundleNotFound { bundle: &'a str },
    /// The cluster does not serve ClusterTrustBundles.
    #[strum(to_string = "this cluster serves no ClusterTrustBundles")]
    TrustBundleAPINotServed,
    /// The API server would store the volume without the bundle, and an empty directory would hide the path.
    #[strum(
        to_string = "the API server does not project ClusterTrustBundles into Pods, or did not tell yet"
    )]
    TrustBundleNotProjected,

    /// The variable was added.
    #[strum(to_string = "container {container}: {variable} added")]
    EnvVarAdded {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable had another value.
    #[strum(to_string = "container {container}: {variable} replaced")]
    EnvVarReplaced {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable already has the value.
    #[strum(to_string = "container {container}: {variable} is set already")]
    EnvVarAlreadySet {
        container: &'a str,
        variable: &'a str,
    },
    /// The process has no setting for the landscape.
    #[strum(to_string = "the webhook was started without --landscape")]
    LandscapeNotConfigured,
}

impl Code {
    /// How many there are; `code as usize` is below it.
    pub const COUNT: usize = <Self as strum::EnumCount>::COUNT;

    /// The name in metrics, logs and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Reason<'_> {
    /// Returns whether the reason is a change.
    #[must_use]
    pub fn applied(&self) -> bool {
        matches!(
            self,
            Self::ImageRewritten { .. }
                | Self::PullSecretRequired { .. }
                | Self::PullSecretNotObserved { .. }
                | Self::PullSecretAlwaysInjected { .. }
                | Self::VolumeAdded { .. }
                | Self::TrustBundleMounted { .. }
                | Self::EnvVarAdded { .. }
                | Self::EnvVarReplaced { .. }
        )
    }

    /// Returns whether the Pod already has the change of the feature.
    pub(super) fn in_place(&self) -> bool {
        matches!(
            self,
            Self::ImageAlreadyRewritten { .. }
                | Self::PullSecretAlreadyPresent { .. }
                | Self::MountAlreadyPresent { .. }
                | Self::EnvVarAlreadySet { .. }
        )
    }

    /// Returns whether the webhook warns the owner of the Pod: the feature was requested, and could not be applied.
    #[must_use]
    pub fn warns(&self) -> bool {
        matches!(
            self,
            Self::NotAvailable
                | Self::PatchTooLarge
                | Self::InvalidOverride { .. }
                | Self::InvalidImageReference { .. }
                | Self::PullSecretNotNamed { .. }
                | Self::InvalidPullSecret { .. }
                | Self::MountPathConflict { .. }
                | Self::VolumeNameConflict { .. }
                | Self::InvalidTrustBundleConfig { .. }
                | Self::TrustBundleNotFound { .. }
                | Self::TrustBundleAPINotServed
                | Self::TrustBundleNotProjected
                | Self::LandscapeNotConfigured
        )
    }

    /// Returns the code in metrics, logs and reports.
    #[must_use]
    pub fn code(&self) -> Code {
        self.into()
    }
}
