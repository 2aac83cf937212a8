//! The Kymas and Certificates on KCP, as far as they concern the watcher.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::bootstrapper::GROUP;
use api::kcp::{
    ACCEPT_CLUSTER_UID_ANNOTATION, KYMA_KIND, KYMA_PLURAL, KYMA_VERSION, RUNTIME_ID, SKR_DOMAIN,
};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use policy::certificates::Kyma;
use serde::{Deserialize, Deserializer};

/// A Kyma as it is read from a list or a watch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KymaView {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
}

/// Of labels and annotations only those are kept that concern the watcher.
fn trimmed<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let metadata = ObjectMeta::deserialize(from)?;
    let only = |map: Option<BTreeMap<String, String>>, keys: &[&str]| {
        let mut map = map?;
        map.retain(|key, _| keys.contains(&key.as_str()));
        (!map.is_empty()).then_some(map)
    };
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: only(metadata.labels, &[RUNTIME_ID]),
        annotations: only(
            metadata.annotations,
            &[SKR_DOMAIN, ACCEPT_CLUSTER_UID_ANNOTATION],
        ),
        ..ObjectMeta::default()
    })
}

impl KymaView {
    /// What determines the certificate.
    pub(crate) fn kyma(&self) -> Kyma {
        Kyma {
            namespace: self.namespace().unwrap_or_default(),
            name: self.name_any(),
            runtime_id: self.labels().get(RUNTIME_ID).cloned(),
            domain: self.annotations().get(SKR_DOMAIN).cloned(),
        }
    }
}

impl Resource for KymaView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KYMA_KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KYMA_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KYMA_PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
