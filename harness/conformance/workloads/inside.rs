//! Checks inside a container of a workload.

use anyhow::Result;
use testkit::json::{name, text};

use super::Created;
use crate::model::{Inside, Trust};
use crate::report::Outcome;
use crate::run::Context;
use crate::runtime::BUNDLES;

impl Created<'_> {
    /// Checks the first container of the first Pod that still runs.
    pub(super) async fn inside(&self, context: &Context<'_>) -> Result<Outcome> {
        let pods = self.listed().await?;
        let mut running = pods.iter().filter(|it| it["status"]["phase"] == "Running");
        let Some(pod) = running.next().map(name) else {
            return Ok(Outcome::not_run("no Pod runs any more"));
        };
        let inside = &self.workload.expect.inside;
        let mut wrong = Vec::new();
        for (name, value) in &inside.variables {
            let printed = self.printed(pod, &["printenv", name]).await;
            match printed.as_ref().map(|it| it.trim_end()) {
                Ok(found) if found == value => {}
                Ok(found) => wrong.push(format!("{name} is {found:?}, expected {value:?}")),
                Err(error) => wrong.push(format!("{name}: {error:#}")),
            }
        }
        if let (Some(file), Some(trust)) = (&inside.trust, &context.scenario.landscape.trust) {
            wrong.extend(self.other_certificates(pod, file, trust).await?);
        }
        if wrong.is_empty() {
            return Ok(Outcome::Passed);
        }
        let cause = "the image sets the variable or hides the file itself, lacks printenv or cat, or a bundle changed seconds ago";
        let kubectl = &self.cluster.kubectl;
        Ok(Outcome::failed(
            self.location(&format!("first container of Pod {pod}")),
            (expected(inside), wrong.join("\n")),
            (cause, format!("{kubectl} get clustertrustbundles -o yaml")),
        ))
    }

    /// Returns the error for a file that does not contain exactly the certificates of the bundle.
    async fn other_certificates(
        &self,
        pod: &str,
        file: &str,
        trust: &Trust,
    ) -> Result<Option<String>> {
        let path = format!("{BUNDLES}/{}", trust.name);
        let bundle = self.cluster.find(&path).await?.unwrap_or_default();
        let expected = certificates(text(&bundle["spec"]["trustBundle"]));
        let printed = self.printed(pod, &["cat", file]).await;
        Ok(match printed.map(|it| certificates(&it)) {
            Ok(found) if found == expected => None,
            Ok(found) => Some(format!(
                "{file} has {} certificates, and not exactly the {} of ClusterTrustBundle {}",
                found.len(),
                expected.len(),
                trust.name
            )),
            Err(error) => Some(format!("{file}: {error:#}")),
        })
    }

    async fn printed(&self, pod: &str, command: &[&str]) -> Result<String> {
        self.cluster.exec(&self.namespace, pod, command).await
    }
}

fn expected(inside: &Inside) -> String {
    let variables = inside.variables.iter();
    let variables = variables.map(|(name, value)| format!("variable {name} is {value:?}"));
    let files = inside.trust.iter();
    let files = files.map(|file| format!("{file} has the certificates of the bundle"));
    variables.chain(files).collect::<Vec<_>>().join(", ")
}

/// Returns the certificates of a PEM text without line breaks. They are sorted, because the kubelet shuffles the order of a
/// bundle.
fn certificates(pem: &str) -> Vec<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let mut certificates: Vec<String> = blocks.map(|it| it.split_whitespace().collect()).collect();
    certificates.sort();
    certificates.dedup();
    certificates
}
