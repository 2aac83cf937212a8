//! Why something was changed, or not: a typed value that event, metric, log, report and feature all read from.

use std::fmt;

use api::Feature;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::registry::User;

/// One reason, for one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// The feature that the reason is about.
    pub feature: Feature,
    /// The reason.
    pub reason: Reason<'a>,
}

impl<'a> Finding<'a> {
    pub(super) fn new(feature: Feature, reason: Reason<'a>) -> Self {
        Self { feature, reason }
    }
}

/// In reports: `{"feature","applied","reason","message"}`.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are the user of the image, the container, … that the variant speaks of"
)]
pub enum Reason<'a> {
    /// Neither configuration, Namespace nor Pod asks for the feature.
    NotRequested,
    /// It is asked for, but `availableFeatures` lacks it.
    NotAvailable,
    /// The Pod says `"false"`, and for this feature that wins.
    RefusedByPod,
    /// A static Pod's mirror is the kubelet's.
    MirrorPod,
    /// The Pod is on its way out.
    BeingDeleted,
    /// The field cannot be changed after creation.
    Immutable,
    /// We do not act on this operation.
    NotIntercepted,
    /// Pods of this namespace are never sent.
    NamespaceExcluded { namespace: &'a str },
    /// The Pod is one of the webhook's own, which are never sent.
    OwnPod,
    /// The patch of all features would be larger than the limit for a review of this size.
    PatchTooLarge,

    /// The image's registry was replaced.
    ImageRewritten {
        user: User<'a>,
        from: &'a str,
        to: String,
    },
    /// The image starts with its replacement.
    ImageRewrittenBefore { user: User<'a> },
    /// This request did not change the image.
    ImageUnchanged { container: &'a str },
    /// No override speaks of the image's registry.
    NoOverride { user: User<'a>, image: &'a str },
    /// The override would give something that is no reference.
    OverrideUnusable { user: User<'a>, image: &'a str },
    /// The text is no image reference.
    ImageUnreadable { user: User<'a>, image: &'a str },

    /// An image's registry is in the Secret's `auths`.
    PullSecretNeeded { secret: &'a str, image: String },
    /// The Secret is not known yet, so the entry is added to be safe.
    PullSecretUnknown { secret: &'a str },
    /// The configuration says `inject: always`.
    PullSecretAlways { secret: &'a str },
    /// The entry is there.
    PullSecretPresent { secret: &'a str },
    /// No kubelet can parse the Secret, so every pull of a Pod that names it would fail.
    InvalidPullSecret { secret: &'a str },
    /// No registry of the Pod needs credentials.
    PullSecretNotNeeded,
    /// The selector keeps credentials out of the namespace.
    PullSecretForbidden,

    /// The bundle's volume was added to the Pod.
    VolumeAdded { volume: &'a str, bundle: &'a str },
    /// The volume was mounted in the container.
    BundleMounted { container: &'a str, path: &'a str },
    /// The container has the mount.
    MountPresent { container: &'a str },
    /// The container has a mount or a block device of its own there.
    MountPathTaken { container: &'a str, path: &'a str },
    /// The Pod has another volume of that name.
    VolumeForeign { volume: &'a str },
    /// The configuration names no bundle.
    BundleNotConfigured,
    /// The configured bundle could not be mounted by any Pod.
    BundleUnusable { key: &'static str },
    /// The cluster lacks the bundle; a Pod would wait for it for ever.
    BundleAbsent { bundle: &'a str },
    /// The cluster does not serve ClusterTrustBundles.
    BundleUnserved,

    /// The variable was added.
    VariableAdded {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable had another value.
    VariableReplaced {
        container: &'a str,
        variable: &'a str,
    },
    /// The variable is as it should be.
    VariablePresent {
        container: &'a str,
        variable: &'a str,
    },
    /// The process was not told its landscape.
    LandscapeUnset,
}

macro_rules! codes {
    ($($name:ident)+) => {
        /// A [`Reason`] without what it speaks of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is explained at the reason of its name")]
        pub enum Code {
            $($name),+
        }

        impl Code {
            /// How many there are; `code as usize` is below it.
            pub const COUNT: usize = [$(Self::$name),+].len();

            /// The name in metrics, logs and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name)),+
                }
            }
        }
    };
}

codes! {
    NotRequested
    NotAvailable
    RefusedByPod
    MirrorPod
    BeingDeleted
    Immutable
    NotIntercepted
    NamespaceExcluded
    OwnPod
    PatchTooLarge
    ImageRewritten
    ImageRewrittenBefore
    ImageUnchanged
    NoOverride
    OverrideUnusable
    ImageUnreadable
    PullSecretNeeded
    PullSecretUnknown
    PullSecretAlways
    PullSecretPresent
    InvalidPullSecret
    PullSecretNotNeeded
    PullSecretForbidden
    VolumeAdded
    BundleMounted
    MountPresent
    MountPathTaken
    VolumeForeign
    BundleNotConfigured
    BundleUnusable
    BundleAbsent
    BundleUnserved
    VariableAdded
    VariableReplaced
    VariablePresent
    LandscapeUnset
}

impl Reason<'_> {
    /// Whether this reason stands for a change.
    #[must_use]
    pub fn applied(&self) -> bool {
        matches!(
            self,
            Self::ImageRewritten { .. }
                | Self::PullSecretNeeded { .. }
                | Self::PullSecretUnknown { .. }
                | Self::PullSecretAlways { .. }
                | Self::VolumeAdded { .. }
                | Self::BundleMounted { .. }
                | Self::VariableAdded { .. }
                | Self::VariableReplaced { .. }
        )
    }

    /// Whether the Pod's owner should be told: the feature was asked for, and something stands against it.
    #[must_use]
    pub fn warns(&self) -> bool {
        matches!(
            self,
            Self::NotAvailable
                | Self::PatchTooLarge
                | Self::OverrideUnusable { .. }
                | Self::ImageUnreadable { .. }
                | Self::InvalidPullSecret { .. }
                | Self::MountPathTaken { .. }
                | Self::VolumeForeign { .. }
                | Self::BundleUnusable { .. }
                | Self::BundleAbsent { .. }
                | Self::BundleUnserved
                | Self::LandscapeUnset
        )
    }

    /// The code in metrics, logs and reports.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotRequested => Code::NotRequested,
            Self::NotAvailable => Code::NotAvailable,
            Self::RefusedByPod => Code::RefusedByPod,
            Self::MirrorPod => Code::MirrorPod,
            Self::BeingDeleted => Code::BeingDeleted,
            Self::Immutable => Code::Immutable,
            Self::NotIntercepted => Code::NotIntercepted,
            Self::NamespaceExcluded { .. } => Code::NamespaceExcluded,
            Self::OwnPod => Code::OwnPod,
            Self::PatchTooLarge => Code::PatchTooLarge,
            Self::ImageRewritten { .. } => Code::ImageRewritten,
            Self::ImageRewrittenBefore { .. } => Code::ImageRewrittenBefore,
            Self::ImageUnchanged { .. } => Code::ImageUnchanged,
            Self::NoOverride { .. } => Code::NoOverride,
            Self::OverrideUnusable { .. } => Code::OverrideUnusable,
            Self::ImageUnreadable { .. } => Code::ImageUnreadable,
            Self::PullSecretNeeded { .. } => Code::PullSecretNeeded,
            Self::PullSecretUnknown { .. } => Code::PullSecretUnknown,
            Self::PullSecretAlways { .. } => Code::PullSecretAlways,
            Self::PullSecretPresent { .. } => Code::PullSecretPresent,
            Self::InvalidPullSecret { .. } => Code::InvalidPullSecret,
            Self::PullSecretNotNeeded => Code::PullSecretNotNeeded,
            Self::PullSecretForbidden => Code::PullSecretForbidden,
            Self::VolumeAdded { .. } => Code::VolumeAdded,
            Self::BundleMounted { .. } => Code::BundleMounted,
            Self::MountPresent { .. } => Code::MountPresent,
            Self::MountPathTaken { .. } => Code::MountPathTaken,
            Self::VolumeForeign { .. } => Code::VolumeForeign,
            Self::BundleNotConfigured => Code::BundleNotConfigured,
            Self::BundleUnusable { .. } => Code::BundleUnusable,
            Self::BundleAbsent { .. } => Code::BundleAbsent,
            Self::BundleUnserved => Code::BundleUnserved,
            Self::VariableAdded { .. } => Code::VariableAdded,
            Self::VariableReplaced { .. } => Code::VariableReplaced,
            Self::VariablePresent { .. } => Code::VariablePresent,
            Self::LandscapeUnset => Code::LandscapeUnset,
        }
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
            Self::RefusedByPod => f.write_str("the Pod's annotation is \"false\""),
            Self::MirrorPod => f.write_str("a mirror Pod belongs to its kubelet"),
            Self::BeingDeleted => f.write_str("the Pod is being deleted"),
            Self::Immutable => {
                f.write_str("set at creation only: the field is immutable afterwards")
            }
            Self::NotIntercepted => f.write_str("this operation is not acted on"),
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
            Self::ImageRewritten { user, from, to } => write!(f, "{user}: {from} → {to}"),
            Self::ImageRewrittenBefore { user } => {
                write!(f, "{user}: the image starts with its replacement")
            }
            Self::ImageUnchanged { container } => {
                write!(
                    f,
                    "container {container}: this request does not change the image"
                )
            }
            Self::NoOverride { user, image } => {
                write!(f, "{user}: no override for the registry of {image}")
            }
            Self::OverrideUnusable { user, image } => {
                write!(
                    f,
                    "{user}: the override gives no valid reference for {image}"
                )
            }
            Self::ImageUnreadable { user, image } => {
                write!(f, "{user}: {image:?} is no image reference")
            }
            Self::PullSecretNeeded { secret, image } => {
                write!(f, "{secret} has credentials for {image}")
            }
            Self::PullSecretUnknown { secret } => {
                write!(f, "{secret} is not known yet, so it is named to be safe")
            }
            Self::PullSecretAlways { secret } => write!(f, "{secret} is named in every Pod"),
            Self::PullSecretPresent { secret } => write!(f, "{secret} is named already"),
            Self::InvalidPullSecret { secret } => {
                write!(
                    f,
                    "{secret} is not a valid docker configuration, so it is not named: every pull of the Pod would fail"
                )
            }
            Self::PullSecretNotNeeded => f.write_str("no registry of the Pod needs credentials"),
            Self::PullSecretForbidden => {
                f.write_str("the namespace selector keeps credentials out of this namespace")
            }
            Self::VolumeAdded { volume, bundle } => write!(f, "volume {volume} from {bundle}"),
            Self::BundleMounted { container, path } => {
                write!(f, "container {container}: mounted at {path}")
            }
            Self::MountPresent { container } => {
                write!(f, "container {container}: mounted already")
            }
            Self::MountPathTaken { container, path } => {
                write!(
                    f,
                    "container {container}: keeps its own mount or device at {path}"
                )
            }
            Self::VolumeForeign { volume } => {
                write!(f, "the Pod has another volume named {volume}")
            }
            Self::BundleNotConfigured => f.write_str("the configuration names no bundle"),
            Self::BundleUnusable { key } => {
                write!(
                    f,
                    "clusterTrustBundle.{key} of the configuration is unusable"
                )
            }
            Self::BundleAbsent { bundle } => {
                write!(
                    f,
                    "ClusterTrustBundle {bundle} does not exist in this cluster"
                )
            }
            Self::BundleUnserved => f.write_str("this cluster serves no ClusterTrustBundles"),
            Self::VariableAdded {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} added")
            }
            Self::VariableReplaced {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} replaced")
            }
            Self::VariablePresent {
                container,
                variable,
            } => {
                write!(f, "container {container}: {variable} is set already")
            }
            Self::LandscapeUnset => f.write_str("the webhook was started without --landscape"),
        }
    }
}
