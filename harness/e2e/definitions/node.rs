//! Objects that users apply, the Pods that controllers create for them, whether the Pods run, and what is visible in their
//! containers.

use testkit::until::until;

use super::observation::expect_within;
use super::pod::{baseline, comparable};
use super::prelude::*;
use testkit::matching::walk;

#[given(regex = r#"^(?:ephemeral container "(.+)" of )?(Pod "[^"]+") is Running$"#)]
#[then(regex = r#"^(?:ephemeral container "(.+)" of )?(Pod "[^"]+") is Running$"#)]
async fn runs(scenario: &mut Scenario, container: String, pod: ObjectRef) -> Result {
    expect_within(scenario, &pod, PULL, |seen| {
        let status = &seen["status"];
        let mut ephemeral = items(&status["ephemeralContainerStatuses"]);
        let runs = match container.as_str() {
            "" => {
                let is_deleted = !seen["metadata"]["deletionTimestamp"].is_null();
                status["phase"] == "Running" && are_ready(seen) && !is_deleted
            }
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
    // The kubelet alternates between the failure and the backoff after it.
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

/// The step waits, because the kubelet updates a volume some time after its source.
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

/// Returns the text, or the certificates of the bundle that it names.
async fn text_or_bundle(scenario: &Scenario, expected: &str) -> Result<String> {
    if !expected.starts_with("ClusterTrustBundle ") {
        return Ok(expected.trim_matches('"').to_owned());
    }
    let bundle: ObjectRef = expected.parse()?;
    let seen = existing(scenario, &bundle).await?;
    let text = seen["spec"]["trustBundle"].as_str();
    text.map(str::to_owned).context("an empty bundle")
}

/// Compares certificates regardless of their order, because the kubelet shuffles a bundle.
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

/// Compares with the same object in a Namespace that the webhook's rules exclude: the object as sent, with defaults.
#[then(expr = "{object} is stored as it was sent")]
async fn as_sent(scenario: &mut Scenario, object: ObjectRef) -> Result {
    let sent = scenario.sent(&object)?;
    let mut expected = baseline(&scenario.client_of(&object)?, sent).await?["spec"].take();
    let mut seen = existing(scenario, &object).await?;
    let version = &seen["metadata"]["generation"];
    ensure!(*version == 1, "it was written again: generation {version}");
    let mut seen = seen["spec"].take();
    // The API server labels the Pods of a Job with the Job's random UID.
    for spec in [&mut expected, &mut seen] {
        walk(spec, &|value| {
            if let Some(map) = value.as_object_mut() {
                map.retain(|key, _| !key.ends_with("controller-uid"));
            }
        });
    }
    equal(&expected, &seen)
}

/// "matches" compares the fields of the step's document, "equals" the whole Pod.
#[then(
    regex = r#"^the Pod with label "(.+)" in Namespace "(.+)" (?:matches:|equals file "(.+)")$"#
)]
async fn pod_matches(
    scenario: &mut Scenario,
    label: String,
    namespace: String,
    file: String,
    step: &Step,
) -> Result {
    let client = webhook(scenario)?.client;
    let (namespace, (key, value)) = (scenario.resolve(&namespace), pair(&label));
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={key}={value}");
    let pod = eventually(&format!("a Pod with label {label}"), async || {
        let mut pods = client.items(&path).await?;
        pods.retain(|it| it["metadata"]["deletionTimestamp"].is_null());
        pods.pop().context("no Pod yet")
    })
    .await?;
    if !file.is_empty() {
        let file: Value = serde_saphyr::from_str(&file_of_project(&file)?)?;
        return equals(&pod, &baseline(&client, &file).await?);
    }
    has_all(&document(scenario, step)?, &pod)
}

/// Compares with the Pod that the API server returns for the file.
fn equals(pod: &Value, baseline: &Value) -> Result {
    let [expected, seen] = [baseline, pod].map(|pod| {
        let mut pod = comparable(pod);
        let own = ["name", "generateName", "ownerReferences"];
        remove_fields(&mut pod["metadata"], &own);
        remove_fields(&mut pod["metadata"]["labels"], &["pod-template-hash"]);
        remove_fields(&mut pod["spec"], &["nodeName"]);
        remove_fields(&mut pod, &["apiVersion", "kind"]);
        // The token's volume is added before or after the volumes of the webhook.
        sort(&mut pod["spec"]["volumes"]);
        sort(&mut pod["spec"]["containers"][0]["volumeMounts"]);
        pod
    });
    equal(&expected, &seen)
}

fn sort(list: &mut Value) {
    if let Some(all) = list.as_array_mut() {
        all.sort_by_key(|it| it["name"].to_string());
    }
}

/// Time limit of a pull. Pulls with a Secret that is created after the Pod are retried with exponential backoff, and volumes
/// are updated about once a minute.
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
