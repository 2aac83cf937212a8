//! Tests of the Deployment and its related objects.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::objects;
use crate::manifests::tests::{only, pods};

fn deployment() -> DeploymentSpec {
    let deployment: Deployment = only(&objects(&[]), "Deployment", "skr-webhook");
    deployment.spec
}

fn pod() -> PodSpec {
    deployment().template.spec.unwrap()
}

fn container() -> Container {
    pods::container(pod())
}

#[test]
fn the_pod_is_restricted_and_has_no_token() {
    pods::assert_restricted(pod());
    assert_eq!(pod().automount_service_account_token, Some(false));
}

#[test]
fn the_only_volumes_are_certificates_hashes_and_spool() {
    let [ssl, entries, spool] = pod().volumes.unwrap().try_into().unwrap();
    let secret = ssl.secret.unwrap();
    assert_eq!(secret.secret_name.as_deref(), Some("skr-webhook-tls"));
    assert_eq!(
        secret.items, None,
        "a key that is missing would prevent the start"
    );
    let entries = entries.config_map.unwrap();
    assert_eq!(entries.name, api::kcp::OWNER_CONFIG_MAP);
    assert_eq!(entries.optional, Some(true), "a controller writes it");
    let [item] = entries.items.unwrap().try_into().unwrap();
    assert_eq!(item.key, api::kcp::OWNER_WATCHER_ENTRIES);
    assert_eq!(item.path, "entries");
    let spool = spool.empty_dir.unwrap();
    assert_eq!(spool.medium, None, "on a disk: memory would be the Pod's");
    assert_eq!(spool.size_limit.unwrap().0, "256Mi");
}

/// With a `subPath` a rotated file would never arrive.
#[test]
fn folders_are_mounted_whole() {
    let mounts: Vec<(String, String, Option<bool>)> = container()
        .volume_mounts
        .unwrap()
        .into_iter()
        .map(|it| {
            assert_eq!((it.sub_path, it.sub_path_expr), (None, None));
            (it.name, it.mount_path, it.read_only)
        })
        .collect();
    let mount = |name: &str, path: &str, read_only| (name.to_owned(), path.to_owned(), read_only);
    assert_eq!(
        mounts,
        [
            mount("ssl", "/app/etc/ssl", Some(true)),
            mount("webhook-entries", "/app/etc/webhook-entries", Some(true)),
            mount("spool", "/var/spool/watcher", None),
        ]
    );
}

#[test]
fn there_is_always_one_that_answers() {
    let spec = deployment();
    assert_eq!(spec.replicas, Some(2));
    let rolling = spec.strategy.unwrap().rolling_update.unwrap();
    assert_eq!(rolling.max_unavailable, Some(IntOrString::Int(0)));
    assert_eq!(rolling.max_surge, Some(IntOrString::Int(1)));
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    let pod = spec.template.spec.unwrap();
    let budget: PodDisruptionBudget = only(&objects(&[]), "PodDisruptionBudget", "skr-webhook");
    let budget = budget.spec.unwrap();
    assert_eq!(budget.min_available, Some(IntOrString::Int(1)));
    let mut selectors = vec![spec.selector, budget.selector.unwrap()];
    let spread = pod.topology_spread_constraints.unwrap();
    assert_eq!(spread.len(), 2);
    selectors.extend(spread.into_iter().map(|it| it.label_selector.unwrap()));
    for selector in selectors {
        let wanted: Vec<(String, String)> = selector.match_labels.unwrap().into_iter().collect();
        assert_eq!(wanted, [("app".to_owned(), "skr-webhook".to_owned())]);
    }
    assert_eq!(labels["app"], "skr-webhook");
    assert_eq!(labels["sidecar.istio.io/inject"], "false");
    assert_eq!(pod.termination_grace_period_seconds, Some(60));
}

#[test]
fn the_priority_class_is_the_one_that_the_pod_names() {
    let name = pod().priority_class_name.unwrap();
    let class: PriorityClass = only(&objects(&[]), "PriorityClass", &name);
    assert_eq!(class.value, Some(1_000_000_000));
    assert_eq!(class.global_default, Some(false));
}

#[test]
fn the_probes_ask_the_health_port() {
    pods::assert_probes(container());
}

/// The variables and values of the public watcher.
#[test]
fn the_process_gets_its_variables() {
    let container = container();
    let variables: Vec<(String, String)> = container
        .env
        .unwrap()
        .into_iter()
        .map(|it| (it.name, it.value.unwrap()))
        .collect();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        variables,
        [
            pair("WEBHOOK_PORT", "8443"),
            pair("METRICS_PORT", "2112"),
            pair("CA_CERT", "/app/etc/ssl/ca.crt"),
            pair("TLS_CERT", "/app/etc/ssl/tls.crt"),
            pair("TLS_KEY", "/app/etc/ssl/tls.key"),
            pair("KCP_ADDR", "kcp.example.com"),
            pair("KCP_CONTRACT", "v2"),
        ]
    );
    let ports: Vec<(String, i32)> = container
        .ports
        .unwrap()
        .into_iter()
        .map(|it| (it.name.unwrap(), it.container_port))
        .collect();
    let port = |name: &str, port| (name.to_owned(), port);
    assert_eq!(
        ports,
        [
            port("watcher-port", 8443),
            port("metrics-port", 2112),
            port("health", 8081)
        ]
    );
    assert_eq!(
        container.args.unwrap(),
        [
            "--health-probe-bind-address=:8081",
            "--spool-dir=/var/spool/watcher"
        ]
    );
    pods::assert_command(container.command, "watcher");
}

#[test]
fn the_image_starts_the_role() {
    pods::assert_image_starts("watcher");
}
