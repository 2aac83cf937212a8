//! Checks of one workload on one runtime: it is created in its own namespace, and its Pods are compared with the scenario.

mod asked;
mod inside;
mod pods;

use anyhow::Result;
use serde_json::{Value, json};
use testkit::json::{name, text};
use testkit::matching::{all_differences, changes};

use crate::causes::{Seen, Webhooks};
use crate::cluster::Cluster;
use crate::model::{Inside, Workload};
use crate::readable::readable;
use crate::report::{Outcome, PodReport};
use crate::requests::collection;
use crate::run::Context;
use crate::scenario::{template, template_path};

/// A created workload.
struct Created<'a> {
    cluster: &'a Cluster,
    namespace: String,
    workload: &'a Workload,
    /// Manifest as an argument of a command.
    manifest: String,
    object: &'a Value,
    webhooks: &'a Webhooks,
}

/// Creates a workload and checks its Pods.
pub(crate) async fn check(
    context: &Context<'_>,
    cluster: &Cluster,
    (index, workload): (usize, &Workload),
    webhooks: &Webhooks,
) -> Result<()> {
    let manifest = context.scenario.manifest(&workload.manifest)?;
    let namespace = context.namespaces.of_workload(index);
    context
        .create_namespace(cluster, &namespace, &workload.namespace)
        .await?;
    let created = Created {
        cluster,
        namespace,
        workload,
        manifest: context.scenario.manifest_argument(&workload.manifest),
        object: &manifest.object,
        webhooks,
    };
    created.create(context, &manifest.others).await?;
    let name = workload.shown();
    let title = format!("Pods of {name} come out as expected");
    let pods = match created.pods(context).await {
        Ok(pods) => pods,
        Err(error) => {
            let outcome = created.no_pods(&error).await;
            context.contract(cluster, &title, outcome);
            return Ok(());
        }
    };
    context.contract(cluster, &title, created.compared(&pods));
    if let Some(pod) = pods.first() {
        context.keep_pod(PodReport {
            cluster: cluster.name.clone(),
            workload: name.to_owned(),
            kind: text(&manifest.object["kind"]).to_owned(),
            template: readable(template(&manifest.object)),
            pod: readable(pod),
        });
    }
    if workload.expect.runs {
        created.check_running(context, pods.len()).await?;
    }
    Ok(())
}

impl Created<'_> {
    /// Creates the objects that the workload needs, then the workload, and for a CronJob also one Job.
    async fn create(&self, context: &Context<'_>, others: &[Value]) -> Result<()> {
        let (cluster, object) = (self.cluster, self.object);
        for other in others {
            cluster.create(&self.path_of(other), other).await?;
        }
        let is_contract = context.options.only_contract;
        if context.is_new || !is_contract {
            let outcome = self.is_asked(context).await;
            let title = format!("The webhook is asked for Pods of {}", self.workload.shown());
            if !is_contract {
                context.metrics(cluster, &title, outcome);
            }
        }
        let stored = cluster.create(&self.path_of(object), object).await?;
        if template_path(object) != Some("") {
            let name = self.workload.shown();
            let title = format!("The template of {name} is stored as it was written");
            let outcome = self.template_kept(&stored);
            context.contract(cluster, &title, outcome);
        }
        if object["kind"] == "CronJob" {
            let job = job_of(object);
            cluster.create(&self.path_of(&job), &job).await?;
        }
        Ok(())
    }

    /// Checks that the Pods run, and the expected variables and files inside the first one.
    async fn check_running(&self, context: &Context<'_>, count: usize) -> Result<()> {
        let (cluster, name) = (self.cluster, self.workload.shown());
        let ran = self.run(context, count).await;
        let is_running = ran == Outcome::Passed;
        let title = format!("Pods of {name} run");
        context.contract(cluster, &title, ran);
        if is_running && self.workload.expect.inside != Inside::default() {
            let outcome = self.inside(context).await?;
            let title = format!("A container of {name} sees variables and certificates");
            context.contract(cluster, &title, outcome);
        }
        Ok(())
    }

    fn path_of(&self, object: &Value) -> String {
        collection(object, &self.namespace)
    }

    fn seen<'a>(&'a self, pod: Option<&'a Value>, warnings: &'a [String]) -> Seen<'a> {
        Seen {
            kubectl: &self.cluster.kubectl,
            manifest: &self.manifest,
            namespace: &self.workload.namespace,
            pod,
            warnings,
            webhooks: self.webhooks,
        }
    }

    /// Checks that the stored template is unchanged, because the webhook changes only Pods.
    fn template_kept(&self, stored: &Value) -> Outcome {
        let found = template_changes(template(self.object), template(stored));
        if found.is_empty() {
            return Outcome::Passed;
        }
        let kubectl = &self.cluster.kubectl;
        Outcome::failed(
            self.location("template"),
            ("the template of the manifest", found.join("\n")),
            (
                format!("a webhook changes {} objects", self.object["kind"]),
                format!("{kubectl} get mutatingwebhookconfigurations -o yaml"),
            ),
        )
    }

    fn location(&self, what: &str) -> String {
        let (cluster, kind) = (&self.cluster.name, text(&self.object["kind"]));
        format!("{cluster}: {what} of {kind} {}", name(self.object))
    }
}

/// Returns the changes of a template. An API server adds defaults to its specification and controllers add labels; annotations are
/// stored as written.
fn template_changes(written: &Value, stored: &Value) -> Vec<String> {
    let annotations = |template: &Value| {
        let annotations = template["metadata"]["annotations"].as_object();
        json!({ "annotations": annotations.cloned().unwrap_or_default() })
    };
    let labels = |template: &Value| json!({ "labels": template["metadata"]["labels"] });
    let mut found = changes(&written["spec"], &stored["spec"]);
    if written["metadata"]["labels"].is_object() {
        found.extend(changes(&labels(written), &labels(stored)));
    }
    found.extend(all_differences(&annotations(written), &annotations(stored)));
    found
}

/// Returns the Job that a CronJob would create next.
fn job_of(cron_job: &Value) -> Value {
    let mut job = cron_job["spec"]["jobTemplate"].clone();
    job["apiVersion"] = json!("batch/v1");
    job["kind"] = json!("Job");
    job["metadata"]["name"] = json!(format!("{}-now", name(cron_job)));
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "/spec/containers/0";

    #[rstest::rstest]
    #[case::defaults(CONTAINER, "terminationMessagePath", json!("/x"), &[])]
    #[case::default_of_a_volume("/spec/volumes/0/configMap", "defaultMode", json!(420), &[])]
    #[case::label_of_a_controller("/metadata/labels", "job-name", json!("a"), &[])]
    #[case::image(CONTAINER, "image", json!("b"), &["containers[0].image: is \"b\", expected \"a\""])]
    #[case::variables(CONTAINER, "env", json!([1]), &["containers[0].env: is [1], expected no such field"])]
    #[case::mounts(CONTAINER, "volumeMounts", json!([1]), &["containers[0].volumeMounts: is [1], expected no such field"])]
    #[case::volumes("/spec", "volumes", json!([1, 2]), &["volumes: is [1,2], expected [{\"configMap\":{}}]"])]
    #[case::pull_secrets("/spec", "imagePullSecrets", json!([1]), &["imagePullSecrets: is [1], expected no such field"])]
    #[case::annotations("/metadata", "annotations", json!({"a": "b"}), &["annotations.a: is \"b\", expected no such field"])]
    fn template_with_more_than_defaults_is_changed(
        #[case] place: &str,
        #[case] field: &str,
        #[case] value: Value,
        #[case] found: &[&str],
    ) {
        let written = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"image": "a"}], "volumes": [{"configMap": {}}]},
        });
        let mut stored = written.clone();
        stored.pointer_mut(place).unwrap()[field] = value;
        assert_eq!(template_changes(&written, &stored), found);
    }

    #[test]
    fn cron_job_makes_a_job_of_its_template() {
        let cron_job = json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {}}}}},
        });
        let expected = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a-now"},
            "spec": {"template": {"spec": {}}},
        });
        assert_eq!(job_of(&cron_job), expected);
    }
}
