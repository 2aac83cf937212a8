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
        // Some landscapes do not permit to read metrics.
        let pages = pages(cluster, WEBHOOK).await.unwrap_or_default();
        let title = "The webhook has the version of this program";
        let own = env!("CARGO_PKG_VERSION");
        let outcome = same_version(deployment.as_ref(), &pages, own);
        context.metrics(cluster, title, outcome);
    }
    let in_place = configuration::check(context, cluster, names::SKR_NAMESPACE).await?;
    let landscape = &context.scenario.landscape;
    let workloads = landscape.workloads.iter().enumerate();
    let workloads = workloads.filter(|(_, it)| it.is_on(&cluster.name));
    match in_place {
        Ok(()) => {
            let checks = workloads.map(|it| workloads::check(context, cluster, it, &webhooks));
            let checks = futures::stream::iter(checks).buffer_unordered(AT_ONCE);
            let checked: Vec<Result<()>> = checks.collect().await;
            checked.into_iter().collect::<Result<()>>()?;
        }
        Err(reason) => {
            for (_, workload) in workloads {
                let title = format!("Pods of {} come out as expected", workload.shown());
                context.contract(cluster, &title, Outcome::not_run(&reason));
            }
        }
    }
    events::check_all(context, cluster).await
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

/// Compares the version of the webhook with that of the checks: the version in the metrics of its Pods, or that of a label, which a
/// landscape may set itself. A different version is not a failure, because the checks are for their own version.
fn same_version(deployment: Option<&Value>, pages: &[Samples], own: &str) -> Outcome {
    let infos = pages.iter().flat_map(|it| it.matching(BUILD_INFO));
    let running: BTreeSet<String> = infos
        .filter_map(|mut it| it.labels.remove("version"))
        .collect();
    let label = deployment.map(|it| it["metadata"]["labels"][VERSION_LABEL].as_str());
    let found = match label {
        _ if !running.is_empty() && running.iter().all(|it| it == own) => return Outcome::Passed,
        _ if !running.is_empty() => format!("has Pods of versions {running:?}"),
        None => "does not exist".to_owned(),
        Some(None) => format!("has no label {VERSION_LABEL}"),
        Some(Some(version)) if version == own => return Outcome::Passed,
        Some(Some(version)) => format!("has version {version}"),
    };
    let place = format!("Deployment {}/{WEBHOOK_DEPLOYMENT}", names::SKR_NAMESPACE);
    let reason = format!("{place} {found}; the checks are those of version {own}");
    Outcome::not_run(reason)
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
    let pages = pages(cluster, component).await?;
    Ok(pages.iter().map(|it| it.count(series)).sum())
}

/// Returns the metrics of the Pods of a component.
async fn pages(cluster: &Cluster, component: Component) -> Result<Vec<Samples>> {
    let (namespace, labels) = (component.namespace, component.labels);
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let all = format!("{pods}?labelSelector={labels}");
    let all = cluster.list(&all).await?;
    let is_any = !all.is_empty();
    ensure!(is_any, "no Pod with labels {labels} in {namespace}");
    let is_deleted = |it: &Value| !it["metadata"]["deletionTimestamp"].is_null();
    let mut pages = Vec::new();
    for pod in all.iter().filter(|it| !is_deleted(it)) {
        let (name, port) = (name(pod), component.port);
        let path = format!("{pods}/{name}:{port}/proxy/metrics");
        pages.push(Samples::parse(&cluster.text(&path).await?));
    }
    Ok(pages)
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
const WEBHOOK: Component = Component {
    namespace: names::SKR_NAMESPACE,
    labels: "app.kubernetes.io/name=rt-bootstrapper",
    port: 8080,
};
const BUILD_INFO: &str = "rt_bootstrapper_build_info";
/// Largest number of workloads that are checked at the same time on one runtime.
const AT_ONCE: usize = 4;
