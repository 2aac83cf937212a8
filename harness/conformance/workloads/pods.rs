//! The Pods of a workload: whether they exist, are as expected, and run.

use anyhow::{Result, ensure};
use serde_json::Value;
use testkit::json::{condition, name, text};
use testkit::matching::{changes, differences};
use testkit::until::until;

use super::Created;
use crate::causes::{of_change, of_difference, of_no_run, waiting};
use crate::readable::readable;
use crate::report::Outcome;
use crate::run::Context;
use crate::scenario::template;

impl Created<'_> {
    pub(super) async fn listed(&self) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        self.cluster.list(&path).await
    }

    /// Returns the Pods of the workload when all exist.
    pub(super) async fn pods(&self, context: &Context<'_>) -> Result<Vec<Value>> {
        let all = || async {
            let (expected, pods) = (self.expected_pods().await?, self.listed().await?);
            let count = pods.len();
            let is_all = count >= expected && expected > 0;
            ensure!(is_all, "{count} of {expected} Pods");
            Ok(pods)
        };
        Ok(until("all Pods exist", context.options.patience, all).await?)
    }

    async fn expected_pods(&self) -> Result<usize> {
        let count = |value: &Value| value.as_u64().and_then(|it| usize::try_from(it).ok());
        let replicas = count(&self.object["spec"]["replicas"]).unwrap_or(1);
        Ok(match text(&self.object["kind"]) {
            "DaemonSet" => {
                let path = format!("{}/{}", self.path_of(self.object), name(self.object));
                let stored = self.cluster.find(&path).await?.unwrap_or_default();
                count(&stored["status"]["desiredNumberScheduled"]).unwrap_or_default()
            }
            // A StatefulSet creates its second Pod only when the first one is ready.
            "StatefulSet" => replicas.min(1),
            "Deployment" | "ReplicaSet" | "ReplicationController" => replicas,
            _ => 1,
        })
    }

    pub(super) async fn no_pods(&self, error: &anyhow::Error) -> Outcome {
        let warnings = self.warnings().await;
        let found = format!("{error:#}\n{}", warnings.join("\n"));
        let cause = of_no_run(&self.seen(None, &warnings));
        Outcome::failed(self.location("Pods"), ("Pods", found.trim_end()), cause)
    }

    /// Checks that every Pod is as expected; reports the first failure.
    pub(super) fn compared(&self, pods: &[Value]) -> Outcome {
        let mut failures = pods.iter().filter_map(|it| self.difference(it));
        failures.next().unwrap_or(Outcome::Passed)
    }

    /// Returns the failure of a Pod that is not as expected.
    fn difference(&self, pod: &Value) -> Option<Outcome> {
        let location = self.location(&format!("Pod {}", name(pod)));
        let seen = self.seen(Some(pod), &[]);
        if self.workload.expect.unchanged {
            let (written, stored) = (readable(template(self.object)), readable(pod));
            let compared = (format!("unchanged: {written}"), stored.to_string());
            let failed = || Outcome::failed(location, compared, of_change(&seen));
            return (!is_unchanged(&written, &stored)).then(failed);
        }
        let expected = Value::Object(self.workload.expect.pod.clone());
        let found = differences(&expected, pod);
        let compared = (expected.to_string(), found.join("\n"));
        let failed = || Outcome::failed(location, compared, of_difference(&seen, &found));
        (!found.is_empty()).then(failed)
    }

    /// Checks that all containers of at least `count` Pods run.
    pub(super) async fn run(&self, context: &Context<'_>, count: usize) -> Outcome {
        let all = until("all containers run", context.options.patience, || async {
            let pods = self.listed().await?;
            let late = pods.iter().find(|it| !runs(it));
            let is_all = pods.len() >= count && late.is_none();
            ensure!(is_all, "{}", late.map(state).unwrap_or_default());
            Ok(())
        });
        let Err(error) = all.await else {
            return Outcome::Passed;
        };
        let pods = self.listed().await.unwrap_or_default();
        let warnings = self.warnings().await;
        let late = pods.iter().find(|it| !runs(it));
        let cause = of_no_run(&self.seen(late, &warnings));
        let expected = "every container runs and is ready, or has ended successfully";
        let found = match late {
            Some(pod) => format!("{}\n{}", state(pod), warnings.join("\n")),
            None => error.to_string(),
        };
        Outcome::failed(self.location("Pods"), (expected, found), cause)
    }

    /// Returns the messages of Warning Events, in which controllers and the kubelet report errors.
    async fn warnings(&self) -> Vec<String> {
        let path = format!("/api/v1/namespaces/{}/events", self.namespace);
        let events = self.cluster.list(&path).await.unwrap_or_default();
        let warnings = events.iter().filter(|it| it["type"] == "Warning");
        let shown = |it: &Value| format!("{}: {}", text(&it["reason"]), text(&it["message"]));
        let mut texts: Vec<String> = warnings.map(shown).collect();
        texts.sort();
        texts.dedup();
        texts.truncate(MOST_WARNINGS);
        texts
    }
}

/// Compares a readable template and a readable Pod. The API server adds defaults to volumes and variables, and no annotation.
fn is_unchanged(written: &Value, stored: &Value) -> bool {
    written["metadata"] == stored["metadata"]
        && changes(&written["spec"], &stored["spec"]).is_empty()
}

/// Whether all containers run and are ready, or have ended successfully.
fn runs(pod: &Value) -> bool {
    let is_ready = condition(pod, "Ready")["status"] == "True";
    match text(&pod["status"]["phase"]) {
        "Succeeded" => true,
        phase => phase == "Running" && is_ready,
    }
}

/// Returns the phase of a Pod, and reason and message of the first container that waits because of an error.
fn state(pod: &Value) -> String {
    let phase = pod["status"]["phase"].as_str().unwrap_or("no phase");
    let (reason, message) = waiting(pod).unwrap_or_default();
    let state = format!("Pod {} is {phase} {reason} {message}", name(pod));
    state.trim_end().to_owned()
}

/// Largest number of Warnings in a report.
const MOST_WARNINGS: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[rstest::rstest]
    #[case::default_of_a_volume("/spec/volumes/0/configMap/defaultMode", json!(420), true)]
    #[case::default_of_a_variable("/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion", json!("v1"), true)]
    #[case::marker("/metadata/annotations", json!({ "a": "b" }), false)]
    #[case::pull_secret("/spec/imagePullSecrets", json!([{ "name": "s" }]), false)]
    #[case::volume("/spec/volumes/1", json!({ "name": "w" }), false)]
    #[case::image("/spec/containers/0/image", json!("other"), false)]
    fn unchanged_pod_may_have_defaults(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] is_same: bool,
    ) {
        let variable = json!({ "name": "V", "valueFrom": { "fieldRef": { "fieldPath": "f" } } });
        let empty = json!({ "name": "E", "value": "" });
        let written = json!({ "metadata": {}, "spec": {
            "volumes": [{ "name": "v", "configMap": { "name": "c" } }],
            "containers": [{ "name": "c", "image": "i", "env": [variable, empty] }],
        } });
        let mut stored = written.clone();
        // The API server stores no empty value.
        stored["spec"]["containers"][0]["env"][1] = json!({ "name": "E" });
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match stored.pointer_mut(parent).unwrap() {
            Value::Array(items) => items.push(value),
            parent => parent[key] = value,
        }
        assert_eq!(is_unchanged(&written, &stored), is_same);
    }
}
