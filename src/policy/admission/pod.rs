//! The borrowed view of a Pod: only the fields that a decision reads, as references to the bytes of the request.
//!
//! A field that is null counts as absent, as Go's encoder writes it. All other fields are skipped without parsing, so
//! an unknown field costs only its length and is not changed.

use partial_json::Text;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::annotations::Annotations;

/// A Pod, or a Pod template.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod<'a> {
    /// Annotations and the deletion timestamp.
    #[serde(default)]
    pub metadata: Metadata,
    /// Containers, volumes, pull Secrets.
    #[serde(default, borrow)]
    pub spec: Spec<'a>,
}

/// The Pod's metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The relevant annotations; `None` if the Pod has no map of annotations.
    pub annotations: Option<Annotations>,
    /// Present while the Pod is being deleted.
    pub deletion_timestamp: Option<IgnoredAny>,
}

/// The Pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec<'a> {
    /// Main containers.
    #[serde(borrow)]
    pub containers: Option<Vec<Container<'a>>>,
    /// Init containers, native sidecars among them.
    #[serde(borrow)]
    pub init_containers: Option<Vec<Container<'a>>>,
    /// Ephemeral containers, added through the subresource only.
    #[serde(borrow)]
    pub ephemeral_containers: Option<Vec<Container<'a>>>,
    /// Volumes.
    #[serde(borrow)]
    pub volumes: Option<Vec<Volume<'a>>>,
    /// Pull Secrets.
    #[serde(borrow)]
    pub image_pull_secrets: Option<Vec<Named<'a>>>,
}

/// Any of the three kinds of container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    /// Name of the container, which is unique within the Pod.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// The image reference as written.
    #[serde(borrow)]
    pub image: Option<Text<'a>>,
    /// Environment.
    #[serde(borrow)]
    pub env: Option<Vec<Variable<'a>>>,
    /// Mounts.
    #[serde(borrow)]
    pub volume_mounts: Option<Vec<Mount<'a>>>,
    /// Block devices.
    #[serde(borrow)]
    pub volume_devices: Option<Vec<Device<'a>>>,
}

/// One entry of a container's environment.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable<'a> {
    /// Name of the variable.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// Literal value of the variable.
    #[serde(borrow)]
    pub value: Option<Text<'a>>,
    /// Another source of the value.
    pub value_from: Option<IgnoredAny>,
}

/// One volume mount.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount<'a> {
    /// Name of the volume.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// Path in the container.
    #[serde(default, borrow)]
    pub mount_path: Text<'a>,
}

/// One block device of a container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device<'a> {
    /// Path in the container.
    #[serde(default, borrow)]
    pub device_path: Text<'a>,
}

/// A volume. The relevant sources are images and projected ClusterTrustBundles.
#[derive(Clone, Debug, Deserialize)]
pub struct Volume<'a> {
    /// Name of the volume, which is unique within the Pod.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// The projected source, if the volume has one.
    #[serde(borrow)]
    pub projected: Option<Projected<'a>>,
    /// The image whose files the volume contains, if the source is an image.
    #[serde(borrow)]
    pub image: Option<ImageSource<'a>>,
}

/// An image as the source of a volume.
#[derive(Clone, Debug, Deserialize)]
pub struct ImageSource<'a> {
    /// The image reference as written.
    #[serde(borrow)]
    pub reference: Option<Text<'a>>,
}

/// A projected volume source.
#[derive(Clone, Debug, Deserialize)]
pub struct Projected<'a> {
    /// The projected sources.
    #[serde(borrow)]
    pub sources: Option<Vec<Projection<'a>>>,
}

/// One source of a projected volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Projection<'a> {
    /// A ClusterTrustBundle, if the source is one.
    #[serde(borrow)]
    pub cluster_trust_bundle: Option<BundleProjection<'a>>,
}

/// A projected ClusterTrustBundle.
#[derive(Clone, Debug, Deserialize)]
pub struct BundleProjection<'a> {
    /// Name of the bundle; absent if it is selected by signer.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// File name inside the volume.
    #[serde(borrow)]
    pub path: Option<Text<'a>>,
}

/// A reference by name.
#[derive(Clone, Debug, Deserialize)]
pub struct Named<'a> {
    /// The name.
    #[serde(default, borrow)]
    pub name: Text<'a>,
}

/// One of the container lists of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerList {
    /// `spec.initContainers`
    Init,
    /// `spec.containers`
    Main,
    /// `spec.ephemeralContainers`
    Ephemeral,
}

impl ContainerList {
    /// Returns the name of the field.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Main => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

/// A container and its position in its Pod.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'p, 'a> {
    /// List of the container.
    pub list: ContainerList,
    /// Index in the list.
    pub index: usize,
    /// The container.
    pub container: &'p Container<'a>,
}

impl<'a> Spec<'a> {
    /// Returns the containers of one list, with their positions.
    pub fn placed(&self, list: ContainerList) -> impl Iterator<Item = Placed<'_, 'a>> {
        self.list(list)
            .iter()
            .enumerate()
            .map(move |(index, container)| Placed {
                list,
                index,
                container,
            })
    }

    /// Returns init and main containers, which are the containers that start with the Pod.
    pub fn started(&self) -> impl Iterator<Item = Placed<'_, 'a>> {
        self.placed(ContainerList::Init)
            .chain(self.placed(ContainerList::Main))
    }

    /// Returns the volumes that are images: index, name and reference.
    pub fn image_volumes(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let volumes = self.volumes.as_deref().unwrap_or_default();
        volumes.iter().enumerate().filter_map(|(index, volume)| {
            let reference = volume.image.as_ref()?.reference.as_deref()?;
            // If the reference is missing, the API server rejects the Pod with a more precise error.
            (!reference.is_empty()).then_some((index, &*volume.name, reference))
        })
    }

    fn list(&self, list: ContainerList) -> &[Container<'a>] {
        match list {
            ContainerList::Init => &self.init_containers,
            ContainerList::Main => &self.containers,
            ContainerList::Ephemeral => &self.ephemeral_containers,
        }
        .as_deref()
        .unwrap_or_default()
    }
}
