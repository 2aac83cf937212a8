//! Checks of KCP: its sources are those of the scenario, every runtime has copies of them, and the conditions of the controller
//! are met. The checks do not write to KCP.

use anyhow::Result;
use api::kcp::{KCP_NAMESPACE, MANAGED_BY};
use api::names;
use serde_json::{Value, json};
use testkit::json::{condition, items, name, text};

use crate::cluster::Cluster;
use crate::configuration;
use crate::model::Mode;
use crate::report::{Moment, Outcome};
use crate::run::Context;
use crate::runtime::BUNDLES;

/// Checks KCP, with the runtimes and the UIDs of their clusters.
pub(crate) async fn check(
    context: &Context<'_>,
    kcp: &Cluster,
    runtimes: &[(Cluster, String)],
) -> Result<()> {
    // The report already contains the differences. Workloads are checked with the configuration of their runtime.
    let _ = configuration::check(context, kcp, KCP_NAMESPACE).await?;
    watchers(context, kcp).await?;
    for (runtime, _) in runtimes {
        for (what, on_kcp, on_runtime) in copies(context) {
            let (source, copy) = (kcp.find(&on_kcp).await?, runtime.find(&on_runtime).await?);
            let outcome = equal(
                context.mode(),
                (kcp, &on_kcp, source.as_ref()),
                (runtime, &on_runtime, copy.as_ref()),
            );
            let title = format!("The {what} on the runtime is that of KCP");
            context.contract(runtime, &title, outcome);
        }
    }
    let names = if context.mode() == Some(Mode::Direct) {
        let all = kcp.list(BOOTSTRAPPERS).await?;
        let mut names = Vec::new();
        for (runtime, uid) in runtimes {
            let own = all.iter().find(|it| it["status"]["clusterUID"] == *uid);
            let outcome = ready(kcp, uid, own);
            context.contract(runtime, "The RuntimeBootstrapper is Ready", outcome);
            if let Some(own) = own {
                context.keep_moments(moments("RuntimeBootstrapper", own));
                names.push(name(own).to_owned());
            }
        }
        names
    } else {
        // No field on KCP identifies the cluster of a Runtime. So the Runtimes are those of this run only if there are no
        // others.
        let some = format!("{RUNTIMES}?limit={}", runtimes.len() + 1);
        let all = kcp.list(&some).await?;
        let names = all.iter().map(|it| name(it).to_owned());
        names.filter(|_| all.len() <= runtimes.len()).collect()
    };
    for name in names {
        for (kind, path) in [("Runtime", RUNTIMES), ("Kyma", KYMAS)] {
            let object = kcp.find(&format!("{path}/{name}")).await?;
            context.keep_moments(object.map_or_else(Vec::new, |it| moments(kind, &it)));
        }
    }
    Ok(())
}

/// Checks that KCP has the Watchers of the scenario. KCP may have others.
async fn watchers(context: &Context<'_>, kcp: &Cluster) -> Result<()> {
    for watcher in &context.scenario.landscape.watchers {
        let (namespace, name) = (&watcher.namespace, &watcher.name);
        let found = kcp.find(&watcher_path(namespace, name)).await?;
        let expected = json!({
            "manager": watcher.manager, "field": watcher.field, "resource": watcher.resource, "labels": watcher.labels,
        });
        let place = format!("Watcher {namespace}/{name}");
        let outcome = match found.as_ref().map(watched) {
            Some(found) if found == expected => Outcome::Passed,
            Some(found) => Outcome::not_run(format!(
                "{place} is {found}, and that of the scenario {expected}"
            )),
            None => {
                let cause = "it was not created, or KCP has it under another name";
                let next = format!("{} get watchers --all-namespaces", kcp.kubectl);
                let compared = (expected.to_string(), "no such Watcher");
                Outcome::failed(place, compared, (cause, next))
            }
        };
        let title = format!("Watcher {name} is that of the scenario");
        context.contract(kcp, &title, outcome);
    }
    Ok(())
}

/// Returns the watched objects of a Watcher and its operator, which is in the specification or in a label.
fn watched(watcher: &Value) -> Value {
    let spec = &watcher["spec"];
    let own = spec["manager"].as_str().filter(|it| !it.is_empty());
    let label = watcher["metadata"]["labels"][MANAGED_BY].as_str();
    let labels = spec["labelsToWatch"].as_object().cloned();
    json!({
        "manager": own.or(label),
        "field": spec["field"],
        "resource": spec["resourceToWatch"],
        "labels": labels.unwrap_or_default(),
    })
}

fn watcher_path(namespace: &str, name: &str) -> String {
    format!("/apis/operator.kyma-project.io/v1beta2/namespaces/{namespace}/watchers/{name}")
}

/// Returns the copied objects: a description, the path on KCP, and the path on a runtime.
fn copies(context: &Context<'_>) -> Vec<(&'static str, String, String)> {
    let landscape = &context.scenario.landscape;
    let at = |namespace: &str, rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    let both = |rest: &str| (at(KCP_NAMESPACE, rest), at(names::SKR_NAMESPACE, rest));
    let (kcp, runtime) = both(&format!("configmaps/{}", names::CONFIG_MAP));
    let mut copies = vec![("configuration document", kcp, runtime)];
    if let Some(secret) = &landscape.pull_secret {
        let (kcp, runtime) = both(&format!("secrets/{}", secret.name));
        copies.push(("pull Secret", kcp, runtime));
    }
    if let Some(trust) = &landscape.trust {
        let path = format!("{BUNDLES}/{}", trust.name);
        copies.push(("ClusterTrustBundle", path.clone(), path));
    }
    copies
}

/// Compares the contents of a source and its copy. A report has no hash of them, because the content of a Secret could be guessed
/// and compared with it.
fn equal(
    mode: Option<Mode>,
    (kcp, on_kcp, source): (&Cluster, &str, Option<&Value>),
    (runtime, on_runtime, copy): (&Cluster, &str, Option<&Value>),
) -> Outcome {
    let content = |object: &Value| ["data", "type", "spec"].map(|it| object[it].clone());
    let (source, copy) = (source.map(content), copy.map(content));
    let (expected, found) = match (&source, &copy) {
        (Some(source), Some(copy)) if source == copy => return Outcome::Passed,
        (Some(_), Some(_)) => ("the content", "other content"),
        (Some(_), None) => ("the content", "absent"),
        (None, Some(_)) => ("a source", "a copy without a source"),
        (None, None) => ("a source", "neither source nor copy"),
    };
    let expected = format!("{expected} on KCP at {on_kcp}");
    let cause = "the last change is not synchronized yet, the runtime is paused or unreachable, or a source is invalid";
    let of_mode = if mode == Some(Mode::Signal) {
        "runtimes"
    } else {
        "runtimebootstrappers"
    };
    let next = format!("{} -n {KCP_NAMESPACE} get {of_mode},events", kcp.kubectl);
    let location = format!("{}: {on_runtime}", runtime.name);
    Outcome::failed(location, (expected, found), (cause, next))
}

fn ready(kcp: &Cluster, uid: &str, own: Option<&Value>) -> Outcome {
    let ready = own.map_or(&Value::Null, |it| condition(it, "Ready"));
    if ready["status"] == "True" {
        return Outcome::Passed;
    }
    let found = match own {
        Some(_) => {
            let text = |key: &str| ready[key].as_str().unwrap_or("unknown");
            let (status, reason, message) = (text("status"), text("reason"), text("message"));
            format!("Ready is {status}, reason {reason}: {message}")
        }
        None => format!("no RuntimeBootstrapper has the cluster UID {uid}"),
    };
    let cause = match ready["reason"].as_str() {
        Some(reason) => format!("{reason}: see the table of reasons in docs/controller.md"),
        None => {
            "the runtime has no RuntimeBootstrapper, or the controller has not connected to it yet"
                .to_owned()
        }
    };
    let name = own.map_or("(none)", name);
    let location = format!("RuntimeBootstrapper {KCP_NAMESPACE}/{name}");
    let next = format!(
        "{} -n {KCP_NAMESPACE} get runtimebootstrappers",
        kcp.kubectl
    );
    Outcome::failed(location, ("condition Ready is True", found), (cause, next))
}

/// Returns the times at which an object was created and its conditions became true.
fn moments(kind: &str, object: &Value) -> Vec<Moment> {
    let moment = |time: &Value, what: &str| Moment {
        time: text(time).to_owned(),
        cluster: "kcp".to_owned(),
        what: format!("{kind} {}: {what}", name(object)),
    };
    let mut moments = vec![moment(&object["metadata"]["creationTimestamp"], "created")];
    let conditions = items(&object["status"]["conditions"]);
    let met = conditions.filter(|it| it["status"] == "True");
    moments.extend(met.map(|it| moment(&it["lastTransitionTime"], text(&it["type"]))));
    moments
}

const BOOTSTRAPPERS: &str =
    "/apis/operator.kyma-project.io/v1alpha1/namespaces/kcp-system/runtimebootstrappers";
const RUNTIMES: &str =
    "/apis/infrastructuremanager.kyma-project.io/v1/namespaces/kcp-system/runtimes";
const KYMAS: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas";

#[cfg(test)]
mod tests;
