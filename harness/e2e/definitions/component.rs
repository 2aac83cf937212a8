//! Components, which steps stop, start and restart, and another webhook next to the product's.

use std::sync::Arc;

use futures::future::ready;
use testkit::pki::rcgen::SanType;

use super::prelude::*;
use super::tls::SERVICE;
use super::webhook::adapts;
use super::{controller, watcher};
use crate::admission::webhook::{DEPLOYMENT, LANDSCAPE, NAMESPACE};
use crate::install;
use crate::other_webhook;
use crate::rollout::Workload;
use clusters::cluster::TrustBundles;
use clusters::registry::HOST;
use testkit::pki::Authority;
use tokio::task::JoinHandle;

#[given(
    regex = "^a runtime that does not (serve|project) ClusterTrustBundles and pulls the webhook from the private registry$"
)]
async fn other_runtime(scenario: &mut Scenario, what: String) -> Result {
    let shared = scenario.environment_of::<Admission>()?;
    let trust_bundles = match what.as_str() {
        "serve" => TrustBundles::NotServed,
        _ => TrustBundles::Dropped,
    };
    let own = Arc::new(Box::pin(shared.without_trust_bundles(trust_bundles)).await?);
    let ended = Arc::clone(&own);
    scenario.undo("stop the scenario's own runtime", Admission::stop(ended));
    scenario.own = Some(own);
    for pod in webhook(scenario)?.pods().await? {
        let image = &pod["status"]["containerStatuses"][0]["imageID"];
        let pulled = image.as_str().is_some_and(|it| it.starts_with(HOST));
        ensure!(pulled, "the node runs {image}");
    }
    Ok(())
}

#[given(
    regex = r#"^component webhook runs (?:without flag "landscape"|with flags "(.+)"|with (certificate files))$"#
)]
async fn with_flags(scenario: &mut Scenario, flags: String, files: String) -> Result {
    if !files.is_empty() {
        return with_certificate_files(scenario).await;
    }
    if flags.contains("--mutating-admission-policy") {
        let client = webhook(scenario)?.client;
        let without_policy = async move { adapts(&client).await };
        scenario.undo("wait until no policy is evaluated", without_policy);
    }
    restore_later(scenario, &deployment()).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let image = &environment.fixtures.webhook.reference;
    let mut flags: Vec<&str> = flags.split_whitespace().collect();
    if !flags.is_empty() {
        flags.extend(["--landscape", LANDSCAPE]);
    }
    let manifests = install::webhook(image, &flags).await?;
    install::install(&environment.cluster, &manifests).await
}

/// Mounts certificate files from a Secret of the scenario into every replica. A leader that issues certificates does not trust
/// certificates from files, and vice versa. So all replicas are stopped before the change and at the end.
async fn with_certificate_files(scenario: &mut Scenario) -> Result {
    let secret = ObjectRef::new("Secret", Some(NAMESPACE), FILES);
    let files = certificate_files(scenario, true)?;
    create(scenario, &secret, files, Write::Create).await?;
    let mut spec = existing(scenario, &deployment()).await?["spec"].take();
    stop(scenario).await?;
    let pod = "/template/spec";
    let container = "/template/spec/containers/0";
    let flag = json!("--webhook-cert-path=/harness");
    let mount = json!({ "name": FILES, "mountPath": "/harness", "readOnly": true });
    let volume = json!({ "name": FILES, "secret": { "secretName": FILES } });
    for (of, name, added) in [
        (container, "args", flag),
        (container, "volumeMounts", mount),
        (pod, "volumes", volume),
    ] {
        let list = &mut spec.pointer_mut(of).context("no container")?[name];
        *list = items(list).cloned().chain([added]).collect();
    }
    change(scenario, &deployment(), json!({ "spec": spec })).await?;
    let client = webhook(scenario)?.client;
    scenario.undo("stop the replicas with certificate files", async move {
        let replicas = Workload::new(client, NAMESPACE, DEPLOYMENT);
        replicas.stop().await
    });
    Ok(())
}

/// Returns a new certificate for the webhook's Service as the data of a Secret, of a new CA or of the CA of the last call.
pub(super) fn certificate_files(scenario: &mut Scenario, by_another_ca: bool) -> Result<Value> {
    if by_another_ca {
        let authority = Authority::new("harness")?;
        let files = json!([authority.pem(), authority.certificate.key.serialize_pem()]);
        scenario.observed.note("CA of the certificate files", files);
    }
    let files = scenario.observed.noted("CA of the certificate files")?;
    let [certificate, key] = [0, 1].map(|it| files[it].as_str().unwrap_or_default());
    let authority = Authority::of_key("harness", key)?;
    let leaf = authority.leaf_with("webhook", |params| {
        let name = format!("{SERVICE}.{NAMESPACE}.svc")
            .try_into()
            .map(SanType::DnsName);
        params.subject_alt_names.extend(name);
    })?;
    Ok(json!({
        "type": "kubernetes.io/tls",
        "stringData": {
            "ca.crt": certificate, "tls.crt": leaf.pem, "tls.key": leaf.key.serialize_pem(),
        },
    }))
}

#[given(regex = "^component (webhook|controller|watcher) is (stopped|started|restarted|killed)$")]
#[when(regex = "^component (webhook|controller|watcher) is (stopped|started|restarted|killed)$")]
async fn component(scenario: &mut Scenario, name: String, change: String) -> Result {
    match (name.as_str(), change.as_str()) {
        ("controller", change) => controller::component(scenario, change).await,
        ("watcher", change) => watcher::component(scenario, change).await,
        (_, "stopped") => stop(scenario).await,
        (_, "started") => start(scenario).await,
        (_, "restarted") => restart(scenario).await,
        (_, change) => bail!("the webhook is never {change} by a scenario"),
    }
}

async fn restart(scenario: &Scenario) -> Result {
    let webhook = webhook(scenario)?;
    let before = webhook.replicas().await?;
    for replica in &before {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", replica.pod);
        webhook.client.delete(&path).await?;
    }
    eventually("other replicas run", async || {
        let now = webhook.replicas().await?;
        ensure!(now.len() >= before.len(), "{} replicas", now.len());
        for replica in &now {
            let is_new = before.iter().all(|old| old.pod != replica.pod);
            let is_started = replica.health("/healthz").await?.0;
            ensure!(is_new && is_started, "{}: {is_started}", replica.pod);
        }
        Ok(())
    })
    .await
}

async fn stop(scenario: &mut Scenario) -> Result {
    note_failed_open(scenario).await?;
    let scale = json!({ "spec": { "replicas": 0 } });
    change(scenario, &deployment(), scale).await?;
    let webhook = webhook(scenario)?;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    eventually("the Service has no endpoint", async || {
        let pods = webhook.pods().await?.len();
        let slices = webhook.client.get(&slices).await?.object.to_string();
        let is_ready = slices.contains("\"ready\":true");
        check(pods == 0 && !is_ready, format!("{pods} Pods"))
    })
    .await
}

async fn start(scenario: &mut Scenario) -> Result {
    let scale = json!({ "spec": { "replicas": 2 } });
    change(scenario, &deployment(), scale).await?;
    let environment = scenario.environment_of::<Admission>()?;
    install::rolled_out(&environment.cluster).await
}

#[then(regex = r"^the API server admitted (no|the) Pod without asking the webhook$")]
async fn failed_open(scenario: &mut Scenario, which: String) -> Result {
    let before = scenario.observed.noted("fail-open counter")?.as_u64();
    let now = webhook(scenario)?.failed_open().await?;
    let is_expected = (Some(now) > before) == (which == "the");
    let seen = format!("fail-open count: {before:?}, then {now}");
    check(is_expected, seen)
}

pub(super) async fn note_failed_open(scenario: &mut Scenario) -> Result {
    let count = webhook(scenario)?.failed_open().await?;
    scenario.observed.note("fail-open counter", json!(count));
    Ok(())
}

#[given(
    expr = "another mutating webhook that adds container {string} with image {string} in Namespace {string}"
)]
async fn second_webhook(
    scenario: &mut Scenario,
    container: String,
    image: String,
    namespace: String,
) -> Result {
    let namespace = scenario.resolve(&namespace);
    let environment = scenario.environment_of::<Admission>()?;
    let added = json!({ "name": container, "image": image });
    let node = environment.cluster.node_address().await?;
    let patch = json!([{ "op": "add", "path": "/spec/containers/-", "value": added }]);
    let served = other_webhook::serve(&node, move |_| ready(patch.clone())).await?;
    let in_namespace = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    let name = format!("zz-{namespace}");
    let object = ObjectRef::new("MutatingWebhookConfiguration", None, &name);
    let mut pod = named("is-it-asked");
    pod["metadata"]["namespace"] = json!(namespace);
    register(scenario, &object, (served, in_namespace)).await?;
    is_asked(scenario, &object, (pod, &container)).await
}

/// Registers another webhook for the Namespaces of a selector until the end of the scenario.
pub(super) async fn register(
    scenario: &mut Scenario,
    object: &ObjectRef,
    ((config, task), namespaces): ((Value, JoinHandle<()>), Value),
) -> Result {
    // It stops after its registration is deleted, because an unreachable webhook would block every Pod.
    scenario.undo("stop the other webhook", async move {
        task.abort();
        Ok(())
    });
    let registration = other_webhook::registration(&config, &namespaces);
    create(scenario, object, registration, Write::Apply).await
}

/// Waits until the API server calls another webhook, which adds a text to a Pod.
pub(super) async fn is_asked(
    scenario: &Scenario,
    object: &ObjectRef,
    (pod, text): (Value, &str),
) -> Result {
    let client = scenario.client_of(object)?;
    eventually("the other webhook is asked", async || {
        let answer = client.write(Write::DryRun, &pod).await?.good()?;
        check(answer.object.to_string().contains(text), "not yet")
    })
    .await
}

pub(super) fn deployment() -> ObjectRef {
    ObjectRef::new("Deployment", Some(NAMESPACE), DEPLOYMENT)
}

/// Name of the Secret with certificate files of a scenario, and of the volume.
pub(super) const FILES: &str = "harness-certificate-files";
