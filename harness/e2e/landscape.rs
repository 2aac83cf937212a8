//! The landscape of a scenario file on local clusters: authorities and credentials that this machine made.
//!
//! Certificate authorities are generated on first use and kept below `target`, so that the bundle of a kept cluster does not
//! change from run to run. Their keys are not kept: nothing is signed with them.

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

/// The file of a scenario.
pub fn file(name: &str) -> PathBuf {
    workspace::root()
        .join("scenarios")
        .join(name)
        .with_extension("yaml")
}

/// A path below the workspace's root, as seen from there.
pub fn shown(path: &Path) -> String {
    let path = path.strip_prefix(workspace::root()).unwrap_or(path);
    path.display().to_string()
}

/// The objects of a landscape in a namespace: of a runtime, as KIM would write them, or of KCP, where they are the sources. A
/// stream that can be applied.
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

/// The docker configuration of its pull Secret.
pub fn docker_config(landscape: &Landscape, registry: &Registry) -> String {
    let hosts = landscape.pull_secret.iter().flat_map(|it| &it.registries);
    let hosts: Vec<&str> = hosts.map(String::as_str).collect();
    registry.identity.docker_config_of(0, &hosts)
}

/// The certificates of all authorities, PEM.
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

/// Puts the images of a landscape where local clusters find them: into the registry where this machine serves the host, and
/// else under their whole name. Gives the latter, which have to be loaded into nodes.
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
