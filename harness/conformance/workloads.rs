//! Checks of one workload on one runtime: it is created in a namespace of its own, and its Pods are compared with the scenario.

use anyhow::{Result, ensure};
use api::names;
use serde_json::{Map, Value, json};
use testkit::matching::differences;
use testkit::until::until;

use crate::causes::{Seen, Webhooks, of_change, of_difference, of_no_run, waiting};
use crate::cluster::Cluster;
use crate::model::{Expectation, Inside, Workload};
use crate::report::{Failure, Family, Outcome, PodReport};
use crate::requests::collection;
use crate::run::Context;
use crate::runtime::BUNDLES;
use crate::scenario::{template, template_path};

/// A workload that was created.
struct Created<'a> {
    cluster: &'a Cluster,
    namespace: String,
    workload: &'a Workload,
    /// The manifest as an argument of a command.
    manifest: String,
    object: &'a Value,
    webhooks: &'a Webhooks,
}

/// Creates a workload and checks its Pods. Gives the number of Pods that were created.
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
            context.record(cluster, &title, Family::Contract, outcome);
            return Ok(0);
        }
    };
    context.record(cluster, &title, Family::Contract, created.compared(&pods));
    if let Some(pod) = pods.first() {
        let kind = manifest.object["kind"].as_str().unwrap_or_default();
        context.keep_pod(PodReport {
            cluster: cluster.name.clone(),
            workload: name.to_owned(),
            kind: kind.to_owned(),
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
    /// Creates what the workload needs, then the workload, and of a CronJob one Job.
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
            context.record(cluster, &title, Family::Contract, outcome);
        }
        if object["kind"] == "CronJob" {
            let job = job_of(object);
            cluster.create(&self.path_of(&job), &job).await?;
        }
        Ok(())
    }

    /// Whether the Pods run, and what is seen inside of the first one.
    async fn check_running(&self, context: &Context<'_>, count: usize) -> Result<()> {
        let (cluster, name) = (self.cluster, self.workload.shown());
        let ran = self.run(context, count).await;
        let is_running = ran == Outcome::Passed;
        let title = format!("Pods of {name} run");
        context.record(cluster, &title, Family::Contract, ran);
        if is_running && self.workload.expect.inside != Inside::default() {
            let outcome = self.inside(context).await?;
            let title = format!("A container of {name} sees variables and certificates");
            context.record(cluster, &title, Family::Contract, outcome);
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

    /// Waits until a Pod that is not stored comes out as expected: the nodes learn of a new Service some time after its Pods are
    /// ready. What does not come about is reported of the stored Pod.
    async fn is_reached(&self, context: &Context<'_>) {
        let mut pod = template(self.object).clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!("would-be");
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", self.namespace);
        let expected = Value::Object(self.workload.expect.pod.clone());
        let reached = until(
            "a Pod would come out as expected",
            context.options.patience,
            || async {
                let found = differences(&expected, &self.cluster.create(&path, &pod).await?);
                ensure!(found.is_empty(), "{found:?}");
                Ok(())
            },
        );
        drop(reached.await);
    }

    /// The webhook changes Pods, and never the objects that make them.
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
        Outcome::Failed(Box::new(Failure {
            expected: "the template of the manifest".to_owned(),
            found: found.join("\n"),
            location: self.location("template"),
            cause: format!("a webhook changes {} objects", self.object["kind"]),
            next: format!(
                "{} get mutatingwebhookconfigurations -o yaml",
                self.cluster.kubectl
            ),
        }))
    }

    fn location(&self, what: &str) -> String {
        let (name, kind) = (&self.object["metadata"]["name"], &self.object["kind"]);
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        format!(
            "{}: {what} of {} {}",
            self.cluster.name,
            text(kind),
            text(name)
        )
    }

    async fn listed(&self) -> Result<Vec<Value>> {
        self.cluster
            .list(&format!("/api/v1/namespaces/{}/pods", self.namespace))
            .await
    }

    /// Its Pods, when all exist.
    async fn pods(&self, context: &Context<'_>) -> Result<Vec<Value>> {
        let pods = until("all Pods exist", context.options.patience, || async {
            let expected = self.expected_pods().await?;
            let pods = self.listed().await?;
            ensure!(
                pods.len() >= expected && expected > 0,
                "{} of {expected} Pods",
                pods.len()
            );
            Ok(pods)
        });
        Ok(pods.await?)
    }

    async fn expected_pods(&self) -> Result<usize> {
        let spec = &self.object["spec"];
        let count = |value: &Value| value.as_u64().and_then(|it| usize::try_from(it).ok());
        Ok(match self.object["kind"].as_str().unwrap_or_default() {
            "DaemonSet" => {
                let name = self.object["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{}/{name}", self.path_of(self.object));
                let stored = self.cluster.find(&path).await?.unwrap_or_default();
                count(&stored["status"]["desiredNumberScheduled"]).unwrap_or_default()
            }
            "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
                // A StatefulSet makes its second Pod when the first one is ready.
                let is_ordered = self.object["kind"] == "StatefulSet";
                let replicas = count(&spec["replicas"]).unwrap_or(1);
                if is_ordered {
                    replicas.min(1)
                } else {
                    replicas
                }
            }
            _ => 1,
        })
    }

    async fn no_pods(&self, error: &anyhow::Error) -> Outcome {
        let warnings = self.warnings().await;
        let (cause, next) = of_no_run(&self.seen(None, &warnings));
        Outcome::Failed(Box::new(Failure {
            expected: "Pods".to_owned(),
            found: format!("{error:#}\n{}", warnings.join("\n"))
                .trim_end()
                .to_owned(),
            location: self.location("Pods"),
            cause,
            next,
        }))
    }

    /// Whether every Pod is as expected; the first one that is not is reported.
    fn compared(&self, pods: &[Value]) -> Outcome {
        let Expectation {
            unchanged,
            pod: expected,
            ..
        } = &self.workload.expect;
        for pod in pods {
            let location = self.location(&format!(
                "Pod {}",
                pod["metadata"]["name"].as_str().unwrap_or_default()
            ));
            if *unchanged {
                let (written, stored) = (readable(template(self.object)), readable(pod));
                if written == stored {
                    continue;
                }
                let (cause, next) = of_change(&self.seen(Some(pod), &[]));
                return Outcome::Failed(Box::new(Failure {
                    expected: format!("unchanged: {written}"),
                    found: stored.to_string(),
                    location,
                    cause,
                    next,
                }));
            }
            let expected = Value::Object(expected.clone());
            let found = differences(&expected, pod);
            if !found.is_empty() {
                let (cause, next) = of_difference(&self.seen(Some(pod), &[]), &found);
                return Outcome::Failed(Box::new(Failure {
                    expected: expected.to_string(),
                    found: found.join("\n"),
                    location,
                    cause,
                    next,
                }));
            }
        }
        Outcome::Passed
    }

    async fn run(&self, context: &Context<'_>, count: usize) -> Outcome {
        let all = until("all containers run", context.options.patience, || async {
            let pods = self.listed().await?;
            let late = pods.iter().find(|it| !runs(it));
            ensure!(
                pods.len() >= count && late.is_none(),
                "{}",
                late.map(state).unwrap_or_default()
            );
            Ok(())
        });
        let Err(error) = all.await else {
            return Outcome::Passed;
        };
        let pods = self.listed().await.unwrap_or_default();
        let warnings = self.warnings().await;
        let pod = pods.iter().find(|it| !runs(it));
        let (cause, next) = of_no_run(&self.seen(pod, &warnings));
        Outcome::Failed(Box::new(Failure {
            expected: "every container runs and is ready, or has ended successfully".to_owned(),
            found: pod.map_or_else(
                || error.to_string(),
                |it| format!("{}\n{}", state(it), warnings.join("\n")),
            ),
            location: self.location("Pods"),
            cause,
            next,
        }))
    }

    /// Messages of Warnings, which is where controllers and the kubelet say why something did not work.
    async fn warnings(&self) -> Vec<String> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let events = self.cluster.list(&path).await.unwrap_or_default();
        let warnings = events.iter().filter(|it| it["type"] == "Warning");
        let texts = warnings.map(|it| {
            let text = |key: &str| it[key].as_str().unwrap_or_default();
            format!("{}: {}", text("reason"), text("message"))
        });
        let mut texts: Vec<String> = texts.collect();
        texts.sort();
        texts.dedup();
        texts.truncate(MOST_WARNINGS);
        texts
    }

    /// What the first container of the first Pod that still runs sees.
    async fn inside(&self, context: &Context<'_>) -> Result<Outcome> {
        let pods = self.listed().await?;
        let running = pods.iter().find(|it| it["status"]["phase"] == "Running");
        let Some(pod) = running.and_then(|it| it["metadata"]["name"].as_str()) else {
            return Ok(Outcome::NotRun {
                reason: "no Pod runs any more".to_owned(),
            });
        };
        let inside = &self.workload.expect.inside;
        let mut wrong = Vec::new();
        for (name, value) in &inside.variables {
            match self
                .cluster
                .exec(&self.namespace, pod, &["printenv", name])
                .await
            {
                Ok(printed) if printed.trim_end() == value => {}
                Ok(printed) => wrong.push(format!(
                    "{name} is {:?}, expected {value:?}",
                    printed.trim_end()
                )),
                Err(error) => wrong.push(format!("{name}: {error:#}")),
            }
        }
        if let (Some(file), Some(trust)) = (&inside.trust, &context.scenario.landscape.trust) {
            let bundle = self
                .cluster
                .find(&format!("{BUNDLES}/{}", trust.name))
                .await?
                .unwrap_or_default();
            let expected = certificates(bundle["spec"]["trustBundle"].as_str().unwrap_or_default());
            match self
                .cluster
                .exec(&self.namespace, pod, &["cat", file])
                .await
            {
                Ok(printed) if certificates(&printed) == expected => {}
                Ok(printed) => wrong.push(format!(
                    "{file} has {} certificates, and not exactly the {} of ClusterTrustBundle {}",
                    certificates(&printed).len(),
                    expected.len(),
                    trust.name
                )),
                Err(error) => wrong.push(format!("{file}: {error:#}")),
            }
        }
        if wrong.is_empty() {
            return Ok(Outcome::Passed);
        }
        Ok(Outcome::Failed(Box::new(Failure {
            expected: inside_expected(inside),
            found: wrong.join("\n"),
            location: self.location(&format!("first container of Pod {pod}")),
            cause: "the image sets the variable or hides the file itself, lacks printenv or cat, or a bundle changed seconds ago".to_owned(),
            next: format!("{} get clustertrustbundles -o yaml", self.cluster.kubectl),
        })))
    }
}

fn inside_expected(inside: &Inside) -> String {
    let variables = inside.variables.iter();
    let mut texts: Vec<String> = variables
        .map(|(name, value)| format!("variable {name} is {value:?}"))
        .collect();
    let files = inside.trust.iter();
    texts.extend(files.map(|file| format!("{file} has the certificates of the bundle")));
    texts.join(", ")
}

/// The Job that a CronJob would make next.
pub(crate) fn job_of(cron_job: &Value) -> Value {
    let name = cron_job["metadata"]["name"].as_str().unwrap_or_default();
    let mut job = cron_job["spec"]["jobTemplate"].clone();
    job["apiVersion"] = json!("batch/v1");
    job["kind"] = json!("Job");
    job["metadata"]["name"] = json!(format!("{name}-now"));
    job
}

/// Whether all containers run and are ready, or have ended successfully.
fn runs(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["status"]["phase"] == "Succeeded"
        || (pod["status"]["phase"] == "Running"
            && conditions.any(|it| it["type"] == "Ready" && it["status"] == "True"))
}

/// Phase of a Pod and what its first waiting container waits for.
fn state(pod: &Value) -> String {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let phase = pod["status"]["phase"].as_str().unwrap_or("no phase");
    let (reason, message) = waiting(pod).unwrap_or_default();
    format!("Pod {name} is {phase} {reason} {message}")
        .trim_end()
        .to_owned()
}

/// The certificates of a PEM text, without line breaks; sorted, as the kubelet changes the order of a bundle on purpose.
fn certificates(pem: &str) -> Vec<String> {
    let blocks = pem.split("-----BEGIN CERTIFICATE-----").skip(1);
    let mut certificates: Vec<String> = blocks.map(|it| it.split_whitespace().collect()).collect();
    certificates.sort();
    certificates.dedup();
    certificates
}

/// The fields of a Pod or template that a workload's owner writes and the webhook changes, without what every Pod gets.
pub fn readable(pod: &Value) -> Value {
    let spec = &pod["spec"];
    let mut shown = fields(spec, &["imagePullSecrets", "volumes"]);
    for list in ["initContainers", "containers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        let keys = ["name", "image", "env", "volumeMounts"];
        let containers: Vec<_> = containers.map(|it| fields(it, &keys)).collect();
        if !containers.is_empty() {
            shown.insert(list.to_owned(), json!(containers));
        }
    }
    json!({ "metadata": fields(&pod["metadata"], &["annotations"]), "spec": shown })
}

/// The fields of `keys` that are set, without the token of the ServiceAccount, which the API server adds to every Pod.
fn fields(object: &Value, keys: &[&str]) -> Map<String, Value> {
    let is_token = |item: &Value| {
        let name = item["name"].as_str();
        name.is_some_and(|name| name.starts_with("kube-api-access-"))
    };
    let mut fields = Map::new();
    for key in keys {
        let mut value = object.get(*key).cloned().unwrap_or_default();
        if let Some(items) = value.as_array_mut() {
            items.retain(|item| !is_token(item));
        }
        if ![Value::Null, json!([]), json!({})].contains(&value) {
            fields.insert((*key).to_owned(), value);
        }
    }
    fields
}

/// Warnings that a report has.
const MOST_WARNINGS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readable_pod_has_written_fields_without_the_token() {
        let token = json!({ "name": "kube-api-access-x", "mountPath": "/t" });
        let mount = json!({ "name": "v", "mountPath": "/v" });
        let container = json!({
            "name": "c", "image": "i", "terminationMessagePath": "/x", "volumeMounts": [token, mount],
        });
        let pod = json!({
            "metadata": { "name": "p", "uid": "1", "annotations": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [container], "volumes": [token] },
        });
        let expected = json!({
            "metadata": { "annotations": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i", "volumeMounts": [mount] }] },
        });
        assert_eq!(readable(&pod), expected);
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
