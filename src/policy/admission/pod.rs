//! The borrowed view of a Pod: just the fields that a decision reads, pointing into the request's bytes.
//!
//! A field that is null counts as absent, as Go's encoder writes it. Everything else is skipped unparsed, so an unknown
//! field costs its length and survives untouched.

use partial_json::Text;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::annotations::Annotations;

/// A Pod, or a Pod template.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod<'a> {
    /// Annotations and the deletion mark.
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
    /// What the annotations say to us.
    #[serde(default)]
    pub annotations: Annotations,
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
    /// Unique within the Pod.
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
    /// Its name.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// Its literal value.
    #[serde(borrow)]
    pub value: Option<Text<'a>>,
    /// Where else the value comes from.
    pub value_from: Option<IgnoredAny>,
}

/// One volume mount.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount<'a> {
    /// The volume.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// Where the container sees it.
    #[serde(default, borrow)]
    pub mount_path: Text<'a>,
}

/// One block device of a container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device<'a> {
    /// Where the container sees it.
    #[serde(default, borrow)]
    pub device_path: Text<'a>,
}

/// A volume; of its sources only images and the projected ClusterTrustBundles matter.
#[derive(Clone, Debug, Deserialize)]
pub struct Volume<'a> {
    /// Unique within the Pod.
    #[serde(default, borrow)]
    pub name: Text<'a>,
    /// The projected source, if it is one.
    #[serde(borrow)]
    pub projected: Option<Projected<'a>>,
    /// The image whose files it holds, if it is one.
    #[serde(borrow)]
    pub image: Option<ImageSource<'a>>,
}

/// An image as a volume's source.
#[derive(Clone, Debug, Deserialize)]
pub struct ImageSource<'a> {
    /// The image reference as written.
    #[serde(borrow)]
    pub reference: Option<Text<'a>>,
}

/// A projected volume source.
#[derive(Clone, Debug, Deserialize)]
pub struct Projected<'a> {
    /// What is projected.
    #[serde(borrow)]
    pub sources: Option<Vec<Projection<'a>>>,
}

/// One source of a projected volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Projection<'a> {
    /// A ClusterTrustBundle, if it is one.
    #[serde(borrow)]
    pub cluster_trust_bundle: Option<BundleProjection<'a>>,
}

/// A projected ClusterTrustBundle.
#[derive(Clone, Debug, Deserialize)]
pub struct BundleProjection<'a> {
    /// The bundle's name; absent if it is selected by signer.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The file inside the volume.
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

/// Which of a Pod's container lists.
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
    /// The field's name.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Main => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

/// A container and where it stands in its Pod.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'p, 'a> {
    /// Its list.
    pub list: ContainerList,
    /// Its index in that list.
    pub index: usize,
    /// The container.
    pub container: &'p Container<'a>,
}

impl<'a> Spec<'a> {
    /// The containers of one list, with their places.
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

    /// Init and main containers: what runs from the Pod's start.
    pub fn started(&self) -> impl Iterator<Item = Placed<'_, 'a>> {
        self.placed(ContainerList::Init)
            .chain(self.placed(ContainerList::Main))
    }

    /// The volumes that are images: index, name and reference.
    pub fn image_volumes(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        let volumes = self.volumes.as_deref().unwrap_or_default();
        volumes.iter().enumerate().filter_map(|(index, volume)| {
            let reference = volume.image.as_ref()?.reference.as_deref()?;
            // Without one the API server refuses the Pod, and says it better.
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
