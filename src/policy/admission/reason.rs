//! Reasons why a feature changed a Pod, or did not: a typed value from which Events, metrics, logs and reports are derived.

use std::fmt;

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
#[derive(Clone, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
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
    NotRequested,
    /// The Pod opts in to the feature, but `availableFeatures` does not contain it.
    NotAvailable,
    /// The Pod opts out with `"false"`, and the configuration allows that for this feature.
    OptedOutByPod,
    /// The Pod is the mirror Pod of a static Pod, which the kubelet owns.
    MirrorPod,
    /// The Pod is being deleted.
    PodTerminating,
    /// The field cannot be changed after creation.
    ImmutableField,
    /// The operation is not supported.
    OperationNotHandled,
    /// Pods of this namespace are never sent to the webhook.
    NamespaceExcluded { namespace: &'a str },
    /// The Pod is a Pod of the webhook, which is never sent to the webhook.
    OwnPod,
    /// The patch of all features would be larger than the limit for a review of this size.
    PatchTooLarge,
    /// All changes were in place before the review, and the fallback policy is active.
    AppliedByPolicy,

    /// The registry of the image was replaced.
    ImageRewritten {
        user: User<'a>,
        from: &'a str,
        to: String,
    },
    /// The image already starts with its replacement.
    ImageAlreadyRewritten { user: User<'a> },
    /// This request did not change the image.
    ImageUnchanged { container: &'a str },
    /// There is no override for the registry of the image.
    NoMatchingOverride { user: User<'a>, image: &'a str },
    /// The result of the override would not be a valid image reference.
    InvalidOverride { user: User<'a>, image: &'a str },
    /// The text is not an image reference.
    InvalidImageReference { user: User<'a>, image: &'a str },

    /// An image's registry is in the Secret's `auths`.
    PullSecretRequired { secret: &'a str, image: String },
    /// The Secret is not known yet, so the entry is added in any case.
    PullSecretNotObserved { secret: &'a str },
    /// The configuration contains `inject: always`.
    PullSecretAlwaysInjected { secret: &'a str },
    /// The entry already exists.
    PullSecretAlreadyPresent { secret: &'a str },
    /// The image of a stored Pod needs the Secret, and the entry cannot be added any more.
    PullSecretNotNamed { secret: &'a str, image: String },
    /// No kubelet can parse the Secret, so every pull of a Pod that names it would fail.
    InvalidPullSecret { secret: &'a str },
    /// No registry of the Pod needs credentials.
    PullSecretNotRequired,
    /// The selector excludes the namespace from credentials.
    NamespaceNotSelected,

    /// The volume of the bundle was added to the Pod.
    VolumeAdded { volume: &'a str, bundle: &'a str },
    /// The volume was mounted in the container.
    TrustBundleMounted { container: &'a str, path: &'a str },
    /// The container already has the mount.
    MountAlreadyPresent { container: &'a str },
    /// The container has another mount or block device at the path.
    MountPathConflict { container: &'a str, path: &'a str },
    /// The Pod has another volume with the name.
    VolumeNameConflict { volume: &'a str },
    /// The configuration names no bundle.
    TrustBundleNotConfigured,
    /// The configured bundle could not be mounted by any Pod.
    InvalidTrustBundleConfig { key: &'static str },
    /// The bundle does not exist in the cluster; a Pod would wait for it forever.
    TrustBundleNotFound { bundle: &'a str },
    /// The cluster does not serve ClusterTrustBundles.
    TrustBundleAPINotServed,
    /// The API server would store the volume without the bundle, and an empty directory would hide the path.
    TrustBundleNotProjected,

    /// The variable was added.
    EnvVarAdded {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable had another value.
    EnvVarReplaced {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable already has the value.
    EnvVarAlreadySet {
        container: &'a str,
        variable: &'a str,
    },
    /// The process has no setting for the landscape.
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

impl fmt::Display for Reason<'_> {
    #[expect(
        clippy::too_many_lines,
        reason = "one line a reason: splitting the table would hide a missing one"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRequested => {
                f.write_str("not requested by the configuration, the Namespace or the Pod")
            }
            Self::NotAvailable => f.write_str("requested, but not in availableFeatures"),
            Self::OptedOutByPod => f.write_str("the Pod's annotation is \"false\""),
            Self::MirrorPod => f.write_str("a mirror Pod belongs to its kubelet"),
            Self::PodTerminating => f.write_str("the Pod is being deleted"),
            Self::ImmutableField => {
                f.write_str("set at creation only: the field is immutable afterwards")
            }
            Self::OperationNotHandled => f.write_str("this operation is not handled"),
            Self::NamespaceExcluded { namespace } => {
                write!(
                    f,
                    "Pods of namespace {namespace} are not sent to the webhook"
                )
            }
            Self::OwnPod => f.write_str("the webhook's own Pods are not sent to it"),
            Self::PatchTooLarge => f.write_str(
                "the patch is larger than the limit for this review; the Pod is unchanged",
            ),
            Self::AppliedByPolicy => {
                f.write_str("in place before the review; the MutatingAdmissionPolicy is in force")
            }
            Self::ImageRewritten { user, from, to } => write!(f, "{user}: {from} → {to}"),
            Self::ImageAlreadyRewritten { user } => {
                write!(f, "{user}: the image starts with its replacement")
            }
            Self::ImageUnchanged { container } => {
                write!(f, "container {container}: image not changed")
            }
            Self::NoMatchingOverride { user, image } => {
                write!(f, "{user}: no override for the registry of {image}")
            }
            Self::InvalidOverride { user, image } => {
                write!(f, "{user}: invalid result of the override for {image}")
            }
            Self::InvalidImageReference { user, image } => {
                write!(f, "{user}: {image:?} is not a valid image reference")
            }
            Self::PullSecretRequired { secret, image } => {
                write!(f, "{secret} has credentials for {image}")
            }
            Self::PullSecretNotObserved { secret } => {
                write!(f, "{secret} is not observed yet, so it is named")
            }
            Self::PullSecretAlwaysInjected { secret } => {
                write!(f, "{secret} is named in every Pod")
            }
            Self::PullSecretAlreadyPresent { secret } => write!(f, "{secret} is named already"),
            Self::PullSecretNotNamed { secret, image } => {
                write!(
                    f,
                    "the stored Pod does not name {secret}, so {image} may not be pulled"
                )
            }
            Self::InvalidPullSecret { secret } => {
                write!(
                    f,
                    "{secret} is not a valid docker configuration, so it is not named: every pull of the Pod would fail"
                )
            }
            Self::PullSecretNotRequired => f.write_str("no registry of the Pod needs credentials"),
            Self::NamespaceNotSelected => {
                f.write_str("the namespace selector keeps credentials out of this namespace")
            }
            Self::VolumeAdded { volume, bundle } => write!(f, "volume {volume} from {bundle}"),
            Self::TrustBundleMounted { container, path } => {
                write!(f, "container {container}: mounted at {path}")
            }
            Self::MountAlreadyPresent { container } => {
                write!(f, "container {container}: mounted already")
            }
            Self::MountPathConflict { container, path } => {
                write!(f, "container {container}: own mount or device at {path}")
            }
            Self::VolumeNameConflict { volume } => {
                write!(f, "the Pod has another volume named {volume}")
            }
            Self::TrustBundleNotConfigured => f.write_str("clusterTrustBundle is not configured"),
            Self::InvalidTrustBundleConfig { key } => {
                write!(f, "clusterTrustBundle.{key}: invalid")
            }
            Self::TrustBundleNotFound { bundle } => {
                write!(f, "ClusterTrustBundle {bundle} not found")
            }
            Self::TrustBundleAPINotServed => {
                f.write_str("this cluster serves no ClusterTrustBundles")
            }
            Self::TrustBundleNotProjected => f.write_str(
                "the API server does not project ClusterTrustBundles into Pods, or did not tell yet",
            ),
            Self::EnvVarAdded {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} added")
            }
            Self::EnvVarReplaced {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} replaced")
            }
            Self::EnvVarAlreadySet {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} is set already")
            }
            Self::LandscapeNotConfigured => {
                f.write_str("the webhook was started without --landscape")
            }
        }
    }
}
