//! Pods on a node: whether they run, and what their containers see from inside.

use testkit::until::until;

use super::observation::expect_within;
use super::prelude::*;
use crate::admission::Admission;

#[given(regex = r#"^(?:ephemeral container "(.+)" of )?(Pod "[^"]+") is Running$"#)]
#[then(regex = r#"^(?:ephemeral container "(.+)" of )?(Pod "[^"]+") is Running$"#)]
async fn runs(scenario: &mut Scenario, container: String, pod: ObjectRef) -> Result {
    expect_within(scenario, &pod, PULL, |seen| {
        let status = &seen["status"];
        let mut ephemeral = items(&status["ephemeralContainerStatuses"]);
        let runs = match container.as_str() {
            "" => status["phase"] == "Running" && are_ready(seen),
            name => ephemeral.any(|it| it["name"] == name && !it["state"]["running"].is_null()),
        };
        check(runs, status)
    })
    .await
}

#[then(expr = "no container of {object} was restarted")]
async fn not_restarted(scenario: &mut Scenario, pod: ObjectRef) -> Result {
    let seen = existing(scenario, &pod).await?;
    let mut containers = items(&seen["status"]["containerStatuses"]);
    let is_first = containers.all(|container| container["restartCount"] == 0);
    check(is_first && are_ready(&seen), &seen["status"])
}

fn are_ready(pod: &Value) -> bool {
    let mut containers = items(&pod["status"]["containerStatuses"]).peekable();
    containers.peek().is_some() && containers.all(|it| it["ready"] == true)
}

#[then(expr = "{object} fails with reason {string}")]
async fn fails(scenario: &mut Scenario, pod: ObjectRef, reason: String) -> Result {
    // The kubelet alternates between the failure and the pause after it.
    let reasons = [reason.as_str(), "ImagePullBackOff"];
    expect_within(scenario, &pod, PULL, |seen| {
        let status = &seen["status"];
        let lists = [
            &status["initContainerStatuses"],
            &status["containerStatuses"],
        ];
        let failed = lists.into_iter().flat_map(items).any(|it| {
            let found = it["state"]["waiting"]["reason"].as_str();
            found.is_some_and(|found| reasons.contains(&found))
        });
        check(failed, status)
    })
    .await
}

/// Waits: a volume is refreshed by the kubelet some time after its source.
#[then(
    regex = r#"^(?:command "([^"]+)" in|log of) container "([^"]+)" (?:of|in) (Pod "[^"]+") (?:prints|is) ((?:ClusterTrustBundle )?"[^"]*")$"#
)]
async fn prints(
    scenario: &mut Scenario,
    command: String,
    container: String,
    pod: ObjectRef,
    expected: String,
) -> Result {
    let expected = text_or_bundle(scenario, &expected).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let pod = scenario.resolved(&pod);
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let argv: Vec<&str> = command.split_whitespace().collect();
    let (what, end) = match argv.as_slice() {
        [] => ("logs", &[][..]),
        _ => ("exec", &["--"][..]),
    };
    let target = ["-n", namespace, &pod.name, "-c", &container];
    let kubectl = [&[what], &target[..], end, &argv].concat();
    let is_expected = async || same(&expected, &environment.cluster.kubectl(&kubectl).await?);
    Ok(until("the text is printed", PULL, is_expected).await?)
}

/// The text itself, or the certificates of the bundle that it names.
async fn text_or_bundle(scenario: &Scenario, expected: &str) -> Result<String> {
    if !expected.starts_with("ClusterTrustBundle ") {
        return Ok(expected.trim_matches('"').to_owned());
    }
    let bundle: ObjectRef = expected.parse()?;
    let seen = existing(scenario, &bundle).await?;
    let text = seen["spec"]["trustBundle"].as_str();
    text.map(str::to_owned).context("an empty bundle")
}

/// A kubelet writes the certificates of a bundle in an order of its own.
fn same(expected: &str, seen: &str) -> Result {
    let parts = |text: &str| {
        let text = text.replace('\r', "");
        let parts = text.split_inclusive("-----END CERTIFICATE-----");
        let parts = parts.map(|part| part.trim().to_owned());
        let mut parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        parts.sort();
        parts
    };
    check(parts(expected) == parts(seen), format!("it is {seen}"))
}

/// Pulls with a Secret that came after the Pod are tried again with growing pauses, and volumes are refreshed about once
/// a minute.
const PULL: Duration = Duration::from_mins(3);

#[cfg(test)]
mod tests {
    #[test]
    fn the_order_of_certificates_does_not_matter_and_their_number_does() {
        let (a, b) = ("-----END CERTIFICATE-----", "b-----END CERTIFICATE-----");
        assert!(super::same(&format!("a{a}\n{b}\n"), &format!("{b}\na{a}")).is_ok());
        assert!(super::same(&format!("a{a}\n{b}"), &format!("a{a}")).is_err());
    }
}
