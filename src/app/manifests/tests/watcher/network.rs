//! Tests of the allowed connections if all others are denied. All policies select the same Pods, so the list of their rules
//! is complete.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rstest::rstest;
use serde_json::Value;

use super::objects;
use crate::manifests::tests::only;

fn policies(objects: &[Value]) -> Vec<NetworkPolicy> {
    objects
        .iter()
        .filter(|it| it["kind"] == "NetworkPolicy")
        .map(|it| serde_json::from_value(it.clone()).unwrap())
        .collect()
}

fn labels(selector: Option<&LabelSelector>) -> String {
    let labels = selector.and_then(|it| it.match_labels.as_ref());
    let pairs = labels.into_iter().flatten();
    pairs
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns `peer port/protocol` for each connection that a rule allows.
fn ways(
    peers: Option<&Vec<NetworkPolicyPeer>>,
    ports: Option<&Vec<NetworkPolicyPort>>,
) -> Vec<String> {
    let peers: Vec<String> = match peers {
        None => vec!["anywhere".to_owned()],
        Some(peers) => peers
            .iter()
            .map(|peer| {
                assert_eq!(peer.ip_block, None);
                let namespace = labels(peer.namespace_selector.as_ref());
                format!("{namespace}/{}", labels(peer.pod_selector.as_ref()))
            })
            .collect(),
    };
    // A rule without ports would allow all ports.
    let ports = ports.unwrap().iter().map(|it| {
        let Some(IntOrString::Int(port)) = it.port else {
            panic!("{it:?}");
        };
        format!("{port}/{}", it.protocol.as_deref().unwrap())
    });
    let ports: Vec<String> = ports.collect();
    let pairs = peers
        .iter()
        .flat_map(|peer| ports.iter().map(move |port| format!("{peer} {port}")));
    pairs.collect()
}

fn ingress(objects: &[Value]) -> Vec<String> {
    let specs = policies(objects).into_iter().map(|it| it.spec.unwrap());
    let rules = specs.flat_map(|it| it.ingress.unwrap_or_default());
    rules
        .flat_map(|it| ways(it.from.as_ref(), it.ports.as_ref()))
        .collect()
}

fn egress(objects: &[Value]) -> Vec<String> {
    let specs = policies(objects).into_iter().map(|it| it.spec.unwrap());
    let rules = specs.flat_map(|it| it.egress.unwrap_or_default());
    rules
        .flat_map(|it| ways(it.to.as_ref(), it.ports.as_ref()))
        .collect()
}

const SCRAPER: &str = "kubernetes.io/metadata.name=kyma-system/networking.kyma-project.io/metrics-scraping=allowed 2112/TCP";

#[test]
fn reviews_come_from_anywhere_and_metrics_go_to_marked_pods() {
    assert_eq!(ingress(&objects(&[])), ["anywhere 8443/TCP", SCRAPER]);
}

#[test]
fn on_gardener_reviews_come_through_the_tunnel() {
    let text = super::printed(&["--kcp-addr=kcp.test:8443", "--gardener"]).unwrap();
    let objects = super::documents(&text);
    assert_eq!(egress(&objects)[0], "anywhere 8443/TCP");
    assert_eq!(
        ingress(&objects),
        [
            "gardener.cloud/purpose=kube-system/app=vpn-shoot 8443/TCP",
            SCRAPER
        ]
    );
}

#[rstest]
#[case::https("--kcp-addr=kcp.example.com", "anywhere 443/TCP")]
#[case::another("--kcp-addr=kcp.example.com:8443", "anywhere 8443/TCP")]
#[case::address("--kcp-addr=[2001:db8::1]", "anywhere 443/TCP")]
#[case::address_and_port("--kcp-addr=192.0.2.1:30443", "anywhere 30443/TCP")]
fn to_kcp_and_to_names_and_nowhere_else(#[case] flag: &str, #[case] kcp: &str) {
    let text = super::printed(&[flag]).unwrap();
    let dns = "kubernetes.io/metadata.name=kube-system/k8s-app=kube-dns";
    assert_eq!(
        egress(&super::documents(&text)),
        [
            kcp,
            "anywhere 53/UDP",
            "anywhere 53/TCP",
            &format!("{dns} 8053/UDP"),
            &format!("{dns} 8053/TCP"),
        ]
    );
}

#[test]
fn every_policy_is_for_our_pods_and_in_one_direction() {
    for policy in policies(&objects(&[])) {
        let spec = policy.spec.unwrap();
        assert_eq!(labels(spec.pod_selector.as_ref()), "app=skr-webhook");
        let direction = if spec.ingress.is_some() {
            "Ingress"
        } else {
            "Egress"
        };
        assert_eq!(spec.policy_types, Some(vec![direction.to_owned()]));
        assert!(spec.ingress.is_none() || spec.egress.is_none());
    }
}

#[rstest]
#[case::reviews("skr-webhook", 443, "watcher-port")]
#[case::metrics("skr-webhook-metrics", 2112, "metrics-port")]
fn a_service_leads_to_a_port_of_our_pod(
    #[case] name: &str,
    #[case] port: i32,
    #[case] target: &str,
) {
    let service: Service = only(&objects(&[]), "Service", name);
    let spec = service.spec.unwrap();
    let selector: Vec<(String, String)> = spec.selector.unwrap().into_iter().collect();
    assert_eq!(selector, [("app".to_owned(), "skr-webhook".to_owned())]);
    let [entry] = spec.ports.unwrap().try_into().unwrap();
    assert_eq!(entry.port, port);
    assert_eq!(entry.target_port, Some(IntOrString::String(target.into())));
}
