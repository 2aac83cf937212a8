//! Checks that the configuration document, pull Secret and ClusterTrustBundle on a cluster are those of the scenario.

use anyhow::Result;
use api::names::{CONFIG_KEY, CONFIG_MAP};
use serde_json::{Value, json};
use testkit::json::text;
use testkit::matching::all_differences;

use crate::cluster::Cluster;
use crate::model::{PullSecret, Trust};
use crate::objects::hosts;
use crate::report::Outcome;
use crate::run::Context;
use crate::runtime::BUNDLES;

/// Compares the three objects with the scenario. Returns the reason if the workloads cannot be checked.
pub(crate) async fn check(
    context: &Context<'_>,
    cluster: &Cluster,
    namespace: &str,
) -> Result<Result<(), String>> {
    let landscape = &context.scenario.landscape;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{CONFIG_MAP}");
    let found = cluster.find(&path).await?.unwrap_or_default();
    let expected = Value::Object(landscape.config.clone());
    let judged = document(cluster, namespace, &expected, &found);
    let title = "The configuration document is that of the scenario";
    context.contract(cluster, title, judged.clone());
    if let Some(secret) = &landscape.pull_secret {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{}", secret.name);
        let found = cluster.find(&path).await?;
        let outcome = pull_secret(cluster, secret, &path, found.as_ref());
        let title = "The pull Secret has credentials for the registries";
        context.contract(cluster, title, outcome);
    }
    if let Some(trust) = &landscape.trust {
        let found = cluster.find(&format!("{BUNDLES}/{}", trust.name)).await?;
        let outcome = bundle(cluster, trust, found.as_ref());
        context.contract(cluster, "The ClusterTrustBundle exists", outcome);
    }
    Ok(match judged {
        Outcome::Passed => Ok(()),
        Outcome::NotRun { reason } => Err(reason),
        Outcome::Failed(failure) => Err(failure.found),
    })
}

fn document(cluster: &Cluster, namespace: &str, expected: &Value, found: &Value) -> Outcome {
    let location = format!("ConfigMap {namespace}/{CONFIG_MAP}, key {CONFIG_KEY}");
    let get = format!("{} -n {namespace} get configmap", cluster.kubectl);
    let valid = "a valid configuration document";
    let Some(text) = found["data"][CONFIG_KEY].as_str() else {
        let cause = "the configuration was not written by KIM, the controller or a person";
        let found = "no such ConfigMap or key";
        return Outcome::failed(location, (valid, found), (cause, format!("{get}s")));
    };
    if let Err(error) = api::config::Document::parse(text) {
        let cause = "the webhook keeps the last valid document, and is not ready without one";
        let next = format!("{get} {CONFIG_MAP} -o yaml");
        let found = format!("not valid: {error}");
        return Outcome::failed(location, (valid, found), (cause, next));
    }
    let found: Value = serde_json::from_str(text).unwrap_or_default();
    let all = all_differences(expected, &found);
    if all.is_empty() {
        return Outcome::Passed;
    }
    let all = all.join("\n");
    Outcome::not_run(format!("{location} is not that of the scenario:\n{all}"))
}

fn pull_secret(
    cluster: &Cluster,
    expected: &PullSecret,
    path: &str,
    found: Option<&Value>,
) -> Outcome {
    let PullSecret { name, registries } = expected;
    let absent = "the Secret was not written, or another object has its name";
    let (found, cause) = match found.map(hosts) {
        None => ("no such Secret".to_owned(), absent),
        Some(Err(error)) => (format!("another Secret: {error}"), absent),
        Some(Ok(hosts)) if registries.iter().all(|it| hosts.contains(it)) => {
            return Outcome::Passed;
        }
        Some(Ok(hosts)) => (
            format!("credentials for {hosts:?}"),
            "the Secret has no credentials for a registry that the document rewrites to",
        ),
    };
    let expected = format!("credentials for {registries:?}");
    let get = format!("{} get secrets --all-namespaces", cluster.kubectl);
    let next = format!("{get} --field-selector metadata.name={name}");
    Outcome::failed(path, (expected, found), (cause, next))
}

fn bundle(cluster: &Cluster, expected: &Trust, found: Option<&Value>) -> Outcome {
    let found = match found.map(|it| &it["spec"]) {
        None => "no such ClusterTrustBundle, or the cluster does not serve the kind".to_owned(),
        Some(spec) => {
            let count = text(&spec["trustBundle"])
                .matches("BEGIN CERTIFICATE")
                .count();
            if spec["signerName"].as_str() == expected.signer.as_deref() && count > 0 {
                return Outcome::Passed;
            }
            format!("signer {}, {count} certificates", spec["signerName"])
        }
    };
    let location = format!("ClusterTrustBundle {}", expected.name);
    let expected = format!(
        "signer {}, at least one certificate",
        json!(expected.signer)
    );
    let cause = "the bundle was not written, or its name is not that of the document";
    let next = format!("{} get clustertrustbundles", cluster.kubectl);
    Outcome::failed(location, (expected, found), (cause, next))
}
