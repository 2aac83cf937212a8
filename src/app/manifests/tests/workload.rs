//! Tests of the Deployment and its related objects.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;

use super::{object, pods};

const NAME: &str = "rt-bootstrapper-controller-manager";

fn deployment() -> DeploymentSpec {
    let deployment: Deployment = object("Deployment", NAME);
    deployment.spec
}

fn pod() -> PodSpec {
    deployment().template.spec.unwrap()
}

fn container() -> Container {
    pods::container(pod())
}

#[test]
fn the_pod_is_restricted() {
    pods::assert_restricted(pod());
    assert_eq!(pod().volumes, None);
}

#[test]
fn there_is_always_one_that_answers() {
    let spec = deployment();
    assert_eq!(spec.replicas, Some(2));
    assert_eq!(spec.paused, Some(false));
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)));
    assert_eq!(rolling.max_surge, Some(IntOrString::Int(1)));
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    let pod = spec.template.spec.unwrap();
    let budget: PodDisruptionBudget = object("PodDisruptionBudget", NAME);
    let budget = budget.spec.unwrap();
    assert_eq!(budget.min_available, Some(IntOrString::Int(1)));
    let mut selectors = vec![spec.selector, budget.selector.unwrap()];
    let spread = pod.topology_spread_constraints.unwrap();
    assert_eq!(spread.len(), 2);
    selectors.extend(spread.into_iter().map(|it| it.label_selector.unwrap()));
    for selector in selectors {
        let wanted = selector.match_labels.unwrap();
        assert!(!wanted.is_empty());
        assert!(
            wanted
                .iter()
                .all(|(key, value)| labels.get(key) == Some(value))
        );
    }
    assert_eq!(labels["sidecar.istio.io/inject"], "false");
    assert_eq!(pod.termination_grace_period_seconds, Some(30));
}

#[test]
fn the_priority_class_is_the_one_that_the_pod_names() {
    let name = pod().priority_class_name.unwrap();
    let class: PriorityClass = object("PriorityClass", &name);
    assert_eq!(class.value, Some(2_100_000));
    assert_eq!(class.global_default, None);
}

#[test]
fn memory_is_limited_and_the_processor_is_not() {
    let resources = container().resources.unwrap();
    let texts = |map: Option<BTreeMap<String, _>>| -> Vec<(String, String)> {
        let quantity = |it: k8s_openapi::apimachinery::pkg::api::resource::Quantity| it.0;
        map.unwrap()
            .into_iter()
            .map(|(key, value)| (key, quantity(value)))
            .collect()
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        texts(resources.requests),
        [pair("cpu", "10m"), pair("memory", "32Mi")]
    );
    assert_eq!(texts(resources.limits), [pair("memory", "128Mi")]);
}

#[test]
fn the_probes_ask_the_health_port() {
    pods::assert_probes(container());
}

#[rstest]
#[case::listen("--webhook-bind-address=:9443", "webhook", 9443)]
#[case::health("--health-probe-bind-address=:8081", "health", 8081)]
#[case::metrics("--metrics-bind-address=:8080", "metrics", 8080)]
fn the_process_listens_where_the_ports_are(
    #[case] argument: &str,
    #[case] name: &str,
    #[case] port: i32,
) {
    let container = container();
    let arguments = container.args.unwrap();
    // The command contains the component. Repeating it in the arguments would be a usage error.
    assert!(arguments.iter().all(|it| it.starts_with("--")));
    pods::assert_command(container.command, "webhook");
    assert!(arguments.iter().any(|it| it == argument));
    let ports = container.ports.unwrap();
    let found = ports.iter().find(|it| it.name.as_deref() == Some(name));
    assert_eq!(found.unwrap().container_port, port);
}

#[test]
fn the_process_gets_name_and_namespace_of_its_pod() {
    let fields: Vec<(String, String)> = container()
        .env
        .unwrap()
        .into_iter()
        .map(|it| {
            (
                it.name,
                it.value_from.unwrap().field_ref.unwrap().field_path,
            )
        })
        .collect();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        fields,
        [
            pair("POD_NAMESPACE", "metadata.namespace"),
            pair("POD_NAME", "metadata.name")
        ]
    );
}

#[test]
fn the_image_starts_the_role() {
    pods::assert_image_starts("webhook");
}
