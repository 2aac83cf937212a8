//! Checks whether the API server calls the webhook, by a Pod of a dry run. Metrics of the webhook cannot show it, because they also
//! count Pods of others.

use api::{Feature, names};
use serde_json::{Value, json};
use testkit::until::until;

use super::Created;
use crate::report::Outcome;
use crate::run::Context;
use crate::scenario::template;

impl Created<'_> {
    /// Checks that the API server calls the webhook for Pods of the workload: without a call, an unchanged Pod shows nothing. It waits
    /// for a new webhook, because nodes receive a new Service some time after its Pods are ready.
    pub(super) async fn is_asked(&self, context: &Context<'_>) -> Outcome {
        let own = names::WEBHOOK_CONFIGURATION;
        if !self.webhooks.ours {
            let reason = format!("MutatingWebhookConfiguration {own} does not select Pods");
            return Outcome::not_run(reason);
        }
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let pod = probe(template(self.object));
        let is_asked = || async {
            let warnings = self.cluster.warnings(&path, &pod).await?;
            let mut warnings = warnings.iter();
            anyhow::Ok(warnings.any(|it| it.contains(PROBED.name())))
        };
        if context.is_new {
            let is_reached = || async { is_asked().await.unwrap_or_default() };
            drop(until("the webhook is asked", context.options.patience, is_reached).await);
        }
        match is_asked().await {
            Ok(true) => Outcome::Passed,
            Ok(false) => {
                let expected = format!("a warning about {PROBED} for a Pod of a dry run");
                let cause = "the API server did not reach the webhook and then admits Pods unchanged, or no replica has a configuration";
                let kubectl = &self.cluster.kubectl;
                let next = format!("{kubectl} get mutatingwebhookconfigurations {own} -o yaml");
                let found = "no such warning";
                Outcome::failed(self.location("Pods"), (expected, found), (cause, next))
            }
            Err(error) => Outcome::not_run(format!("{error:#}")),
        }
    }
}

/// Returns a Pod that the webhook warns about in every configuration, because [`PROBED`] is not available, or the image is not a valid
/// reference. It has no volumes, because a template of a StatefulSet lacks some.
fn probe(template: &Value) -> Value {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("probe");
    pod["metadata"]["annotations"][PROBED.key()] = json!("true");
    pod["spec"]["volumes"] = json!([]);
    for list in ["initContainers", "containers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            container["image"] = json!("invalid.test/UPPERCASE");
            container["volumeMounts"] = json!([]);
            container["volumeDevices"] = json!([]);
        }
    }
    pod
}

/// Feature of the warning that shows a call of the webhook.
const PROBED: Feature = Feature::RegistryRewrite;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_has_the_labels_of_a_template_and_nothing_that_it_could_lack() {
        let mount = json!([{"name": "of-the-statefulset", "mountPath": "/a"}]);
        let container = json!({"name": "c", "image": "a", "volumeMounts": mount});
        let pod = probe(
            &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}),
        );
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
        let annotation = "rt-cfg.kyma-project.io/alter-img-registry";
        assert_eq!(pod["metadata"]["annotations"][annotation], "true");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], "invalid.test/UPPERCASE");
        assert_eq!(container["volumeMounts"], json!([]));
    }
}
