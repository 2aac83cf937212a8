//! What a cluster needs to be part of a landscape: the three sources, as KIM would write them.
//!
//! Certificate authorities of a landscape are generated on first use and kept below `target`, so that the bundle of a kept
//! cluster does not change from run to run. Their keys are not kept: nothing is signed with them.

use std::path::Path;

use api::names;
use serde_json::{Value, json};

use super::model::{Authority, Trust};
use super::{Landscape, placed};
use crate::admission::webhook::{config_map, pull_secret, trust_bundle};
use clusters::evidence::slug;
use clusters::workspace;
use testkit::pki;

/// Namespace, ConfigMap, pull Secret and ClusterTrustBundle, as a stream that can be applied, with host and port of the private
/// registry and the docker configuration that opens it.
pub fn objects(landscape: &Landscape, registry: &str, opens: &str) -> anyhow::Result<String> {
    let namespace = names::SKR_NAMESPACE;
    let document = placed(&landscape.config, registry);
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        config_map(namespace, &format!("{document:#}")),
    ];
    if let Some(secret) = &landscape.pull_secret {
        let mut object = pull_secret(namespace, &serde_json::from_str(opens)?);
        object["metadata"]["name"] = json!(secret.name);
        objects.push(object);
    }
    if let Some(trust) = &landscape.trust {
        objects.push(trust_bundle(
            &trust.name,
            trust.signer.as_deref(),
            &trust.pem()?,
        ));
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

impl Trust {
    /// The certificates of all authorities, PEM.
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
