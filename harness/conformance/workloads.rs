//! Checks of one workload on one runtime: it is created in its own namespace, and its Pods are compared with the scenario.

mod inside;
mod pods;

use anyhow::{Result, ensure};
use api::names;
use serde_json::{Value, json};
use testkit::json::{name, text};
use testkit::matching::differences;
use testkit::until::until;

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

/// Creates a workload and checks its Pods. Returns the number of created Pods.
pub(crate) async fn check(
    context: &Context<'_>,
    cluster: &Cluster,
    (index, workload): (usize, &Workload),
    webhooks: &Webhooks,
) -> Result<usize> {
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
            return Ok(0);
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
    Ok(pods.len())
}

impl Created<'_> {
    /// Creates the objects that the workload needs, then the workload, and for a CronJob also one Job.
    async fn create(&self, context: &Context<'_>, others: &[Value]) -> Result<()> {
        let (cluster, object) = (self.cluster, self.object);
        for other in others {
            cluster.create(&self.path_of(other), other).await?;
        }
        if context.is_new && !self.workload.expect.unchanged {
            self.is_reached(context).await;
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

    /// Waits until a Pod of a dry run is as expected, because nodes receive a new Service some time after its Pods are ready. A
    /// failure is ignored here, because the check of the stored Pod reports it.
    async fn is_reached(&self, context: &Context<'_>) {
        let mut pod = template(self.object).clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("would-be");
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.namespace);
        let expected = Value::Object(self.workload.expect.pod.clone());
        let is_reached = || async {
            let found = differences(&expected, &self.cluster.create(&path, &pod).await?);
            ensure!(found.is_empty(), "{found:?}");
            Ok(())
        };
        let what = "a Pod would come out as expected";
        drop(until(what, context.options.patience, is_reached).await);
    }

    /// Checks that the stored template is unchanged, because the webhook changes only Pods.
    fn template_kept(&self, stored: &Value) -> Outcome {
        let (written, stored) = (template(self.object), template(stored));
        let mut found = differences(&written["spec"], &stored["spec"]);
        if !written["metadata"].is_null() {
            found.extend(differences(&written["metadata"], &stored["metadata"]));
        }
        if !stored["metadata"]["annotations"][names::MARKER].is_null() {
            found.push(format!("metadata.annotations: has {}", names::MARKER));
        }
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
