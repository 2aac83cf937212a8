//! The landscape of a scenario file on local clusters, with CAs and credentials that this machine creates.
//!
//! Certificate authorities are created on first use and stored below `target`, so that the bundle of a kept cluster does not
//! change between runs. Their keys are not stored, because no certificate is signed with them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use conformance::{Landscape, Scenario, Trust};
use serde_json::Value;

use clusters::evidence::slug;
use clusters::images;
use clusters::registry::{HOSTS, Registry};
use clusters::workspace;
use testkit::pki;

/// Reads a file of `scenarios/` by its name.
pub fn scenario(name: &str) -> Result<Scenario> {
    Scenario::load(&file(name))
}

/// Returns the path of a scenario file.
pub fn file(name: &str) -> PathBuf {
    workspace::root()
        .join("scenarios")
        .join(name)
        .with_extension("yaml")
}

/// Returns a path relative to the workspace's root.
pub fn shown(path: &Path) -> String {
    let path = path.strip_prefix(workspace::root()).unwrap_or(path);
    path.display().to_string()
}

/// Returns the objects of a landscape in a namespace as a YAML stream: on a runtime as KIM writes them, or on KCP as the
/// sources.
pub fn objects(landscape: &Landscape, namespace: &str, registry: &Registry) -> Result<String> {
    let docker_config = docker_config(landscape, registry);
    let pem = landscape.trust.as_ref().map(pem).transpose()?;
    let objects = conformance::objects::objects(
        landscape,
        namespace,
        &docker_config,
        &pem.unwrap_or_default(),
    )?;
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

/// Returns the docker configuration of the landscape's pull Secret.
pub fn docker_config(landscape: &Landscape, registry: &Registry) -> String {
    let hosts = landscape.pull_secret.iter().flat_map(|it| &it.registries);
    let hosts: Vec<&str> = hosts.map(String::as_str).collect();
    registry.identity.docker_config_of(0, &hosts)
}

/// Returns the certificates of all CAs in PEM.
pub fn pem(trust: &Trust) -> Result<String> {
    certificates(trust, &workspace::state().join("authorities"))
}

fn certificates(trust: &Trust, folder: &Path) -> Result<String> {
    let certificate = |name: &String| {
        let generate = || Ok(pki::Authority::new(name)?.pem().to_owned());
        workspace::get_or_create(&folder.join(format!("{}.pem", slug(name))), generate)
    };
    trust.authorities.iter().map(certificate).collect()
}

/// Provides the images of a landscape for local clusters. If this machine serves the host, the images are pushed to the
/// registry. Otherwise they are tagged with their full names. Returns the latter, which must be loaded into nodes.
pub async fn provide_images(
    landscape: &Landscape,
    registry: &Registry,
) -> Result<Vec<images::Image>> {
    let (probe, private) = (images::probe().await?, images::private_probe().await?);
    let mut loaded = Vec::new();
    for (name, place) in &landscape.registries {
        for image in &place.images {
            let conformance::Content::Probe = image.content;
            if HOSTS.contains(&place.host.as_str()) {
                registry.push(&private, &image.name).await?;
            } else {
                let reference = format!("{}/{}", place.host, image.name);
                ensure!(
                    !reference.contains(' '),
                    "registries.{name}: {reference:?} is no image reference"
                );
                let tagged = probe.tagged(&reference).await;
                loaded.push(tagged.with_context(|| format!("image {reference}"))?);
            }
        }
    }
    Ok(loaded)
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
            authorities: vec!["Root R1".to_owned()],
        };
        let pem = certificates(&trust, folder.path()).unwrap();
        assert_eq!(certificates(&trust, folder.path()).unwrap(), pem);
        assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
        assert!(pem.ends_with("-----END CERTIFICATE-----\n"), "{pem}");
    }
}
