//! The metadata of a Pod, as far as it is read here. A page of them is held until it is observed, and the managed fields of a Pod
//! take more memory than everything else of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// Name, namespace, version and annotations of a Pod; the API server is asked for metadata alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Fields")]
pub(super) struct PodMetadata {
    metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl From<Fields> for PodMetadata {
    fn from(Fields { metadata }: Fields) -> Self {
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        };
        Self { metadata }
    }
}

impl Resource for PodMetadata {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
