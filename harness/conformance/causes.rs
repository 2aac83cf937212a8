//! The likely cause of a failed check and the next command, derived from data of the cluster.
//!
//! The functions are pure: the checks collect the data, and this module evaluates it. A cause is a guess. If there is no
//! evidence, the text states that the cause is not known.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::json::{items, text};

use api::kcp::WEBHOOK_DEPLOYMENT;
use api::names;

use crate::model::Namespace;
use crate::run::LABEL;

/// Data of the cluster about a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// Command line of `kubectl` for the cluster.
    pub(crate) kubectl: &'a str,
    /// Manifest of the workload as a shell argument, see [`crate::Scenario::manifest_argument`].
    pub(crate) manifest: &'a str,
    /// Labels and annotations of the workload's namespace.
    pub(crate) namespace: &'a Namespace,
    /// The Pod, if it exists.
    pub(crate) pod: Option<&'a Value>,
    /// Messages of the Events of type Warning in the namespace.
    pub(crate) warnings: &'a [String],
    /// Mutating webhooks for Pods.
    pub(crate) webhooks: &'a Webhooks,
}

/// The mutating webhook configurations that the API server calls for new Pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Webhooks {
    /// Whether the product's configuration is among them.
    pub(crate) ours: bool,
    /// Names of the other configurations.
    pub(crate) others: Vec<String>,
}

/// A likely cause and the next command.
pub(crate) type Cause = (String, String);

impl Webhooks {
    pub(crate) fn of(configurations: &[Value]) -> Self {
        let mut found = Self::default();
        for configuration in configurations.iter().filter(|it| gets_pods(it)) {
            match configuration["metadata"]["name"].as_str() {
                Some(names::WEBHOOK_CONFIGURATION) => found.ours = true,
                name => found.others.extend(name.map(str::to_owned)),
            }
        }
        found
    }
}

/// Whether a webhook of the configuration is called for new Pods.
fn gets_pods(configuration: &Value) -> bool {
    let has = |list: &Value, names: &[&str]| {
        items(list)
            .filter_map(Value::as_str)
            .any(|it| it == "*" || names.contains(&it))
    };
    let mut rules = items(&configuration["webhooks"]).flat_map(|it| items(&it["rules"]));
    rules.any(|rule| {
        has(&rule["operations"], &["CREATE"])
            && has(&rule["apiGroups"], &[""])
            && has(&rule["resources"], &["pods", "*/*"])
    })
}

/// Whether the product's webhook changed the Pod.
fn has_marker(pod: &Value) -> bool {
    pod["metadata"]["annotations"][names::MARKER] == "true"
}

/// Returns the cause if a Pod is not as expected.
pub(crate) fn of_difference(seen: &Seen<'_>, differences: &[String]) -> Cause {
    let (kubectl, namespace) = (seen.kubectl, names::SKR_NAMESPACE);
    let (is_ours, others) = (seen.webhooks.ours, &seen.webhooks.others);
    let is_changed = seen.pod.is_some_and(has_marker);
    let registered = format!("{kubectl} get mutatingwebhookconfigurations");
    let registered_others = format!("{registered} {} -o yaml", others.join(" "));
    if !is_ours && others.is_empty() {
        let cause = "no webhook is registered for Pods, so none was asked";
        return (cause.to_owned(), registered);
    }
    let of_bundle = ["clusterTrustBundle", "olumes", "volumeMounts"];
    let is_of_bundle = |it: &String| of_bundle.iter().any(|word| it.contains(word));
    if differences.iter().any(is_of_bundle) && is_changed {
        let cause = "the webhook mounts a ClusterTrustBundle only if it exists under the name of the configuration document";
        let next = format!("{kubectl} get clustertrustbundles");
        return (cause.to_owned(), next);
    }
    if is_changed && !others.is_empty() {
        let cause = "the Pod was changed by our webhook, and by another one that gets Pods as well";
        return (format!("{cause}: {others:?}"), registered_others);
    }
    if is_changed {
        let cause = "the webhook changed the Pod, but decided otherwise: the document or the annotations do not ask for it";
        let document = configuration_of(kubectl);
        let preview = "runtime-bootstrapper preview --config /dev/stdin";
        let next = format!("{document} | {preview} {}", seen.manifest);
        return (cause.to_owned(), next);
    }
    if is_ours {
        let cause = "the webhook did not change the Pod: it was not reached (the API server then admits the Pod unchanged), or nothing opts in";
        let logs = format!("logs deployment/{WEBHOOK_DEPLOYMENT} --tail=50");
        return (cause.to_owned(), format!("{kubectl} -n {namespace} {logs}"));
    }
    let cause = format!("none of the webhooks that get Pods made this change: {others:?}");
    (cause, registered_others)
}

/// Returns the command that shows the configuration document.
fn configuration_of(kubectl: &str) -> String {
    let (namespace, name) = (names::SKR_NAMESPACE, names::CONFIG_MAP);
    format!("{kubectl} -n {namespace} get configmap {name} -o yaml")
}

/// Returns the cause if a Pod was changed that must stay unchanged.
pub(crate) fn of_change(seen: &Seen<'_>) -> Cause {
    let kubectl = seen.kubectl;
    if seen.pod.is_some_and(has_marker) {
        let cause = "the configuration document, the Namespace or the Pod opts in";
        return (cause.to_owned(), configuration_of(kubectl));
    }
    let others = &seen.webhooks.others;
    let cause = "another mutating webhook or the ServiceAccount changed it; webhooks that get Pods";
    let next = format!("{kubectl} get mutatingwebhookconfigurations");
    (format!("{cause}: {others:?}"), next)
}

/// Returns the cause if a workload has no Pod, or if its Pod does not run.
pub(crate) fn of_no_run(seen: &Seen<'_>) -> Cause {
    let kubectl = seen.kubectl;
    let warnings = seen.warnings.join("\n");
    let pod = seen.pod.unwrap_or(&Value::Null);
    if let Some((reason, message)) = waiting(pod) {
        let text = format!("{message} {warnings}").to_lowercase();
        if reason.contains("Image") {
            return (format!("{} ({reason})", of_pull(&text)), pull(kubectl, pod));
        }
        let cause = format!("a container cannot be started ({reason})");
        return (cause, again(seen, "describe pods"));
    }
    if warnings.contains("clustertrustbundle") || warnings.contains("ClusterTrustBundle") {
        let cause = "the node cannot mount the ClusterTrustBundle: it is absent, or its kubelet does not project bundles";
        let next = format!("{kubectl} get clustertrustbundles");
        return (cause.to_owned(), next);
    }
    if let Some(message) = unschedulable(pod) {
        let cause = format!("no node takes the Pod: {message}");
        return (cause, format!("{kubectl} describe nodes"));
    }
    if seen.pod.is_none() && !warnings.is_empty() {
        let cause = "the API server rejects the Pods of the workload";
        return (cause.to_owned(), again(seen, EVENTS));
    }
    let cause = "not known: the Pod shows no reason".to_owned();
    (cause, again(seen, EVENTS))
}

/// Returns commands that create the workload in a new namespace and run `look` after half a minute, because the namespace of
/// the run is already removed. The new namespace has the label of runs, so that the command that removes theirs also removes
/// it.
fn again(seen: &Seen<'_>, look: &str) -> String {
    let kubectl = seen.kubectl;
    let set = |verb: &str, pairs: &BTreeMap<String, String>| {
        let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
        let pairs = pairs.map(|it| format!(" '{}'", it.replace('\'', r"'\''")));
        let pairs: String = pairs.collect();
        format!("{kubectl} {verb} namespace {AGAIN}{pairs}")
    };
    let mut labels = seen.namespace.labels.clone();
    labels.insert(LABEL.to_owned(), "again".to_owned());
    let mut commands = vec![
        // Removes the namespace of an earlier command, and waits for the end of the deletion.
        format!("{kubectl} delete namespace {AGAIN} --ignore-not-found"),
        format!("{kubectl} create namespace {AGAIN}"),
        set("label", &labels),
    ];
    if !seen.namespace.annotations.is_empty() {
        commands.push(set("annotate", &seen.namespace.annotations));
    }
    commands.push(format!("{kubectl} -n {AGAIN} apply -f {}", seen.manifest));
    commands.push("sleep 30".to_owned());
    commands.push(format!("{kubectl} -n {AGAIN} {look}"));
    commands.join(" && ")
}

/// Returns the cause of a failed pull, from the message of the container runtime in lower case.
fn of_pull(text: &str) -> &'static str {
    let causes = [
        (
            &["x509", "certificate"][..],
            "the node does not trust the certificate of the registry",
        ),
        (
            &[
                "unauthorized",
                "401",
                "403",
                "denied",
                "no basic auth",
                "authoriz",
            ],
            "the registry rejects the credentials, or the Pod has none",
        ),
        (
            &["no such host", "dial tcp", "timeout", "refused", "i/o"],
            "the node cannot reach the registry",
        ),
        (
            &["not found", "manifest unknown", "404"],
            "the registry does not have this image",
        ),
    ];
    let mut causes = causes.into_iter();
    let found = causes.find(|(words, _)| words.iter().any(|it| text.contains(it)));
    found.map_or("the node cannot pull the image", |(_, cause)| cause)
}

/// Returns a command that runs a Pod with the image of the waiting container and the same pull Secrets, in the namespace with
/// the landscape's pull Secret.
fn pull(kubectl: &str, pod: &Value) -> String {
    let image = waiting_container(pod).map_or("", |it| text(&it["image"]));
    let overrides = json!({ "spec": { "imagePullSecrets": pod["spec"]["imagePullSecrets"] } });
    let run = format!("run pull --rm --attach --restart=Never --image={image}");
    let namespace = names::SKR_NAMESPACE;
    format!("{kubectl} -n {namespace} {run} --overrides='{overrides}'")
}

/// Returns reason and message of the first container that waits because of an error.
pub(crate) fn waiting(pod: &Value) -> Option<(&str, &str)> {
    let waiting = &waiting_container(pod)?["state"]["waiting"];
    Some((text(&waiting["reason"]), text(&waiting["message"])))
}

/// Returns the status of the first container that waits because of an error.
fn waiting_container(pod: &Value) -> Option<&Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut containers = lists.iter().flat_map(|it| items(&pod["status"][*it]));
    containers.find(|it| {
        let reason = it["state"]["waiting"]["reason"].as_str();
        // These reasons are not errors: the Pod is starting.
        let on_its_way = ["", "ContainerCreating", "PodInitializing"];
        reason.is_some_and(|it| !on_its_way.contains(&it))
    })
}

fn unschedulable(pod: &Value) -> Option<&str> {
    let mut conditions = items(&pod["status"]["conditions"]);
    conditions.find(|it| it["reason"] == "Unschedulable")?["message"].as_str()
}

/// Name of a namespace that the landscape owner creates.
const AGAIN: &str = "conformance-again";
const EVENTS: &str = "get events --sort-by=.lastTimestamp";

#[cfg(test)]
mod tests;
