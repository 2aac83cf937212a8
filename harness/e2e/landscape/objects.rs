//! What a cluster needs to be part of a landscape: the three sources, as KIM would write them.
//!
//! Certificate authorities of a landscape are generated on first use and kept below `target`, so that the bundle of a kept
//! cluster does not change from run to run. Their keys are not kept: nothing is signed with them.

use std::path::Path;

use api::names;
use serde_json::{Value, json};

use super::{Authority, Landscape, Trust, placed};
use clusters::evidence::slug;
use clusters::workspace;
use testkit::pki;

/// Where a landscape is run.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Host and port of the private registry.
    pub registry: &'a str,
    /// What opens it: the content of a Secret of type `kubernetes.io/dockerconfigjson`.
    pub docker_config: &'a str,
}

/// Namespace, ConfigMap, pull Secret and ClusterTrustBundle, as a stream that can be applied.
///
/// # Errors
/// When an authority can be neither read nor made.
pub fn objects(landscape: &Landscape, place: Place<'_>) -> anyhow::Result<String> {
    let namespace = names::SKR_NAMESPACE;
    let document = placed(&landscape.config, place.registry);
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": names::CONFIG_MAP, "namespace": namespace },
            "data": { (names::CONFIG_KEY): format!("{document:#}") },
        }),
    ];
    if let Some(secret) = &landscape.pull_secret {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": secret.name, "namespace": namespace },
            "type": names::DOCKER_CONFIG_TYPE,
            "stringData": { (names::DOCKER_CONFIG_KEY): place.docker_config },
        }));
    }
    if let Some(trust) = &landscape.trust {
        let mut spec = json!({ "trustBundle": trust.pem()? });
        if let Some(signer) = &trust.signer {
            spec["signerName"] = json!(signer);
        }
        objects.push(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": { "name": trust.name }, "spec": spec,
        }));
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

impl Trust {
    /// The certificates of all authorities, PEM.
    ///
    /// # Errors
    /// When one can be neither read nor generated.
    pub fn pem(&self) -> anyhow::Result<String> {
        certificates(self, &workspace::state().join("authorities"))
    }
}

fn certificates(trust: &Trust, folder: &Path) -> anyhow::Result<String> {
    let certificate = |Authority::Generate(name): &Authority| {
        let generate = || Ok(pki::Authority::new(name)?.pem().to_owned());
        workspace::get_or_create(&folder.join(format!("{}.pem", slug(name))), generate)
    };
    trust.authorities.iter().map(certificate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_generated_once() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust {
            name: "x".to_owned(),
            signer: None,
            authorities: vec![Authority::Generate("Root R1".to_owned())],
        };
        let pem = certificates(&trust, folder.path()).unwrap();
        assert_eq!(certificates(&trust, folder.path()).unwrap(), pem);
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
        assert!(pem.ends_with("-----END CERTIFICATE-----\n"), "{pem}");
    }
}
