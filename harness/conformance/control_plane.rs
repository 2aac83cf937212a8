//! Checks of KCP: its sources are those of the scenario, every runtime has copies of them, and what the controller says of them.
//! Nothing is written to KCP.

use anyhow::Result;
use api::kcp::KCP_NAMESPACE;
use api::names;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;
use crate::model::Mode;
use crate::report::{Failure, Family, Moment, Outcome};
use crate::run::Context;
use crate::runtime::{BUNDLES, configuration};

/// Checks KCP with the runtimes and the UIDs of their clusters.
pub(crate) async fn check(
    context: &Context<'_>,
    kcp: &Cluster,
    runtimes: &[(Cluster, String)],
) -> Result<()> {
    // Differences are in the report; workloads are judged by the configuration of their runtime.
    let _ = configuration(context, kcp, KCP_NAMESPACE).await?;
    for (runtime, uid) in runtimes {
        for (what, on_kcp, on_runtime) in copies(context) {
            let (source, copy) = (kcp.find(&on_kcp).await?, runtime.find(&on_runtime).await?);
            let outcome = equal(
                (kcp, &on_kcp, source.as_ref()),
                (runtime, &on_runtime, copy.as_ref()),
            );
            let title = format!("The {what} on the runtime is that of KCP");
            context.record(runtime, &title, Family::Contract, outcome);
        }
        if context
            .scenario
            .landscape
            .control_plane
            .as_ref()
            .is_some_and(|it| it.mode == Mode::Direct)
        {
            let all = kcp.list(BOOTSTRAPPERS).await?;
            let own = all.iter().find(|it| it["status"]["clusterUID"] == *uid);
            context.record(
                runtime,
                "The RuntimeBootstrapper is Ready",
                Family::Contract,
                ready(kcp, uid, own),
            );
        }
    }
    // The items of a list need not name their kind.
    for (kind, path) in [
        ("Runtime", RUNTIMES),
        ("RuntimeBootstrapper", BOOTSTRAPPERS),
        ("Kyma", KYMAS),
    ] {
        for object in kcp.list(path).await.unwrap_or_default() {
            context.keep_moments(moments(kind, &object));
        }
    }
    Ok(())
}

/// What is copied: a word, the path on KCP, the path on a runtime.
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

/// Compares contents by their hashes, which is all that a report gets of a Secret.
fn equal(
    (kcp, on_kcp, source): (&Cluster, &str, Option<&Value>),
    (runtime, on_runtime, copy): (&Cluster, &str, Option<&Value>),
) -> Outcome {
    let content = |object: &Value| {
        let data = [&object["data"], &object["type"], &object["spec"]]
            .map(Value::to_string)
            .concat();
        format!("{:x}", Sha256::digest(data))[..12].to_owned()
    };
    let shown = |object: Option<&Value>| {
        object.map_or_else(
            || "absent".to_owned(),
            |it| format!("content with hash {}", content(it)),
        )
    };
    if source.map(content) == copy.map(content) && source.is_some() {
        return Outcome::Passed;
    }
    Outcome::Failed(Box::new(Failure {
        expected: format!("{}, as on KCP at {on_kcp}", shown(source)),
        found: shown(copy),
        location: format!("{}: {on_runtime}", runtime.name),
        cause: "the last change is not synchronized yet, the runtime is paused or unreachable, or a source is invalid".to_owned(),
        next: format!(
            "{} -n {KCP_NAMESPACE} get runtimebootstrappers,events",
            kcp.kubectl
        ),
    }))
}

fn ready(kcp: &Cluster, uid: &str, own: Option<&Value>) -> Outcome {
    let conditions = own.map(|it| {
        it["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    });
    let found = match &conditions {
        None => format!("no RuntimeBootstrapper has the cluster UID {uid}"),
        Some(conditions) => {
            let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
            if conditions.iter().any(is_ready) {
                return Outcome::Passed;
            }
            let ready = conditions.iter().find(|it| it["type"] == "Ready");
            let text = |key: &str| ready.and_then(|it| it[key].as_str()).unwrap_or("unknown");
            format!(
                "Ready is {}, reason {}: {}",
                text("status"),
                text("reason"),
                text("message")
            )
        }
    };
    let name = own.and_then(|it| it["metadata"]["name"].as_str());
    Outcome::Failed(Box::new(Failure {
        expected: "condition Ready is True".to_owned(),
        found,
        location: format!(
            "RuntimeBootstrapper {KCP_NAMESPACE}/{}",
            name.unwrap_or("(none)")
        ),
        cause: "docs/controller.md has a table of reasons and what to do".to_owned(),
        next: format!(
            "{} -n {KCP_NAMESPACE} get runtimebootstrappers",
            kcp.kubectl
        ),
    }))
}

/// When an object of the flow was created, and when its conditions became true.
fn moments(kind: &str, object: &Value) -> Vec<Moment> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&object["metadata"]["name"]);
    let moment = |time: &Value, what: &str| Moment {
        time: text(time),
        cluster: "kcp".to_owned(),
        what: format!("{kind} {name}: {what}"),
    };
    let mut moments = vec![moment(&object["metadata"]["creationTimestamp"], "created")];
    let conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let met = conditions.filter(|it| it["status"] == "True");
    moments.extend(met.map(|it| moment(&it["lastTransitionTime"], &text(&it["type"]))));
    moments
}

pub(crate) const BOOTSTRAPPERS: &str =
    "/apis/operator.kyma-project.io/v1alpha1/namespaces/kcp-system/runtimebootstrappers";
const RUNTIMES: &str =
    "/apis/infrastructuremanager.kyma-project.io/v1/namespaces/kcp-system/runtimes";
const KYMAS: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system/kymas";

#[cfg(test)]
mod tests;
