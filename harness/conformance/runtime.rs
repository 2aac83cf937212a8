//! Checks of one runtime: the installed webhook, the configuration, then workloads and events.
//!
//! Workloads are checked only if the configuration document is that of the scenario. Otherwise the scenario does not describe
//! this landscape: its workloads are "not run", and the report contains the differences.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use api::kcp::{VERSION_LABEL, WEBHOOK_DEPLOYMENT};
use api::names;
use futures::StreamExt as _;
use serde_json::Value;
use testkit::json::name;
use testkit::metrics::Samples;

use crate::causes::Webhooks;
use crate::cluster::Cluster;
use crate::report::Outcome;
use crate::run::Context;
use crate::{configuration, events, workloads};

/// Runs all checks on one runtime.
pub(crate) async fn check(context: &Context<'_>, cluster: &Cluster) -> Result<()> {
    let webhooks = Webhooks::of(&cluster.list(WEBHOOKS).await?);
    let title = "A mutating webhook is registered for Pods";
    context.contract(cluster, title, registered(cluster, &webhooks));
    if !context.options.only_contract {
        let deployment = cluster.find(&webhook_deployment()).await?;
        let title = "The webhook has the version of this program";
        let outcome = same_version(deployment.as_ref(), env!("CARGO_PKG_VERSION"));
        context.metrics(cluster, title, outcome);
    }
    let in_place = configuration::check(context, cluster, names::SKR_NAMESPACE).await?;
    let reviews = reviews(context, cluster).await;
    let landscape = &context.scenario.landscape;
    let workloads = landscape.workloads.iter().enumerate();
    let workloads = workloads.filter(|(_, it)| it.is_on(&cluster.name));
    match in_place {
        Ok(()) => {
            let checks = workloads.map(|it| workloads::check(context, cluster, it, &webhooks));
            let created = futures::stream::iter(checks).buffer_unordered(AT_ONCE);
            let created: Vec<Result<usize>> = created.collect().await;
            let created = created.into_iter().sum::<Result<usize>>()?;
            if created > 0 && !context.options.only_contract {
                was_asked(context, cluster, reviews, created).await;
            }
        }
        Err(reason) => {
            for (_, workload) in workloads {
                let title = format!("Pods of {} come out as expected", workload.shown());
                context.contract(cluster, &title, Outcome::not_run(&reason));
            }
        }
    }
    let events = landscape.events.iter().enumerate();
    for event in events.filter(|(_, it)| it.is_on(&cluster.name)) {
        events::check(context, cluster, event).await?;
    }
    Ok(())
}

fn registered(cluster: &Cluster, webhooks: &Webhooks) -> Outcome {
    if webhooks.ours || !webhooks.others.is_empty() {
        return Outcome::Passed;
    }
    let expected = format!(
        "MutatingWebhookConfiguration {}",
        names::WEBHOOK_CONFIGURATION
    );
    let found = "no MutatingWebhookConfiguration with a rule for the creation of Pods";
    let cause = "the webhook is not installed on this cluster";
    let install = "runtime-bootstrapper manifests webhook --image REGISTRY/webhook:TAG";
    let next = format!("{install} | {} apply -f -", cluster.kubectl);
    Outcome::failed(WEBHOOKS, (expected, found), (cause, next))
}

/// Compares the version of the webhook with that of the checks. A different version is not a failure, because the checks are
/// for their own version.
fn same_version(deployment: Option<&Value>, own: &str) -> Outcome {
    let found = match deployment.map(|it| it["metadata"]["labels"][VERSION_LABEL].as_str()) {
        None => "does not exist".to_owned(),
        Some(None) => format!("has no label {VERSION_LABEL}"),
        Some(Some(version)) if version == own => return Outcome::Passed,
        Some(Some(version)) => format!("has version {version}"),
    };
    let place = format!("Deployment {}/{WEBHOOK_DEPLOYMENT}", names::SKR_NAMESPACE);
    let reason = format!("{place} {found}; the checks are those of version {own}");
    Outcome::not_run(reason)
}

/// Returns how many reviews of new Pods all replicas of the webhook have answered; `None` if their metrics cannot be read.
async fn reviews(context: &Context<'_>, cluster: &Cluster) -> Option<u64> {
    if context.options.only_contract {
        return None;
    }
    counted(cluster, WEBHOOK, REVIEWS).await.ok()
}

/// The Pods of a component, and the port of their metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Component {
    pub(crate) namespace: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) port: u16,
}

/// Returns the sum of a counter over the Pods of a component.
pub(crate) async fn counted(cluster: &Cluster, component: Component, series: &str) -> Result<u64> {
    let (namespace, labels) = (component.namespace, component.labels);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let all = format!("{pods}?labelSelector={labels}");
    let all = cluster.list(&all).await?;
    let is_any = !all.is_empty();
    ensure!(is_any, "no Pod with labels {labels} in {namespace}");
    let is_deleted = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
    let mut sum = 0;
    for pod in all.iter().filter(|it| !is_deleted(it)) {
        let (name, port) = (name(pod), component.port);
        let path = format!("{pods}/{name}:{port}/proxy/metrics");
        sum += Samples::parse(&cluster.text(&path).await?).count(series);
    }
    Ok(sum)
}

/// Checks that the API server called the webhook for every Pod. Without a call, an unchanged Pod proves nothing.
async fn was_asked(context: &Context<'_>, cluster: &Cluster, before: Option<u64>, created: usize) {
    let (namespace, kubectl) = (names::SKR_NAMESPACE, &cluster.kubectl);
    let outcome = match (before, counted(cluster, WEBHOOK, REVIEWS).await) {
        (Some(before), Ok(after)) if after >= before + created as u64 => Outcome::Passed,
        (Some(before), Ok(after)) => Outcome::failed(
            format!("metric {REVIEWS} of the Pods with labels {WEBHOOK_PODS} in {namespace}"),
            (
                format!("at least {created} reviews of new Pods more than {before}"),
                format!("{after} reviews"),
            ),
            (
                "the API server did not reach the webhook, or a replica was restarted meanwhile",
                format!("{kubectl} -n {namespace} get pods -l {WEBHOOK_PODS}"),
            ),
        ),
        (_, Err(error)) => Outcome::not_run(format!("{error:#}")),
        (None, Ok(_)) => {
            Outcome::not_run("the metrics of the webhook could not be read before the workloads")
        }
    };
    context.metrics(cluster, "The webhook was asked for every Pod", outcome);
}

/// Returns image and version of the webhook, if its Deployment exists.
pub(crate) fn version(deployment: Option<&Value>) -> Option<String> {
    let deployment = deployment?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    let images = containers.iter().filter_map(|it| it["image"].as_str());
    let images: Vec<&str> = images.collect::<BTreeSet<_>>().into_iter().collect();
    let version = deployment["metadata"]["labels"][VERSION_LABEL].as_str();
    let (images, version) = (images.join(", "), version.unwrap_or("unknown"));
    Some(format!("{images} (version {version})"))
}

/// Returns the path of the webhook's Deployment.
pub(crate) fn webhook_deployment() -> String {
    let namespace = names::SKR_NAMESPACE;
    format!("/apis/apps/v1/namespaces/{namespace}/deployments/{WEBHOOK_DEPLOYMENT}")
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const WEBHOOK_PODS: &str = "app.kubernetes.io/name=rt-bootstrapper";
const WEBHOOK: Component = Component {
    namespace: names::SKR_NAMESPACE,
    labels: WEBHOOK_PODS,
    port: 8080,
};
const REVIEWS: &str = "rt_bootstrapper_admission_reviews_total{operation=\"create\"}";
/// Largest number of workloads that are checked at the same time on one runtime.
const AT_ONCE: usize = 4;
