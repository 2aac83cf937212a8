//! Checks of one runtime: what is installed, the configuration in place, then workloads and events.
//!
//! Workloads are checked where the configuration document is that of the scenario. Where it differs, the scenario is not one of
//! this landscape: its workloads are "not run", and the report has the differences.

use std::collections::BTreeSet;

use anyhow::Result;
use api::kcp::{VERSION_LABEL, WEBHOOK_DEPLOYMENT};
use api::names;
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::matching::differences;
use testkit::metrics::Samples;

use crate::causes::Webhooks;
use crate::cluster::Cluster;
use crate::model::Landscape;
use crate::objects::hosts;
use crate::report::{Failure, Family, Outcome};
use crate::run::Context;

/// Checks everything on one runtime.
pub(crate) async fn check(context: &Context<'_>, cluster: &Cluster) -> Result<()> {
    let configurations = cluster.list(WEBHOOKS).await?;
    let webhooks = Webhooks::of(&configurations);
    context.record(
        cluster,
        "A mutating webhook is registered for Pods",
        Family::Contract,
        registered(cluster, &webhooks),
    );
    if !context.options.only_contract {
        let deployment = cluster.find(&webhook_deployment()).await?;
        let title = "The webhook has the version of this program";
        let outcome = same_version(deployment.as_ref(), env!("CARGO_PKG_VERSION"));
        context.record(cluster, title, Family::Metrics, outcome);
    }
    let in_place = configuration(context, cluster, names::SKR_NAMESPACE).await?;
    let reviews = reviews(context, cluster).await;
    let landscape = &context.scenario.landscape;
    let workloads = landscape.workloads.iter().enumerate();
    let workloads = workloads.filter(|(_, it)| it.is_on(&cluster.name));
    let checks = workloads.map(|(index, workload)| {
        let (webhooks, in_place) = (&webhooks, &in_place);
        async move {
            match in_place {
                Ok(()) => {
                    crate::workloads::check(context, cluster, (index, workload), webhooks).await
                }
                Err(reason) => {
                    let title = format!("Pods of {} come out as expected", workload.shown());
                    let reason = reason.clone();
                    context.record(
                        cluster,
                        &title,
                        Family::Contract,
                        Outcome::NotRun { reason },
                    );
                    Ok(0)
                }
            }
        }
    });
    let created: Vec<Result<usize>> = futures::stream::iter(checks)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let created = created.into_iter().sum::<Result<usize>>()?;
    if created > 0 && !context.options.only_contract {
        was_asked(context, cluster, reviews, created).await;
    }
    for (index, event) in landscape.events.iter().enumerate() {
        if event.is_on(&cluster.name) {
            crate::events::check(context, cluster, (index, event)).await?;
        }
    }
    Ok(())
}

fn registered(cluster: &Cluster, webhooks: &Webhooks) -> Outcome {
    if webhooks.ours || !webhooks.others.is_empty() {
        return Outcome::Passed;
    }
    Outcome::Failed(Box::new(Failure {
        expected: format!(
            "MutatingWebhookConfiguration {}",
            names::WEBHOOK_CONFIGURATION
        ),
        found: "no MutatingWebhookConfiguration with a rule for the creation of Pods".to_owned(),
        location: WEBHOOKS.to_owned(),
        cause: "the webhook is not installed on this cluster".to_owned(),
        next: format!(
            "runtime-bootstrapper manifests webhook --image REGISTRY/webhook:TAG | {} apply -f -",
            cluster.kubectl
        ),
    }))
}

/// Compares the version of the webhook with that of the checks. Another version is no failure: the checks are made for their own.
fn same_version(deployment: Option<&Value>, own: &str) -> Outcome {
    let place = format!("Deployment {}/{WEBHOOK_DEPLOYMENT}", names::SKR_NAMESPACE);
    let reason = match deployment {
        None => format!("{place} does not exist; the checks are those of version {own}"),
        Some(it) => match it["metadata"]["labels"][VERSION_LABEL].as_str() {
            Some(version) if version == own => return Outcome::Passed,
            Some(version) => {
                format!("{place} has version {version}; the checks are those of version {own}")
            }
            None => format!(
                "{place} has no label {VERSION_LABEL}; the checks are those of version {own}"
            ),
        },
    };
    Outcome::NotRun { reason }
}

/// Compares ConfigMap, pull Secret and ClusterTrustBundle with the scenario. Gives the reason why workloads cannot be judged.
pub(crate) async fn configuration(
    context: &Context<'_>,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Result<(), String>> {
    let landscape = &context.scenario.landscape;
    let path = format!(
        "/api/v1/namespaces/{namespace}/configmaps/{}",
        names::CONFIG_MAP
    );
    let found = cluster.find(&path).await?;
    let outcome = document(
        cluster,
        namespace,
        &landscape.config.clone().into(),
        found.as_ref(),
    );
    let title = "The configuration document is that of the scenario";
    context.record(cluster, title, Family::Contract, outcome.clone());
    if let Some(secret) = &landscape.pull_secret {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{}", secret.name);
        let found = cluster.find(&path).await?;
        let outcome = pull_secret(cluster, landscape, &path, found.as_ref());
        context.record(
            cluster,
            "The pull Secret has credentials for the registries",
            Family::Contract,
            outcome,
        );
    }
    if let Some(trust) = &landscape.trust {
        let path = format!("{BUNDLES}/{}", trust.name);
        let found = cluster.find(&path).await?;
        let outcome = bundle(
            cluster,
            &trust.name,
            trust.signer.as_deref(),
            found.as_ref(),
        );
        context.record(
            cluster,
            "The ClusterTrustBundle exists",
            Family::Contract,
            outcome,
        );
    }
    Ok(match outcome {
        Outcome::Passed => Ok(()),
        Outcome::NotRun { reason } => Err(reason),
        Outcome::Failed(failure) => Err(failure.found),
    })
}

fn document(
    cluster: &Cluster,
    namespace: &str,
    expected: &Value,
    found: Option<&Value>,
) -> Outcome {
    let location = format!(
        "ConfigMap {namespace}/{}, key {}",
        names::CONFIG_MAP,
        names::CONFIG_KEY
    );
    let kubectl = &cluster.kubectl;
    let get = format!(
        "{kubectl} -n {namespace} get configmap {} -o yaml",
        names::CONFIG_MAP
    );
    let failed = |found: String, cause: &str, next: String| {
        Outcome::Failed(Box::new(Failure {
            expected: "a valid configuration document".to_owned(),
            found,
            location: location.clone(),
            cause: cause.to_owned(),
            next,
        }))
    };
    let Some(text) = found.and_then(|it| it["data"][names::CONFIG_KEY].as_str()) else {
        let cause = "the configuration was not written by KIM, the controller or a person";
        return failed(
            "no such ConfigMap or key".to_owned(),
            cause,
            format!("{kubectl} -n {namespace} get configmaps"),
        );
    };
    if let Err(error) = api::config::Document::parse(text) {
        let cause = "the webhook keeps the last valid document, and is not ready without one";
        return failed(format!("not valid: {error}"), cause, get);
    }
    let found: Value = serde_json::from_str(text).unwrap_or_default();
    let mut all = differences(expected, &found);
    // What the scenario does not have: differences the other way round, of which these are the absent ones.
    let more = differences(&found, expected).into_iter();
    all.extend(more.filter_map(|it| {
        let path = it.split_once(": is absent, expected ")?;
        Some(format!(
            "{}: is {}, and the scenario has no such key",
            path.0, path.1
        ))
    }));
    if all.is_empty() {
        return Outcome::Passed;
    }
    Outcome::NotRun {
        reason: format!(
            "{location} is not that of the scenario:\n{}",
            all.join("\n")
        ),
    }
}

fn pull_secret(
    cluster: &Cluster,
    landscape: &Landscape,
    path: &str,
    found: Option<&Value>,
) -> Outcome {
    let secret = landscape.pull_secret.as_ref();
    let expected = secret.map(|it| it.registries.clone()).unwrap_or_default();
    let name = secret.map(|it| it.name.as_str()).unwrap_or_default();
    let found = match found.map(hosts) {
        None => Err("no such Secret".to_owned()),
        Some(Err(error)) => Err(format!("another Secret: {error}")),
        Some(Ok(hosts)) if expected.iter().all(|it| hosts.contains(it)) => return Outcome::Passed,
        Some(Ok(hosts)) => Ok(format!("credentials for {hosts:?}")),
    };
    let cause = if found.is_ok() {
        "the Secret has no credentials for a registry that the document rewrites to"
    } else {
        "the Secret was not written, or another object has its name"
    };
    Outcome::Failed(Box::new(Failure {
        expected: format!("credentials for {expected:?}"),
        found: found.unwrap_or_else(|it| it),
        location: path.to_owned(),
        cause: cause.to_owned(),
        next: format!(
            "{} get secrets --all-namespaces --field-selector metadata.name={name}",
            cluster.kubectl
        ),
    }))
}

fn bundle(cluster: &Cluster, name: &str, signer: Option<&str>, found: Option<&Value>) -> Outcome {
    let certificates = |it: &Value| {
        it["spec"]["trustBundle"]
            .as_str()
            .unwrap_or_default()
            .matches("BEGIN CERTIFICATE")
            .count()
    };
    let found = match found {
        Some(it) if it["spec"]["signerName"].as_str() == signer && certificates(it) > 0 => {
            return Outcome::Passed;
        }
        Some(it) => format!(
            "signer {}, {} certificates",
            it["spec"]["signerName"],
            certificates(it)
        ),
        None => "no such ClusterTrustBundle, or the cluster does not serve the kind".to_owned(),
    };
    Outcome::Failed(Box::new(Failure {
        expected: format!("signer {}, at least one certificate", json!(signer)),
        found,
        location: format!("ClusterTrustBundle {name}"),
        cause: "the bundle was not written, or its name is not that of the document".to_owned(),
        next: format!("{} get clustertrustbundles", cluster.kubectl),
    }))
}

/// How many reviews of new Pods all replicas of the webhook have answered; none where they cannot be asked.
async fn reviews(context: &Context<'_>, cluster: &Cluster) -> Option<u64> {
    if context.options.only_contract {
        return None;
    }
    counted(
        cluster,
        names::SKR_NAMESPACE,
        WEBHOOK_PODS,
        WEBHOOK_PORT,
        REVIEWS,
    )
    .await
    .ok()
}

/// The sum of a counter over the Pods of a component.
pub(crate) async fn counted(
    cluster: &Cluster,
    namespace: &str,
    selector: &str,
    port: u16,
    series: &str,
) -> Result<u64> {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let mut sum = 0;
    let all = cluster
        .list(&format!("{pods}?labelSelector={selector}"))
        .await?;
    anyhow::ensure!(
        !all.is_empty(),
        "no Pod with labels {selector} in {namespace}"
    );
    for pod in all
        .iter()
        .filter(|it| it["metadata"]["deletionTimestamp"].is_null())
    {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let page = cluster
            .text(&format!("{pods}/{name}:{port}/proxy/metrics"))
            .await?;
        sum += Samples::parse(&page).count(series);
    }
    Ok(sum)
}

/// Whether the webhook was asked for every Pod: without it, "unchanged" would say nothing.
async fn was_asked(context: &Context<'_>, cluster: &Cluster, before: Option<u64>, created: usize) {
    let after = counted(
        cluster,
        names::SKR_NAMESPACE,
        WEBHOOK_PODS,
        WEBHOOK_PORT,
        REVIEWS,
    )
    .await;
    let outcome = match (before, after) {
        (Some(before), Ok(after)) if after >= before + created as u64 => Outcome::Passed,
        (Some(before), Ok(after)) => Outcome::Failed(Box::new(Failure {
            expected: format!("at least {created} reviews of new Pods more than {before}"),
            found: format!("{after} reviews"),
            location: format!(
                "metric {REVIEWS} of the Pods with labels {WEBHOOK_PODS} in {}",
                names::SKR_NAMESPACE
            ),
            cause: "the API server did not reach the webhook, or a replica was restarted meanwhile"
                .to_owned(),
            next: format!(
                "{} -n {} get pods -l {WEBHOOK_PODS}",
                cluster.kubectl,
                names::SKR_NAMESPACE
            ),
        })),
        (_, Err(error)) => Outcome::NotRun {
            reason: format!("{error:#}"),
        },
        (None, Ok(_)) => Outcome::NotRun {
            reason: "the metrics of the webhook could not be read before the workloads".to_owned(),
        },
    };
    context.record(
        cluster,
        "The webhook was asked for every Pod",
        Family::Metrics,
        outcome,
    );
}

/// Image and version of the webhook, if the Deployment of our name exists.
pub(crate) fn version(deployment: Option<&Value>) -> Option<String> {
    let deployment = deployment?;
    let images: BTreeSet<&str> = deployment["spec"]["template"]["spec"]["containers"]
        .as_array()?
        .iter()
        .filter_map(|it| it["image"].as_str())
        .collect();
    let version = deployment["metadata"]["labels"][VERSION_LABEL].as_str();
    let images: Vec<&str> = images.into_iter().collect();
    Some(format!(
        "{} (version {})",
        images.join(", "),
        version.unwrap_or("unknown")
    ))
}

pub(crate) const WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const WEBHOOK_PODS: &str = "app.kubernetes.io/name=rt-bootstrapper";
const WEBHOOK_PORT: u16 = 8080;
const REVIEWS: &str = "rt_bootstrapper_admission_reviews_total{operation=\"create\"}";
/// The path of the webhook's Deployment.
pub(crate) fn webhook_deployment() -> String {
    format!(
        "/apis/apps/v1/namespaces/{}/deployments/{WEBHOOK_DEPLOYMENT}",
        names::SKR_NAMESPACE
    )
}
/// Workloads that are checked at a time on one runtime.
const AT_ONCE: usize = 4;
