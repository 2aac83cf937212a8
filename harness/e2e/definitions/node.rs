//! Pods on a node: whether they run, and what their containers see from inside.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use cucumber::{given, then};

use clusters::cluster::PodTarget;

use super::object::read;
use super::observation::expect_within;
use super::pod::{items, pod};
use crate::admission::Admission;
use crate::scenario::{ObjectRef, Scenario};
use testkit::until::until;

#[given(expr = "Pod {string} is Running")]
#[then(expr = "Pod {string} is Running")]
async fn runs(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    expect_within(scenario, &pod(&name)?, PULL, |seen| {
        let status = &seen["status"];
        let mut containers = items(&status["containerStatuses"]).peekable();
        ensure!(
            status["phase"] == "Running"
                && containers.peek().is_some()
                && containers.all(|container| container["ready"] == true),
            "{status}"
        );
        Ok(())
    })
    .await
}

#[then(expr = "Pod {string} fails with reason {string}")]
async fn fails(scenario: &mut Scenario, name: String, reason: String) -> anyhow::Result<()> {
    expect_within(scenario, &pod(&name)?, PULL, |seen| {
        let status = &seen["status"];
        let mut all =
            items(&status["initContainerStatuses"]).chain(items(&status["containerStatuses"]));
        // The kubelet alternates between the failure and the pause after it.
        let reasons = [reason.as_str(), BACK_OFF];
        let failed = all.any(|it| {
            reasons
                .iter()
                .any(|reason| it["state"]["waiting"]["reason"] == *reason)
        });
        ensure!(failed, "{status}");
        Ok(())
    })
    .await
}

#[then(expr = "ephemeral container {string} of Pod {string} is Running")]
async fn ephemeral_runs(
    scenario: &mut Scenario,
    container: String,
    name: String,
) -> anyhow::Result<()> {
    expect_within(scenario, &pod(&name)?, PULL, |seen| {
        let statuses = &seen["status"]["ephemeralContainerStatuses"];
        let status = items(statuses).find(|it| it["name"] == container);
        let running = status.is_some_and(|it| !it["state"]["running"].is_null());
        ensure!(running, "{statuses}");
        Ok(())
    })
    .await
}

#[then(expr = "no container of Pod {string} was restarted")]
async fn not_restarted(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    let pod = scenario.resolved(&pod(&name)?);
    let seen = read(scenario, &pod).await?.context("it does not exist")?;
    let mut containers = items(&seen["status"]["containerStatuses"]).peekable();
    ensure!(containers.peek().is_some(), "no container has started");
    for status in containers {
        ensure!(
            status["restartCount"] == 0 && status["ready"] == true,
            "{status}"
        );
    }
    Ok(())
}

#[then(
    regex = r#"^command "([^"]+)" in container "([^"]+)" of Pod "([^"]+)" prints ((?:ClusterTrustBundle )?"[^"]*")$"#
)]
async fn prints(
    scenario: &mut Scenario,
    command: String,
    container: String,
    name: String,
    expected: String,
) -> anyhow::Result<()> {
    let target = Target::new(scenario, &container, &name)?;
    let expected = text_or_bundle(scenario, &expected).await?;
    target.prints(scenario, &command, &expected).await
}

#[then(
    regex = r#"^log of container "([^"]+)" in Pod "([^"]+)" is ((?:ClusterTrustBundle )?"[^"]*")$"#
)]
async fn logs(
    scenario: &mut Scenario,
    container: String,
    name: String,
    expected: String,
) -> anyhow::Result<()> {
    let target = Target::new(scenario, &container, &name)?;
    let expected = text_or_bundle(scenario, &expected).await?;
    target.logged(scenario, &expected).await
}

/// The text itself, or the certificates of the bundle that it names.
async fn text_or_bundle(scenario: &Scenario, expected: &str) -> anyhow::Result<String> {
    let Some(name) = expected.strip_prefix("ClusterTrustBundle ") else {
        return Ok(expected.trim_matches('"').to_owned());
    };
    let object = ObjectRef::new("ClusterTrustBundle", None, name.trim_matches('"'));
    let seen = read(scenario, &object).await?.context("no such bundle")?;
    let text = seen["spec"]["trustBundle"].as_str();
    text.map(str::to_owned).context("an empty bundle")
}

/// A container of a Pod.
struct Target {
    namespace: String,
    pod: String,
    container: String,
}

impl Target {
    fn new(scenario: &Scenario, container: &str, name: &str) -> anyhow::Result<Self> {
        let pod = scenario.resolved(&pod(name)?);
        Ok(Self {
            namespace: pod.namespace.unwrap_or_default(),
            pod: pod.name,
            container: container.to_owned(),
        })
    }

    fn at(&self) -> PodTarget<'_> {
        PodTarget {
            namespace: &self.namespace,
            pod: &self.pod,
            container: Some(&self.container),
        }
    }

    /// Waits: a volume is refreshed by the kubelet some time after its source.
    async fn prints(
        &self,
        scenario: &Scenario,
        command: &str,
        expected: &str,
    ) -> anyhow::Result<()> {
        let environment = scenario.environment_of::<Admission>()?;
        let argv: Vec<&str> = command.split(' ').collect();
        until(&format!("{command} prints it"), PULL, || async {
            let output = environment.cluster().exec_in_pod(self.at(), &argv).await?;
            ensure!(output.code == 0, "{}", output.stderr);
            same(expected, &output.stdout)
        })
        .await?;
        Ok(())
    }

    async fn logged(&self, scenario: &Scenario, expected: &str) -> anyhow::Result<()> {
        let environment = scenario.environment_of::<Admission>()?;
        same(expected, &environment.cluster().pod_logs(self.at()).await?)
    }
}

/// A kubelet writes the certificates of a bundle in an order of its own.
fn same(expected: &str, seen: &str) -> anyhow::Result<()> {
    let parts = |text: &str| {
        let text = text.replace('\r', "");
        let mut parts: Vec<String> = text
            .split_inclusive("-----END CERTIFICATE-----")
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect();
        parts.sort();
        parts
    };
    ensure!(parts(expected) == parts(seen), "it is {seen}");
    Ok(())
}

/// Pulls with a Secret that came after the Pod are tried again with growing pauses, and volumes are refreshed about once
/// a minute.
const PULL: Duration = Duration::from_mins(3);
const BACK_OFF: &str = "ImagePullBackOff";

#[cfg(test)]
mod tests {
    #[test]
    fn the_order_of_certificates_does_not_matter_and_their_number_does() {
        let (a, b) = ("-----END CERTIFICATE-----", "b-----END CERTIFICATE-----");
        assert!(super::same(&format!("a{a}\n{b}\n"), &format!("{b}\na{a}")).is_ok());
        assert!(super::same(&format!("a{a}\n{b}"), &format!("a{a}")).is_err());
    }
}
