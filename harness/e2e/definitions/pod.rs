//! Pods: their description in steps, and the features that have changed them, which are derived from the Pod only and not from
//! reports of the webhook.

use std::collections::BTreeMap;

use super::prelude::*;
use crate::admission::webhook::{LANDSCAPE, REVIEWS, VOLUME, Webhook};
use testkit::matching::walk;

/// Image that every node has.
const IMAGE: &str = "localhost/probe:1";

#[given(regex = r#"^(Pod "[^"]+")(?: with image "([^"]*)")?(?: and annotation "([^"]+)")?$"#)]
fn described(scenario: &mut Scenario, pod: ObjectRef, image: String, annotation: String) {
    let mut text = plain();
    if !image.is_empty() {
        text["spec"]["containers"][0]["image"] = json!(image);
    }
    if !annotation.is_empty() {
        let (key, value) = pair(&annotation);
        text["metadata"]["annotations"][key] = json!(value);
    }
    let pod = scenario.resolved(&pod);
    scenario.observed.described.insert(pod, text);
}

/// Returns a Pod with one container `app`, whose image every node has.
pub(crate) fn plain() -> Value {
    complete(json!({}))
}

/// Returns the same Pod with a name, for requests without a step's document.
pub(crate) fn named(name: &str) -> Value {
    let mut pod = plain();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"] = json!({ "app": name });
    pod
}

/// Adds required fields that a step omits: a container `app`, its image, and a short termination period.
pub(crate) fn complete(mut pod: Value) -> Value {
    if pod["metadata"]["annotations"].is_null() {
        pod["metadata"]["annotations"] = json!({});
    }
    let spec = &mut pod["spec"];
    if spec["terminationGracePeriodSeconds"].is_null() {
        spec["terminationGracePeriodSeconds"] = json!(0);
    }
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "app" }]);
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container["image"].is_null() {
            container["image"] = json!(IMAGE);
        }
        if container["imagePullPolicy"].is_null() {
            // Images that another scenario has pulled must not influence this scenario.
            let is_loaded = container["image"] == IMAGE;
            container["imagePullPolicy"] = json!(if is_loaded { "IfNotPresent" } else { "Always" });
        }
    }
    pod
}

/// Sends the mutated Pod again, as a reinvocation after another mutating webhook does.
#[when(expr = "the admitted {object} is created again with dry run")]
async fn again(scenario: &mut Scenario, pod: ObjectRef) -> Result {
    let mut text = admitted(scenario, &pod)?.clone();
    text["status"] = Value::Null;
    if let Some(metadata) = text["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["labels", "annotations"].contains(&key.as_str()));
    }
    create(scenario, &pod, text, Write::DryRun).await
}

/// Returns the Pod after the scenario's last write.
fn admitted<'a>(scenario: &'a Scenario, pod: &ObjectRef) -> Result<&'a Value> {
    let written = scenario.observed.written.get(&scenario.resolved(pod));
    let (answer, _) = written.with_context(|| format!("no step wrote {pod}"))?;
    Ok(&answer.object)
}

/// Compares with the same Pod in a Namespace that the webhook's rules exclude. For "unchanged" the step sends the Pod twice
/// more, because the first request may have failed open: unchanged, and compares counters; and with a container whose image is
/// invalid, for which the webhook returns a warning. The counters also include Pods of other scenarios, the warning does not. "without review" is for Pods that the API server does not send to the webhook.
#[then(regex = r#"^(Pod "[^"]+") is admitted (unchanged|without review)$"#)]
async fn unchanged(scenario: &mut Scenario, pod: ObjectRef, how: String) -> Result {
    let seen = comparable(admitted(scenario, &pod)?);
    let client = scenario.client_of(&pod)?;
    let mut sent = scenario.sent(&pod)?.clone();
    let expected = comparable(&baseline(&client, &sent).await?);
    equal(&expected, &seen)?;
    if how == "without review" {
        return Ok(());
    }
    sent["metadata"]["name"] = json!(format!("again-{}", random()));
    let mut again = comparable(&reviewed(&client, &sent).await?);
    again["metadata"]["name"] = expected["metadata"]["name"].clone();
    equal(&expected, &again)?;
    let annotations = &mut sent["metadata"]["annotations"];
    remove_fields(annotations, &[api::names::MIRROR_POD]);
    annotations[api::Feature::RegistryRewrite.key()] = json!("true");
    let containers = sent["spec"]["containers"].as_array_mut();
    let invalid = json!({ "name": "invalid", "image": "a::b" });
    containers.context("no containers")?.push(invalid);
    let warnings = client.write(Write::DryRun, &sent).await?.good()?.warnings;
    let texts = ["not a valid image reference", "not in availableFeatures"];
    let is_asked = warnings
        .iter()
        .any(|it| texts.iter().any(|text| it.contains(text)));
    check(is_asked, format!("the webhook is not asked: {warnings:?}"))
}

/// Creates a Pod with dry run and returns it, once the webhook has counted a review meanwhile, and the API server no request that
/// the webhook did not answer. The counters also include Pods of other scenarios, so the request is repeated.
async fn reviewed(client: &Client, pod: &Value) -> Result<Value> {
    let client = client.clone();
    let webhook = Webhook { client };
    eventually("the Pod is reviewed", async || {
        let (reviews, failed) = (webhook.sum(REVIEWS).await?, webhook.failed_open().await?);
        let created = webhook.client.write(Write::DryRun, pod).await?.good()?;
        let reviews = webhook.sum(REVIEWS).await? - reviews;
        let failed = webhook.failed_open().await? - failed;
        let seen = format!("{reviews} reviews, {failed} requests failed open");
        check(reviews > 0.0 && failed == 0, seen)?;
        Ok(created.object)
    })
    .await
}

/// Returns an object as the API server would store it in a Namespace without webhooks.
pub(crate) async fn baseline(client: &Client, sent: &Value) -> Result<Value> {
    let mut sent = sent.clone();
    sent["metadata"]["namespace"] = json!("kube-system");
    Ok(client.write(Write::DryRun, &sent).await?.good()?.object)
}

/// Returns a Pod without fields that differ from request to request.
pub(crate) fn comparable(pod: &Value) -> Value {
    let mut pod = content(pod);
    remove_fields(&mut pod["metadata"], &["namespace"]);
    if pod["metadata"]["annotations"] == json!({}) {
        remove_fields(&mut pod["metadata"], &["annotations"]);
    }
    // The volume of the ServiceAccount's token has a random name.
    walk(&mut pod, &|value| {
        let text = value.as_str().unwrap_or_default();
        if text.starts_with("kube-api-access-") {
            *value = json!("kube-api-access");
        }
    });
    pod
}

#[then(expr = "image of container {string} in {object} is {string}")]
async fn has_image(scenario: &mut Scenario, name: String, pod: ObjectRef, image: String) -> Result {
    expect(scenario, &pod, |seen| {
        let found = containers(seen).find(|it| it["name"] == name);
        let found = &found.context("no such container")?["image"];
        check(*found == image, found)
    })
    .await
}

#[then(expr = "{object} has imagePullSecrets {string}")]
async fn secrets(scenario: &mut Scenario, pod: ObjectRef, names: String) -> Result {
    expect(scenario, &pod, |seen| {
        let found = pull_secrets(seen).join(", ");
        check(found == names, format!("{found:?}"))
    })
    .await
}

#[then(expr = "every container of {object} has env {string}")]
async fn variables(scenario: &mut Scenario, pod: ObjectRef, entry: String) -> Result {
    let (key, value) = pair(&entry);
    expect(scenario, &pod, |seen| {
        for container in containers(seen) {
            let entries = items(&container["env"]).filter(|it| it["name"] == key);
            let is_expected = env(container, key) == Some(value) && entries.count() == 1;
            ensure!(is_expected, "{container}");
        }
        Ok(())
    })
    .await
}

#[then(expr = "containers {string} of {object} mount ClusterTrustBundle {string} at {string}")]
async fn mounts(
    scenario: &mut Scenario,
    names: String,
    pod: ObjectRef,
    bundle: String,
    path: String,
) -> Result {
    expect(scenario, &pod, |seen| {
        let volume = items(&seen["spec"]["volumes"]).find(|volume| {
            items(&volume["projected"]["sources"])
                .any(|source| source["clusterTrustBundle"]["name"] == bundle)
        });
        let volume = &volume.context("no volume of the bundle")?["name"];
        let expected = json!({ "name": volume, "mountPath": path, "readOnly": true });
        let with_mount = containers(seen)
            .filter(|container| items(&container["volumeMounts"]).any(|it| *it == expected));
        let found: Vec<&str> = with_mount.filter_map(|it| it["name"].as_str()).collect();
        check(found.join(", ") == names, format!("mounted in {found:?}"))
    })
    .await
}

#[then(regex = r#"^(?:the warning contains "([^"]+)"|there is no warning)$"#)]
fn warned(scenario: &mut Scenario, text: String) -> Result {
    let warnings = &scenario.observed.last()?.warnings;
    let is_expected = match text.as_str() {
        "" => warnings.is_empty(),
        text => warnings.iter().any(|warning| warning.contains(text)),
    };
    check(is_expected, format!("{warnings:?}"))
}

/// "only" and "not" also check that the webhook has mutated the Pod: it has the product's only annotation.
#[then(regex = r#"^(Pod "[^"]+") is (not )?mutated (only )?by "([^"]+)"$"#)]
async fn mutated(
    scenario: &mut Scenario,
    pod: ObjectRef,
    not: String,
    only: String,
    named: String,
) -> Result {
    let named = features(&named)?;
    let (not, only) = (!not.is_empty(), !only.is_empty());
    let sent = scenario.sent(&pod)?.clone();
    expect(scenario, &pod, |seen| {
        for feature in api::Feature::ALL {
            let changed = changed(feature, &sent, seen);
            let is_wrong = match named.contains(&feature) {
                true if not => changed.contains(&true),
                true => changed.is_empty() || changed.contains(&false),
                false => only && changed.contains(&true),
            };
            ensure!(!is_wrong, "{feature:?} by container: {changed:?}: {seen}");
        }
        if not || only {
            let annotations = &seen["metadata"]["annotations"];
            let fields = annotations.as_object().into_iter().flatten();
            let own = fields.filter(|(key, _)| key.starts_with("rt-bootstrapper.kyma-project.io/"));
            let is_marked = annotations[api::names::MARKER] == "true" && own.count() == 1;
            ensure!(is_marked, "{annotations}");
        }
        Ok(())
    })
    .await
}

/// Returns for each container whether a feature has changed it. For a feature that changes no containers the result is for the
/// Pod.
fn changed(feature: api::Feature, sent: &Value, seen: &Value) -> Vec<bool> {
    if feature == api::Feature::PullSecret {
        return vec![pull_secrets(seen).len() > pull_secrets(sent).len()];
    }
    let pairs = containers(sent).filter_map(|before| {
        let after = containers(seen).find(|it| it["name"] == before["name"])?;
        Some((before, after))
    });
    let touched = pairs.map(|(before, after)| touches(feature, before, after));
    touched.collect()
}

fn touches(feature: api::Feature, before: &Value, after: &Value) -> bool {
    let variable = |name| env(after, name).filter(|_| env(before, name) != env(after, name));
    match feature {
        api::Feature::RegistryRewrite => before["image"] != after["image"],
        api::Feature::TrustBundle => {
            items(&after["volumeMounts"]).any(|mount| mount["name"] == VOLUME)
        }
        api::Feature::FipsMode => variable(api::names::FIPS_VARIABLE) == Some("true"),
        api::Feature::Landscape => variable(api::names::LANDSCAPE_VARIABLE) == Some(LANDSCAPE),
        api::Feature::PullSecret => false,
    }
}

/// Returns features by the names of their annotations without the prefix, or all for `all`.
fn features(names: &str) -> Result<Vec<api::Feature>> {
    let mut features = Vec::new();
    for name in names.split(", ") {
        let mut all = api::Feature::ALL.into_iter();
        match all.find(|feature| feature.key().rsplit('/').next() == Some(name)) {
            Some(feature) => features.push(feature),
            None if name == "all" => features.extend(api::Feature::ALL),
            None => bail!("unknown feature {name:?}"),
        }
    }
    Ok(features)
}

/// Returns the number of restarts of the first container of each Pod, by Pod.
pub(crate) fn restarts(pods: &[Value]) -> BTreeMap<String, u64> {
    let restarts = pods.iter().map(|pod| {
        let name = text(&pod["metadata"]["name"]);
        let count = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
        (name.to_owned(), count.unwrap_or_default())
    });
    restarts.collect()
}

/// Returns containers of every kind: init containers first, ephemeral containers last.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]))
}

pub(crate) fn env<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    items(&container["env"]).find(|entry| entry["name"] == name)?["value"].as_str()
}

pub(crate) fn pull_secrets(pod: &Value) -> Vec<&str> {
    let entries = items(&pod["spec"]["imagePullSecrets"]);
    entries.filter_map(|it| it["name"].as_str()).collect()
}
