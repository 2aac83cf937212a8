//! The sources as the API server returns them; only the relevant fields are kept.
//!
//! Invariant: neither the `Debug` output nor the text of a parse error contains a credential. A value that is not base64 is kept
//! as it is, and is rejected later because it is not a docker config.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ApiResource;
use policy::sync::sources::{SecretView, TrustBundleView};
use serde::{Deserialize, Deserializer};

/// The pull Secret.
#[derive(Clone, Debug, Deserialize, kube_derive::Resource)]
#[resource(inherit = Secret)]
pub(super) struct SecretObject {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    data: Option<SecretData>,
}

#[derive(Clone, Debug, Deserialize)]
struct SecretData {
    #[serde(default, rename = ".dockerconfigjson")]
    docker_config: Option<Decoded>,
}

/// A value of a Secret, decoded.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
struct Decoded(Vec<u8>);

impl From<String> for Decoded {
    fn from(text: String) -> Self {
        Self(STANDARD.decode(&text).unwrap_or_else(|_| text.into_bytes()))
    }
}

impl fmt::Debug for Decoded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Decoded(..)")
    }
}

impl SecretObject {
    pub(super) fn view(&self) -> SecretView<'_> {
        let data = self.data.as_ref();
        let docker_config = data.and_then(|it| it.docker_config.as_ref());
        SecretView {
            r#type: self.r#type.as_deref(),
            docker_config: docker_config.map(|it| it.0.as_slice()),
        }
    }
}

/// The ClusterTrustBundle; the relevant fields are the same in all versions.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct BundleObject {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    spec: BundleSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleSpec {
    #[serde(default)]
    signer_name: Option<String>,
    #[serde(default)]
    trust_bundle: Option<String>,
}

impl BundleObject {
    pub(super) fn view(&self) -> TrustBundleView<'_> {
        TrustBundleView {
            signer_name: self.spec.signer_name.as_deref(),
            trust_bundle: self.spec.trust_bundle.as_deref(),
        }
    }
}

impl Resource for BundleObject {
    type DynamicType = ApiResource;
    type Scope = ClusterResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The `data` of the ConfigMap, without the object, whose annotations may repeat it.
pub(super) type Data = Option<BTreeMap<String, String>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

/// Keeps only the metadata that a watch needs: `kubectl apply` stores a complete Secret, values included, in an annotation.
fn identity<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let Identity {
        name,
        namespace,
        resource_version,
    } = Identity::deserialize(from)?;
    Ok(ObjectMeta {
        name,
        namespace,
        resource_version,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_no_credential() {
        let text = r#"{"metadata": {"name": "s", "annotations": {"a": "hunter2"}},
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "hunter2!", "b": "hunter2"}}"#;
        let secret: SecretObject = serde_json::from_str(text).unwrap();
        assert_eq!(secret.view().docker_config, Some(&b"hunter2!"[..]));
        let printed = format!("{secret:?} {:?}", secret.view());
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(!printed.contains("104, 117, 110"), "{printed}");
    }
}
