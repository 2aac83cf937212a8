//! The sources as the API server returns them; only the relevant fields are kept.
//!
//! Invariant: neither the `Debug` output nor the text of a parse error contains a credential. A value that is not
//! base64 is kept unchanged, and is rejected later because it is not a docker config.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Object;
use kube::core::object::NotUsed;
use policy::sync::Salt;
use policy::sync::sources::{
    PullSecret, SourceError, TrustBundle, read_pull_secret, read_trust_bundle,
};
use serde::{Deserialize, Deserializer};

/// The pull Secret, with its relevant fields.
#[derive(Clone, Debug, Deserialize, kube_derive::Resource)]
#[resource(inherit = Secret)]
pub(super) struct SecretObject {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    r#type: Option<String>,
    data: Option<SecretData>,
}

#[derive(Clone, Debug, Deserialize)]
struct SecretData {
    #[serde(default, rename = ".dockerconfigjson")]
    docker_config: Option<Decoded>,
}

/// A decoded value of a Secret.
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
    /// Validates the content.
    pub(super) fn read(&self, salt: &Salt) -> Result<PullSecret, SourceError> {
        let data = self.data.as_ref();
        let docker_config = data.and_then(|it| it.docker_config.as_ref());
        let docker_config = docker_config.map(|it| it.0.as_slice());
        read_pull_secret(salt, self.r#type.as_deref(), docker_config)
    }
}

/// The ClusterTrustBundle; the relevant fields are the same in all versions.
pub(super) type BundleObject = Object<BundleSpec, NotUsed>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BundleSpec {
    signer_name: Option<String>,
    trust_bundle: Option<String>,
}

impl BundleSpec {
    /// Validates the content.
    pub(super) fn read(&self, salt: &Salt) -> Result<TrustBundle, SourceError> {
        read_trust_bundle(
            salt,
            self.signer_name.as_deref(),
            self.trust_bundle.as_deref(),
        )
    }
}

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
        let data = secret.data.as_ref().unwrap();
        assert_eq!(data.docker_config.as_ref().unwrap().0, b"hunter2!");
        let printed = format!("{secret:?} {:?}", secret.read(&Salt::new("uid")));
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(!printed.contains("104, 117, 110"), "{printed}");
    }
}
